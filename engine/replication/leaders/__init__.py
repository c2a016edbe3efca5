"""Source streams that survive their leader: k replicas, and voters that decide who is leader."""
