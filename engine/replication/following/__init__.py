"""Followers: local copies of other peers' logs, with their origins, and their progress."""
