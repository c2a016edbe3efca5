"""The composition of a peer: overlay, catalog, engine, market, and the clients' listener."""
