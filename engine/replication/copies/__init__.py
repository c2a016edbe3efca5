"""Copies of tasks and of whole queries at this peer: logs, and the computation or follower that
extends them."""
