"""Streams on disk: epochs as Parquet, the journal of posts, sources and subscriptions."""
