"""A source stream at its leader: posts are accepted, journaled, and cut into epochs."""
