"""Aggregate functions: a row for each."""
