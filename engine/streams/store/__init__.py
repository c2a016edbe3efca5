"""The streams of one peer: its logs, their states, their subscriptions, and the disk that they may
take."""
