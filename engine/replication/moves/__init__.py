"""Tasks at other peers: the owner chooses the worker, the worker computes, the owner follows."""
