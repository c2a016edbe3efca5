"""The catalog: Kademlia under trio, signed records, and the typed view of them."""
