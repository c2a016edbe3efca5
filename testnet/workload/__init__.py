"""Workloads: post rows to a temporary peer, run queries over them, and compare every answer with an
oracle's."""
