"""Addresses of peers: a host and one port for both TCP and UDP."""

from __future__ import annotations

import errno
import ipaddress
import re
import socket
from functools import lru_cache
from typing import Final

from medusa.overlay.errors import ConflictError, InvalidInputError, MedusaError

Address = tuple[str, int]

MAX_HOST: Final = 253
"""Characters of a host name (RFC 1035)."""

_HOST = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9._-]*[A-Za-z0-9_])?")

_ELSEWHERE: Final = ("192.0.2.1", 9)
"""An address that no machine has (RFC 5737). The system is asked which interface leads to it;
nothing is sent."""


def check_address(address: Address) -> Address:
    """Return the address if a peer can dial it: a host name or an IP literal, and a port.

    Raises:
        InvalidInputError: nobody can dial the address; the message says why.
    """
    host, port = address
    if not (_is_ip(host) or (len(host) <= MAX_HOST and _HOST.fullmatch(host))):
        raise InvalidInputError(f"address: {host[:80]!a} is neither a host name nor an IP")
    if not 0 < port < 65536:
        raise InvalidInputError(f"address {shown(address)}: the port must be 1 to 65535")
    return address


def is_numeric(address: Address) -> bool:
    """Whether the host is an IP literal, so that no name needs to be resolved."""
    return _is_ip(address[0]) and 0 < address[1] < 65536


def is_unspecified(host: str) -> bool:
    """Whether the host is 0.0.0.0 or ::. A peer listens there on all interfaces; nobody can dial
    it."""
    return _is_ip(host) and ipaddress.ip_address(host).is_unspecified


def is_one_machine(host: str) -> bool:
    """Whether the host is an IP of one machine: not 0.0.0.0, multicast, broadcast or reserved."""
    if not _is_ip(host):
        return False
    address = ipaddress.ip_address(host)
    if isinstance(address, ipaddress.IPv6Address):
        # no peer needs this form: it can announce the IPv4 address itself
        special = address.ipv4_mapped is not None
    else:
        special = address.is_reserved
    return not (special or address.is_multicast or address.is_unspecified)


def is_ipv6(host: str) -> bool:
    return _is_ip(host) and ipaddress.ip_address(host).version == 6


def shown(address: Address) -> str:
    """The address as text: host:port, or [host]:port for IPv6."""
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def outward_host(towards: Address = _ELSEWHERE) -> str | None:
    """The IPv4 address of this machine's interface towards another, by default to the outside; None
    if there is none. It may wait for the name to be resolved."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(towards)
        except OSError:
            return None
        return str(probe.getsockname()[0])


def cannot_listen(address: Address, error: OSError) -> MedusaError:
    """The error for a listen address that the system refused: `ConflictError` for a port in use,
    else `InvalidInputError`."""
    where = shown(address)
    if error.errno == errno.EADDRINUSE:
        return ConflictError(
            f"cannot listen on {where}: the port is in use; "
            "stop what uses it, or give another one with --listen"
        )
    reason = error.strerror or str(error)
    return InvalidInputError(
        f"cannot listen on {where}: {reason}; give an address of this machine with --listen"
    )


@lru_cache(maxsize=1024)  # called for every datagram, with few distinct hosts
def _is_ip(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return "%" not in host  # a zone (fe80::1%eth0) means something on one machine only
