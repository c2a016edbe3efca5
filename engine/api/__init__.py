"""The calls that clients and peers make: Table 1 of the first paper, and status."""
