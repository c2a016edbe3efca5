"""Connections of a network: generated or read from traces, and the intrusion query over them."""
