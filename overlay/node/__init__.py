"""The whole overlay of a peer: its settings, and the composition of its parts."""
