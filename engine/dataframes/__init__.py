"""What steps over DataFrames are made of: columns, rows, scans of logs, and the form of a step."""
