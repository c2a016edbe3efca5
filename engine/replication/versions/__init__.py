"""The versions of a stream, one per producer, and the choice of the one that is read."""
