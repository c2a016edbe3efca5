"""The market of a peer: its Brain and its ledger, driven by its engine and its contracts."""
