"""Source streams that survive their leader: k replicas, and voters that elect the leader."""
