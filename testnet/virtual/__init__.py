"""Virtual time, and the network that connects simulated peers."""
