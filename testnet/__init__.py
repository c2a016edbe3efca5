"""Starts federations of real peers on one machine, breaks them on purpose, and checks their
answers."""
