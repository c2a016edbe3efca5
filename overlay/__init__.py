"""The overlay: names, identity, admission, transport, RPC and the peer table."""
