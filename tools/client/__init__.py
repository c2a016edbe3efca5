"""The client library: one connection to a peer, posts, subscriptions and calls."""
