"""The queries whose primary this peer is."""
