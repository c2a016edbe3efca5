"""What a peer writes down of a query: the file, its editions, and the workers of its tasks."""
