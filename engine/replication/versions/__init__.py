"""The versions of a stream, a producer each, and which of them is read."""
