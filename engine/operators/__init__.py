"""A folder for every kind of box: its names, its results, and their computation."""
