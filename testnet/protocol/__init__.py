"""Writes a page on every message that peers and clients exchange, and its lock."""
