"""Virtual time, and the network that simulated peers are connected by."""
