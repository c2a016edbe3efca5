"""Queries in XML: both dialects of the papers."""
