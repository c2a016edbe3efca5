"""The commands, the client library, and the composition of a peer."""
