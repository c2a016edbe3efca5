"""A peer, or a participant with all its peers, leaves its federation: it says so, and stops."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from typing import Final

import trio

from overlay.errors import DeadlineError, InvalidInputError, NotFoundError
from overlay.exchange import EXCHANGE_S
from overlay.identity import Identity, Root
from overlay.membership_file import save_membership
from tools.admission import load_federation
from tools.dialling import dial_to
from tools.home import Home
from tools.messages import LEAVE, Leave, Left

TOLD_S: Final = 3 * EXCHANGE_S
"""Seconds for the peer to tell all others: an exchange has two calls, and a silent peer costs their
time-outs."""

STOP_S: Final = 120.0
"""Seconds for the peer to stop: it ends its Spark and writes what it has."""

LOOK_S: Final = 0.1


@dataclass(frozen=True)
class Departure:
    """told: the participants that have heard of it."""

    participant: str
    peer: str
    told: tuple[str, ...]


def leave(home: Home, root_home: Home, *, whole: bool) -> Departure:
    """Have the peer of `home` tell the others that it leaves, for good, and stop it.

    Args:
        root_home: where the participant's root key is, which signs that.
        whole: all its participant's peers leave.

    Raises:
        UnavailableError: the peer does not run: nobody would hear of it.
        NotFoundError: no root key there. InvalidInputError: it is another participant's.
        DeadlineError: it has left, and does not stop.
    """
    membership = load_federation(home)
    running = home.running()
    if not root_home.root_key.exists():
        raise NotFoundError(
            f"{root_home.root_key}: the participant's root key, which signs that a peer leaves, is "
            "not in this home; say where it is with --root HOME"
        )
    identity, root = Identity.load(home.folder), Root.load(root_home.folder)
    if root.certificate != identity.root_certificate:
        raise InvalidInputError(
            f"{root_home.folder} holds the root of {root.participant}; this peer is of "
            f"{identity.participant}"
        )
    now = time.time()
    peer_id = b"" if whole else identity.peer_id
    statement = membership.revoke(root, identity.participant, peer_id, now=now)
    told = trio.run(_tell, home, statement)
    save_membership(home.folder, membership, now)
    _stop(home, running.pid)
    return Departure(identity.participant, identity.peer_id.hex(), told)


async def _tell(home: Home, statement: bytes) -> tuple[str, ...]:
    async with dial_to(home.folder, None)() as connection:
        answer = await connection.call(LEAVE, Leave((statement,)), Left, timeout_s=TOLD_S)
        return answer.told


def _stop(home: Home, pid: int) -> None:
    os.kill(pid, signal.SIGTERM)
    until = time.monotonic() + STOP_S
    while home.is_locked():
        if time.monotonic() > until:
            raise DeadlineError(f"it has left, and the process {pid} does not stop: kill -9 {pid}")
        time.sleep(LOOK_S)
