"""A peer's home folder: its settings, keys, tokens and log, and the addresses of its daemon."""
