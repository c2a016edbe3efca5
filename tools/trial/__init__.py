"""Queries over recorded files, at a peer of the moment."""
