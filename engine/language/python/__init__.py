"""Queries as Python programs."""
