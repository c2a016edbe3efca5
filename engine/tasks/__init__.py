"""Tasks: a query network is cut into tasks, and a runner computes each epoch by epoch."""
