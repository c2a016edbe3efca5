"""Letting participants in and out of a federation, at a home and at its running daemon."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import trio

from overlay.addresses import is_unspecified, outward_host
from overlay.certificates import check_root, der
from overlay.errors import (
    InvalidInputError,
    MedusaError,
    NotFoundError,
    UnavailableError,
    UntrustedError,
)
from overlay.identity import Identity, Root, parse_peer_id, read_certificate
from overlay.invite import decode_invite, encode_invite
from overlay.membership_file import load_membership, save_membership
from tools.addresses import Address, format_address
from tools.command_line import warn
from tools.config import load_overlay, read_bootstrap, write_bootstrap
from tools.home import Home

HAND_OVER_S: Final = 5.0
"""A daemon on this machine answers at once, or is not well."""


@dataclass(frozen=True)
class Joined:
    """federation: its id. name: what people call it. addresses: of peers to join by."""

    federation: str
    name: str
    addresses: tuple[str, ...]


def invite(home: Home, name: str, certificate: Path, addresses: tuple[Address, ...]) -> str:
    """Admit a participant; gives the token it joins with. Inviting again gives a token again.

    Raises:
        InvalidInputError: the certificate is another participant's, or none.
        ConflictError: the name was admitted with another root.
        NotFoundError: this home has no root key, or is in no federation.
    """
    now = time.time()
    home.require()
    root = load_root(home)
    membership = load_membership(home.folder)
    theirs = read_certificate(certificate)
    if (certified := check_root(theirs)) != name:
        raise InvalidInputError(f"{certificate}: the root certificate of {certified}, not {name}")
    join_by = addresses or addresses_of(home)
    statement = membership.admit(root, theirs, now)
    token = encode_invite(membership, name, join_by)
    save_membership(home.folder, membership, now)
    if statement != membership.charter:
        _hand_over(home, statement)
    return token


def join(home: Home, token: str) -> Joined:
    """Enter the federation that a token describes.

    Raises:
        InvalidInputError: no token, or one that does not admit this participant.
        UntrustedError: it admits someone else under this participant's name.
        ConflictError: the home is in another federation.
    """
    home.require()
    identity = Identity.load(home.folder)
    invitation = decode_invite(token)
    membership = invitation.membership(identity.participant)
    admitted = membership.root_of(identity.participant)
    if admitted is None or der(admitted) != der(identity.root_certificate):
        raise UntrustedError(
            f"the invitation admits another root as {identity.participant}; "
            f"ask for one made with {home.root_certificate}"
        )
    save_membership(home.folder, membership, time.time())
    write_bootstrap(home, invitation.addresses)
    return Joined(
        membership.federation,
        membership.name,
        tuple(format_address(address) for address in invitation.addresses),
    )


def revoke(home: Home, name: str, peer: str | None) -> None:
    """Revoke a participant, or one of its peers (id in hex).

    Raises:
        NotFoundError: no such member, or this home has no root key.
        UntrustedError: it is not ours to revoke.
    """
    now = time.time()
    home.require()
    root = load_root(home)
    membership = load_membership(home.folder)
    peer_id = b"" if peer is None else parse_peer_id(peer)
    statement = membership.revoke(root, name, peer_id, now=now)
    save_membership(home.folder, membership, now)
    _hand_over(home, statement)


def load_root(home: Home) -> Root:
    """The participant's root, key included.

    Raises:
        NotFoundError: this home is not where it was made.
    """
    if not home.root_key.exists():
        raise NotFoundError(
            f"{home.root_key}: the participant's root key is not in this home; "
            "use the home where `medusa-peer init --participant` ran"
        )
    return Root.load(home.folder)


def addresses_of(home: Home) -> tuple[Address, ...]:
    """Where a new peer can join by: this peer, and those that it joined by itself.

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
        return (_dialable(own), *others)
    if others:
        return others
    raise InvalidInputError(
        "no address to join by: start this peer first, or say --address HOST:PORT"
    )


def _dialable(address: Address) -> Address:
    """0.0.0.0 is no address of anyone: the one on the interface that leads out."""
    host, port = address
    return (outward_host() or "127.0.0.1", port) if is_unspecified(host) else address


def _hand_over(home: Home, statement: bytes) -> None:
    """Tell the running daemon; one that does not run reads its file when it starts."""
    if not home.is_locked():
        return

    async def tell() -> None:
        from tools.async_client import Endpoint, open_medusa

        own = Endpoint.of(home)  # whatever token the environment has for others
        async with open_medusa(endpoint=own, patience_s=HAND_OVER_S) as client:
            await client.admit((statement,))

    try:
        trio.run(tell)
    except MedusaError as error:
        warn(f"stored, but the running peer could not be told ({error}); restart it")
