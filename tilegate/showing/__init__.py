"""A verdict for people: Markdown for a pull request, tables for a terminal. Everything shown is in the verdict document."""
