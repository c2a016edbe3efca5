"""Renews a peer's certificate before it ends: automatically if the root's key is in its home, else
by a command.

The peer checks its home regularly. It shows a certificate that a command has put there from the
next handshake on; existing connections are not touched.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import trio
from cryptography import x509

from medusa.overlay.certificates import (
    PeerName,
    check_root,
    der,
    make_peer_certificate,
    peer_of,
)
from medusa.overlay.clock import shown
from medusa.overlay.concurrency import next_beat
from medusa.overlay.errors import (
    DecodeError,
    InvalidInputError,
    MedusaError,
    NotFoundError,
    UntrustedError,
)
from medusa.overlay.events import Level
from medusa.overlay.files import read_public, write_atomically
from medusa.overlay.identity import (
    MAX_PEM,
    Identity,
    certificate_pem,
    make_request,
    read_certificate,
    read_request,
)
from medusa.overlay.membership import Membership
from medusa.overlay.membership_file import load_membership
from medusa.overlay.node.node import WARN_S, Overlay
from medusa.tools.home.folder import Home
from medusa.tools.home.root_key import SAY_WHERE, load_root

RENEW_S: Final = 60 * 86_400.0
"""Seconds before its end at which a certificate is renewed: twice the time of the warning."""

LOOK_S: Final = 5.0
"""Seconds between two checks of the home: a user who has renewed by a command waits for it."""

REPORT_S: Final = 86_400.0
"""Seconds between two events about the end of the certificate."""


class Renewal:
    """Keeps the certificate of a running peer in force.

    Args:
        home: has the certificate, and the root's key if this peer renews it itself.
    """

    def __init__(self, home: Home, overlay: Overlay) -> None:
        self._home = home
        self._overlay = overlay
        self._told_at = float("-inf")
        self._seen = 0

    async def run(self) -> None:
        """Check the home, for ever."""
        while True:
            self.look()
            await trio.sleep_until(next_beat(LOOK_S))

    def look(self) -> None:
        """Renew the certificate if it is due and the root's key is here, show the certificate in
        the home, and warn if it ends soon."""
        now = self._overlay.clock()
        self._renew_if_due(now)
        self._show()
        ends = self._overlay.identity.expires
        if ends - now <= WARN_S:
            self._report(
                "warning",
                f"needs another certificate: its own ends on {shown(ends)}, and "
                f"{self._home.root_key} is not here to renew it: `medusa-peer renew`",
            )

    def _show(self) -> None:
        try:
            written_at = self._home.peer_certificate.stat().st_mtime_ns
            if written_at == self._seen:
                return
            kept = Identity.load(self._home.folder)
            if der(kept.certificate) != der(self._overlay.identity.certificate):
                self._overlay.renew(kept)
            self._seen = written_at
        except (MedusaError, OSError) as error:
            self._report("error", f"could not take the certificate in {self._home.folder}: {error}")

    def _renew_if_due(self, now: float) -> None:
        is_due = self._overlay.identity.expires - now <= RENEW_S
        # with an unconfirmed clock the certificate could get wrong dates
        if is_due and self._overlay.clock.is_confirmed and self._home.root_key.exists():
            try:
                renew(self._home, self._home, now)
            except MedusaError as error:
                self._report("error", f"could not renew this peer's certificate: {error}")

    def _report(self, level: Level, text: str) -> None:
        now = trio.current_time()
        if now - self._told_at >= REPORT_S:
            self._told_at = now
            self._overlay.events.note(level, text)


@asynccontextmanager
async def renewing(home: Home, overlay: Overlay) -> AsyncIterator[None]:
    """Keep the peer's certificate in force during the block."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(Renewal(home, overlay).run)
        yield
        nursery.cancel_scope.cancel()


def renew_at_start(home: Home, now: float) -> None:
    """Before the peer starts, renew a certificate that has ended meanwhile, if possible."""
    identity = Identity.load(home.folder)
    if identity.expires <= now and home.root_key.exists():
        renew(home, home, now)


def renew(home: Home, root_home: Home, now: float | None = None) -> Identity:
    """Give the peer of `home` a new certificate of the same key, in force from now on.

    Raises:
        NotFoundError: the root's key is not in `root_home`.
        InvalidInputError: `root_home` has the root of another participant.
    """
    identity = _identity(home)
    mend = (
        f"{SAY_WHERE}, or have it signed there: --request FILE, then `medusa-peer sign FILE`, "
        "then --install FILE"
    )
    root = load_root(root_home, of=identity, mend=mend)
    at = time.time() if now is None else now
    return _keep(home, Identity.issue(root, at, identity.private_key))


def request(home: Home) -> bytes:
    """The request for the holder of the root to sign; nothing in it is secret."""
    return make_request(_identity(home))


def sign(home: Home, path: Path) -> tuple[PeerName, bytes]:
    """Sign the request in a file, at the home with the root's key; returns the peer and its
    certificate.

    Raises:
        InvalidInputError: the file is no request, or the request of another participant's peer.
            NotFoundError: there is no such file, or no root key here.
        UntrustedError: that peer was revoked.
    """
    root = load_root(home, mend=SAY_WHERE)
    data = read_public(path, MAX_PEM)
    try:
        name, key = read_request(data)
    except DecodeError as error:
        raise DecodeError(f"{path}: {error}") from None
    if name.participant != root.participant:
        raise InvalidInputError(
            f"{path}: of {name.participant}, and the root is {root.participant}'s"
        )
    membership = _membership(home)
    if membership is not None:
        membership.check(name)
    certificate = make_peer_certificate(root.private_key, root.certificate, key, time.time())
    return name, certificate_pem(certificate)


def install(home: Home, path: Path) -> Identity:
    """Install a certificate that the root's holder has signed; returns the identity with it.

    Raises:
        NotFoundError, InvalidInputError: no such file, or no certificate.
        UntrustedError: not of this peer's key, not of its root, or one that ends earlier.
    """
    identity = _identity(home)
    certificate = read_certificate(path)
    try:
        renewed = identity.renewed(certificate)
    except UntrustedError as error:
        wanted = f"peer {identity.peer_id.hex()[:8]} of {identity.participant}"
        raise UntrustedError(
            f"{path}: {_other(certificate, identity) or error}; wanted is the certificate of "
            f"{wanted}"
        ) from None
    if renewed.expires < identity.expires:
        raise UntrustedError(
            f"{path}: it ends on {shown(renewed.expires)}, before the one that is here"
        )
    return _keep(home, renewed)


def _other(certificate: x509.Certificate, identity: Identity) -> str:
    """The owner of a certificate that is not one of our peers'; "" for our peers' certificates."""
    owner = peer_of(certificate)
    if owner is not None:
        return "" if owner == identity.participant else f"the certificate of a peer of {owner}"
    try:
        return f"the root certificate of {check_root(certificate)}"
    except UntrustedError:
        return "no certificate of a peer"


def _identity(home: Home) -> Identity:
    home.require()
    return Identity.load(home.folder)


def _keep(home: Home, identity: Identity) -> Identity:
    write_atomically(home.peer_certificate, certificate_pem(identity.certificate))
    return identity


def _membership(home: Home) -> Membership | None:
    try:
        return load_membership(home.folder)
    except NotFoundError:
        return None  # a root may be stored outside of any federation's home
