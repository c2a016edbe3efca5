"""SQL: from a text to schemas, streams and queries, and back."""
