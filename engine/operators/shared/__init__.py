"""What several operators stand on."""
