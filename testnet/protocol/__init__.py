"""Writes `docs/protocol.md`: every message that peers and clients exchange, from its type."""
