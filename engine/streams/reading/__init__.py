"""Reading a stream: a feed at the peer that has it, and whole epochs at the one that asks."""
