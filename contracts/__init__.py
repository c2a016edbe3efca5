"""Signed pairwise contracts, the load market between their parties, and the ledger."""
