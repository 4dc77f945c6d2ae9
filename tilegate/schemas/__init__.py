"""The documents that pass between the rooms: each a JSON Schema, which readers check, and its types, which mypy does.

tests/tilegate/test_schemas.py holds the two against each other.
"""
