"""The bounded-price mechanism at the scale of the paper: thousands of real Brains in one process,
in virtual time, over a simulated network."""
