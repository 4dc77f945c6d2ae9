"""The commands that are no room of their own: they read arguments, call the rooms, and print."""
