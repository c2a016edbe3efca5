"""What is remembered of the way to each peer: its connection, dials under way, the last failure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import trio

from overlay.connection import Connection
from overlay.errors import MedusaError

MAX_LINKS: Final = 20_000
"""Peers of which something is remembered, some 1 KiB each: twice as many as the peer table holds. A
member can come with ever new peers: beyond that, those without a connection are forgotten."""


@dataclass(eq=False, slots=True)
class Link:
    """What is known of the way to one peer.

    Attributes:
        greeting: held by the dial whose greeting is under way, one at a time.
        adopted: the connection made last, and the start-up number of the peer then.
        attempt: set when the reaching under way is over.
        changed: set, and replaced, when a connection is adopted.
        retry_at: trio's time before which no new dial is made; reason says why.
    """

    adopted: Connection | None = None
    instance: bytes = b""
    greeting: trio.Lock = field(default_factory=trio.Lock)
    attempt: trio.Event | None = None
    changed: trio.Event = field(default_factory=trio.Event)
    failures: int = 0
    retry_at: float = 0.0
    error: MedusaError | None = None

    @property
    def connection(self) -> Connection | None:
        """The one that stands: a closed one counts no more, though its tasks may be ending."""
        if self.adopted is None or self.adopted.closed.is_set():
            return None
        return self.adopted

    @property
    def in_use(self) -> bool:
        """Whether anything but the memory of a failure hangs on it."""
        return self.adopted is not None or self.attempt is not None or self.greeting.locked()


class Links:
    """One link a peer."""

    def __init__(self) -> None:
        self._links: dict[bytes, Link] = {}

    def get(self, peer_id: bytes) -> Link | None:
        return self._links.get(peer_id)

    def all(self) -> tuple[Link, ...]:
        return tuple(self._links.values())

    def to(self, peer_id: bytes) -> Link:
        """The link to that peer, made if there is none."""
        link = self._links.get(peer_id)
        if link is None:
            if len(self._links) >= MAX_LINKS:
                self._links = {known: link for known, link in self._links.items() if link.in_use}
            link = self._links[peer_id] = Link()
        return link
