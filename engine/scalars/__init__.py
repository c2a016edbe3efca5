"""Scalar functions: a row for each."""
