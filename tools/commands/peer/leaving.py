"""`medusa-peer leave`: a peer, or all peers of a participant, announce that they leave, and
stop."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from typing import Final

from medusa.overlay.errors import DeadlineError, MedusaError, RefusedError, UntrustedError
from medusa.overlay.exchange import EXCHANGE_S
from medusa.overlay.identity import Identity
from medusa.overlay.membership_file import save_membership
from medusa.overlay.names import NO_PEER
from medusa.tools.client.at_prompt import call_daemon
from medusa.tools.commands.peer.admission import Agreed
from medusa.tools.home.federation import load_federation
from medusa.tools.home.folder import Home
from medusa.tools.home.messages import LEAVE, Leave, Left
from medusa.tools.home.root_key import SAY_WHERE, load_root

TOLD_S: Final = 4 * EXCHANGE_S
"""Seconds for the peer to notify all others: it may have to dial them, an exchange has two calls,
and a silent peer costs their time-outs."""

STOP_S: Final = 120.0
"""Seconds for the peer to stop: it ends its Spark and writes its data."""

LOOK_S: Final = 0.1


@dataclass(frozen=True)
class Departure:
    """A peer that has left. told: the participants that have learned of it."""

    participant: str
    peer: str
    told: tuple[str, ...]


def leave(home: Home, root_home: Home, agreed: Agreed, *, whole: bool) -> Departure:
    """Have the peer of `home` tell the others that it leaves, for good, and stop it.

    Args:
        root_home: the home with the participant's root key, which signs the revocation.
        agreed: see `medusa.tools.commands.peer.admission.Agreed`.
        whole: all peers of the participant leave. Raises: UntrustedError: the peer is no member any
            more, as its own statements say. RefusedError: the peer is no member any more, as the
            others say.
        UnavailableError: the peer does not run, so it cannot tell the others.
        NotFoundError: no root key there. InvalidInputError: it is another participant's.
        DeadlineError: it has left, and does not stop.
    """
    membership = load_federation(home)
    identity = Identity.load(home.folder)
    try:
        membership.check(identity.name)
    except UntrustedError as error:
        raise UntrustedError(_out(home, error)) from None
    running = home.running()
    root = load_root(root_home, of=identity, mend=SAY_WHERE)
    now = time.time()
    peer_id = NO_PEER if whole else identity.peer_id
    statement = membership.revoke(root, identity.participant, peer_id, now=now, leaves=not whole)
    agreed()
    try:
        told = call_daemon(home, LEAVE, Leave((statement,)), Left, TOLD_S).told
    except RefusedError as error:
        raise RefusedError(_out(home, error)) from None
    save_membership(home.folder, membership, now)
    _stop(home, running.pid)
    return Departure(identity.participant, identity.peer_id.hex(), told)


def _out(home: Home, error: MedusaError) -> str:
    stop = f"; `kill {home.running().pid}` stops it" if home.is_locked() else ""
    return f"this peer is out of the federation already: {error}{stop}"


def _stop(home: Home, pid: int) -> None:
    os.kill(pid, signal.SIGTERM)
    until = time.monotonic() + STOP_S
    while home.is_locked():
        if time.monotonic() > until:
            raise DeadlineError(f"it has left, and the process {pid} does not stop: kill -9 {pid}")
        time.sleep(LOOK_S)
