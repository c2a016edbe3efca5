"""The queries of which this peer is the primary."""
