"""Whole production peers in one process, on virtual time and a simulated network; seeds replay."""
