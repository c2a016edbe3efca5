"""The records that a peer stores of a query: its file, its editions, and the workers of its
tasks."""
