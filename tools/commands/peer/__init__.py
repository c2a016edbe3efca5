"""`medusa-peer`: a peer's home, its membership, its contracts and its tokens."""
