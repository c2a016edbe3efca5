"""Workloads: rows are posted to a peer of the moment, queries run over them, and every answer is
compared with an oracle's."""
