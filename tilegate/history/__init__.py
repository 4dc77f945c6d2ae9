"""When did it get slower, by how much, which commit, and is it still so? A history as a network of comparisons.

Commits whose code for a case is the same are one code version, and need no measuring. Comparisons in turns connect versions.
Levels follow by weighted least squares. docs/history.md explains it.
"""
