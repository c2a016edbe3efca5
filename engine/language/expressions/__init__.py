"""Expressions: one grammar for SQL and for XML, types, and how they are printed."""
