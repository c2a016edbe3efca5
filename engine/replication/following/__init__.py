"""Local copies of logs that are elsewhere: where each comes from, and how it is kept going."""
