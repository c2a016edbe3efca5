"""A room for every kind of box: what it is called, what it makes, and how that is computed."""
