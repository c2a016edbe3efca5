"""The objects of a federation: schemas, streams, queries, views, and their readers."""
