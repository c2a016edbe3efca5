"""Rows in files and programs: CSV, JSON, Zeek's logs, Parquet and Arrow, to and from Arrow."""
