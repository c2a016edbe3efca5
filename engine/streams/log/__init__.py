"""A log: its epochs as Parquet files, the recent ones in memory, and their retention."""
