"""Finds the addresses at which newcomers can reach a peer."""

from __future__ import annotations

from medusa.overlay.errors import InvalidInputError, UnavailableError
from medusa.tools.home.addresses import Address, dialable
from medusa.tools.home.config import load_overlay, read_bootstrap
from medusa.tools.home.folder import Home


def addresses_of(home: Home) -> tuple[Address, ...]:
    """Addresses at which a new peer can reach the federation: this peer's, and those by which it
    joined.

    Raises:
        InvalidInputError: nobody could dial any of them.
    """
    try:
        own: Address | None = home.running().overlay
    except UnavailableError:
        settings = load_overlay(home)
        own = settings.advertise or settings.listen
    others = read_bootstrap(home)
    if own is not None and own[1] != 0:
        return (dialable(own), *others)
    if others:
        return others
    raise InvalidInputError(
        "no address to join by: start this peer first, or say --address HOST:PORT"
    )
