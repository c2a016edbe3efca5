"""A log: its epochs as Parquet files, the recent ones in memory, and how long they are kept."""
