"""Who has what: the logs and tasks of a peer, at other peers, and the peers that lead."""
