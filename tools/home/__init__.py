"""A peer's home folder: its settings, keys, tokens and log, and where its daemon answers."""
