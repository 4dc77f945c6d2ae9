"""Kernel builders: one kernel a file, written once for every target."""
