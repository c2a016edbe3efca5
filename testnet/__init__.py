"""Federations of real peers on one machine: started, broken on purpose, and checked."""
