"""The catalog: Kademlia under trio, signed records, and the typed objects in them."""
