"""The generated kernels of a revision, made in worker processes that load it, and kept in a cache. Needs no GPU."""
