"""Joins a federation with an invitation token, at the new participant's home."""

from __future__ import annotations

import time
from dataclasses import dataclass

import trio

from medusa.overlay.certificates import der
from medusa.overlay.errors import NotFoundError, UntrustedError
from medusa.overlay.identity import Identity
from medusa.overlay.invite import Invite, decode_invite
from medusa.overlay.membership import Membership
from medusa.overlay.membership_file import load_membership, save_membership
from medusa.tools.home.addresses import format_address
from medusa.tools.home.config import write_bootstrap
from medusa.tools.home.federation import meet_members
from medusa.tools.home.folder import Home


@dataclass(frozen=True)
class Joined:
    """A federation that was joined.

    Attributes:
        federation: its id. name: its name for people.
        addresses: the addresses of peers to join by.
    """

    federation: str
    name: str
    addresses: tuple[str, ...]


def knock(home: Home, token: str) -> str:
    """Call the members that a token names, before its participant joins; returns warnings.

    Raises:
        RefusedError: the members that answered refuse this peer. As `join`.
    """
    identity, invitation, membership = _open(home, token)
    if home.is_locked():  # the daemon of the home is connected to other peers
        return ""
    meeting = trio.run(meet_members, identity, membership, invitation.addresses)
    if meeting.met:
        return ""
    silent = "; ".join(f"{format_address(at)}: {why}" for at, why in meeting.silent.items())
    return f"joined, but no member has answered yet ({silent}); `medusa-peer run` goes on trying"


def join(home: Home, token: str) -> Joined:
    """Enter the federation that a token describes.

    Raises:
        InvalidInputError: no token, or one that does not admit this participant.
        UntrustedError: it admits someone else under this participant's name.
        ConflictError: the home is in another federation.
    """
    _, invitation, membership = _open(home, token)
    # Addresses are written first: if this process is killed, the home must not have members without
    # their addresses.
    if _federation(home) in {None, membership.federation}:
        write_bootstrap(home, invitation.addresses)
    save_membership(home.folder, membership, time.time())
    return Joined(
        membership.federation,
        membership.name,
        tuple(format_address(address) for address in invitation.addresses),
    )


def _federation(home: Home) -> str | None:
    try:
        return load_membership(home.folder).federation
    except NotFoundError:
        return None


def _open(home: Home, token: str) -> tuple[Identity, Invite, Membership]:
    """The identity that a token invites, the invitation, and the federation that it describes."""
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
    membership.authenticate(der(identity.certificate), time.time())
    return identity, invitation, membership
