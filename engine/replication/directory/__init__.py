"""Which peer holds what: terms as this peer learns them, and as it announces its own."""
