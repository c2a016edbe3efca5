"""The journal: entries on disk in the order of their acceptance."""
