"""Intrusion detection among three participants that do not show each other their rows."""
