"""A market: trades and the quotes of two exchanges, and the right answers to a trader's queries."""
