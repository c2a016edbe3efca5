"""Expressions, calls and lengths of time: one grammar for SQL and for XML, types, and how they are
printed."""
