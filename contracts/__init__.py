"""Contracts between participants and the load market that they bound."""
