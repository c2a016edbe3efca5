"""Replication between peers: terms, followers, copies of tasks, moves, standbys, leaders, views."""
