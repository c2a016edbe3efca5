"""Queries with a secondary: what it keeps while the primary lives, and how it takes over."""
