"""Queries with a secondary: its copy while the primary lives, and its takeover."""
