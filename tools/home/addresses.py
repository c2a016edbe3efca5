"""Addresses as people write them: `host:port`, `[::1]:port`."""

from __future__ import annotations

from medusa.overlay.addresses import Address, is_unspecified, outward_host, shown
from medusa.overlay.errors import InvalidInputError

__all__ = ["Address", "dialable", "format_address", "parse_address"]

MAX_PORT = 65_535
"""The highest port of TCP and UDP."""


def parse_address(text: str) -> Address:
    """Parse `host:port`; an IPv6 host stands in brackets. Port 0 is any free one.

    Raises:
        InvalidInputError: it is not of that form.
    """
    host, colon, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise InvalidInputError(f"address {text!r}: write an IPv6 host in brackets, [::1]:7654")
    if not colon or not host or not (port.isascii() and port.isdigit()) or int(port) > MAX_PORT:
        raise InvalidInputError(f"address {text!r}: expected HOST:PORT, as in 127.0.0.1:7654")
    return host, int(port)


def format_address(address: Address) -> str:
    """The inverse of `parse_address`."""
    return shown(address)


def dialable(address: Address) -> Address:
    """Return an address that others can dial; 0.0.0.0 is replaced by the address of the interface
    that leads out."""
    host, port = address
    return (outward_host() or "127.0.0.1", port) if is_unspecified(host) else address
