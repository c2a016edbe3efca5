"""What is kept in a peer's home folder: settings, keys, tokens, where its daemon answers."""
