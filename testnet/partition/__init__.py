"""A federation that is split for a while: what its clients get meanwhile, and afterwards."""
