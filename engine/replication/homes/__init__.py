"""Source streams that survive their home: k replicas, and electors that decide who is home."""
