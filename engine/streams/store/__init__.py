"""The streams of one peer: which logs there are, why, for whom, and how much they may take."""
