"""Parts of steps over DataFrames: columns, rows, scans of logs, and the form of a step."""
