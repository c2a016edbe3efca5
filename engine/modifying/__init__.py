"""Modifying a query while it runs: what changes, from which boundary on, and who must know."""
