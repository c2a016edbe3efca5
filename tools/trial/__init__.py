"""Queries over recorded files, at a temporary peer."""
