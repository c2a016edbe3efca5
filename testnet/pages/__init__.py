"""Writes the generated pages of the documentation: limits, and scopes of tokens."""
