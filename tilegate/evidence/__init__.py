"""What convinces an upstream project: the environment, a reproduction that runs alone, counters, and a table before/after."""
