"""The language of queries: text in, checked networks of boxes out."""
