"""Nexmark: the events of an online auction, the benchmark's 23 queries, and their right answers."""
