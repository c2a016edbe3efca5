"""Copies of tasks and of whole queries at this peer: logs, and what extends them."""
