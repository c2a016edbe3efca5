"""The clients of a peer that has one token, its owner's."""

from __future__ import annotations

from medusa.overlay.client_tokens import OWNER, ClientToken
from medusa.overlay.clients import Clients


def owner_clients(token: bytes) -> Clients:
    """Return the holders of that one token, which gives all rights."""
    tokens = (ClientToken.of(OWNER, token),)
    return Clients(lambda: tokens)
