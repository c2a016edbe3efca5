"""A federation that is split for a while, and its client's results meanwhile and afterwards."""
