"""Functions that the queries of the examples may call: `medusa try --functions functions.toml`."""

import ipaddress

OFFICES = {"10.0.3.0/24": "Boston", "10.0.4.0/24": "Providence"}
NETWORKS = [(ipaddress.ip_network(network), city) for network, city in OFFICES.items()]


def site(address: str) -> str | None:
    """Return the city of an address; null if the address is not one of ours."""
    parsed = ipaddress.ip_address(address)
    return next((city for network, city in NETWORKS if parsed in network), None)
