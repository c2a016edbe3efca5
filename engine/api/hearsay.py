"""The status that a peer sends to another peer, and how much of it the receiver believes.

The receiver takes the sender's participant and id from the connection, and its address from its
own peer table. It shortens long answers, so that short answers stay whole.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from engine.replication.status import PeerStatus
from engine.streams.stream_state import Role
from overlay.encoding import encode
from overlay.names import SCHEME
from overlay.plain import plain
from overlay.rpc import MAX_STRUCT_BYTES

SNAPSHOT_BYTES: Final = MAX_STRUCT_BYTES * 3 // 4
"""Bytes of all peers in one answer to a client, which is one message."""

STATES: Final = frozenset({"running", "starting"})
"""States that a peer may claim for itself."""

COPIES: Final = frozenset({Role.MIRROR, Role.ASSIGNED, Role.STANDBY, Role.REPLICA})
"""Roles in which a peer may keep a stream of another participant."""

NONSENSE: Final = "nonsense"
"""The state of a peer whose answer cannot be read, or claims an impossible state."""

_LISTS: Final = ("streams", "tasks", "events", "links", "replicas", "clients", "warnings")


def for_members(
    status: PeerStatus, may_read: Callable[[str], bool], may_know: Callable[[str], bool]
) -> PeerStatus:
    """This peer's status for a peer of another participant: without events, links, clients,
    warnings and the reasons of tasks that do not go on, and without streams and queries that are
    not for that participant.

    Args:
        may_read: whether it may read a stream. may_know: whether it may know what a query does.
    """
    return msgspec.structs.replace(
        status,
        events=(),
        links=(),
        clients=(),
        warnings=(),
        streams=tuple(each for each in status.streams if may_read(each.name)),
        tasks=tuple(
            msgspec.structs.replace(task, reason="", waits_for="")
            for task in status.tasks
            if may_read(task.name) and may_know(task.query)
        ),
        replicas=tuple(each for each in status.replicas if may_know(each.query)),
    )


def heard(said: PeerStatus, known: PeerStatus, *, own: bool) -> PeerStatus:
    """A status as received, with everything replaced or removed that its sender cannot vouch for.

    Args:
        known: its participant and id by its connection, and its address by this peer's table.
        own: whether it is of our own participant: only then its events are for us.
    """
    clean, mine = plain(said), f"{SCHEME}{known.participant}/"
    return msgspec.structs.replace(
        clean,
        participant=known.participant,
        peer=known.peer,
        address=known.address,
        state=clean.state if clean.state in STATES else NONSENSE,
        streams=tuple(s for s in clean.streams if s.role in COPIES or s.name.startswith(mine)),
        tasks=tuple(task for task in clean.tasks if task.owner or task.name.startswith(mine)),
        events=clean.events if own else (),
        clients=clean.clients if own else (),
        warnings=clean.warnings if own else (),
        left_out=max(0, clean.left_out),
    )


def fitted(peers: Sequence[PeerStatus], limit: int = SNAPSHOT_BYTES) -> tuple[PeerStatus, ...]:
    """The same, with the ends of lists left out if all together take more than `limit` bytes.
    Short answers stay whole; long ones share the rest."""
    sizes = {index: len(encode(peer)) for index, peer in enumerate(peers)}
    chosen, left = list(peers), limit
    for position, index in enumerate(sorted(sizes, key=sizes.__getitem__)):
        room = left // (len(peers) - position)
        chosen[index] = cut(peers[index], room)
        left -= min(room, sizes[index])
    return tuple(chosen)


def cut(peer: PeerStatus, limit: int) -> PeerStatus:
    """A status of `limit` bytes at most, or without any list at all."""
    while (size := len(encode(peer))) > limit and any(getattr(peer, name) for name in _LISTS):
        lists = {name: getattr(peer, name) for name in _LISTS}
        rest = {name: items[: len(items) * limit // size] for name, items in lists.items()}
        out = sum(len(lists[name]) - len(rest[name]) for name in _LISTS)
        peer = msgspec.structs.replace(peer, **rest, left_out=peer.left_out + out)
    return peer
