"""Links: this peer's memory of its connections to each other peer, and of the participants that
refuse it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import trio

from medusa.overlay.backoff import Backoff
from medusa.overlay.certificates import PeerName
from medusa.overlay.concurrency import Watched
from medusa.overlay.connection import Connection
from medusa.overlay.errors import MedusaError, RefusedError
from medusa.overlay.events import Events
from medusa.overlay.greeting import Verdict, receive_verdict, send_hello
from medusa.overlay.names import PeerId

MAX_LINKS: Final = 20_000
"""Peers with a link, some 1 KiB each: twice as many as the peer table holds. A member can come with
ever new peers; beyond this number, links that are not in use are dropped."""


@dataclass(eq=False, slots=True)
class Link:
    """The way to one peer: its connection, dials under way, the last failure.

    Attributes:
        greeting: held by the dial whose greeting is under way, one at a time.
        adopted: the latest connection.
        instance: the peer's start-up number in the latest connection.
        attempt: set when the attempt under way is over.
        backoff: the waits between dials.
        retry_at: trio's time before which no new dial is made; `error` has the reason.
    """

    backoff: Backoff
    adopted: Watched[Connection | None] = field(default_factory=lambda: Watched(None))
    instance: bytes = b""
    greeting: trio.Lock = field(default_factory=trio.Lock)
    attempt: trio.Event | None = None
    retry_at: float = 0.0
    error: MedusaError | None = None

    @property
    def connection(self) -> Connection | None:
        """The connection that stands; a closed one does not count, though its tasks may still be
        ending."""
        adopted = self.adopted.value
        return None if adopted is None or adopted.closed.is_set() else adopted

    @property
    def in_use(self) -> bool:
        """Whether the link holds anything but the memory of a failure."""
        idle = self.adopted.value is None and self.attempt is None
        return not idle or self.greeting.locked()


class Links:
    """The links of a peer, one for each other peer.

    Args:
        first_s, longest_s: waits between dials that failed, seconds.
    """

    def __init__(self, first_s: float, longest_s: float) -> None:
        self._first_s = first_s
        self._longest_s = longest_s
        self._links: dict[bytes, Link] = {}

    def get(self, peer_id: PeerId) -> Link | None:
        return self._links.get(peer_id)

    def all(self) -> tuple[Link, ...]:
        return tuple(self._links.values())

    def to(self, peer_id: PeerId) -> Link:
        """The link to that peer, created if missing."""
        link = self._links.get(peer_id)
        if link is None:
            if len(self._links) >= MAX_LINKS:
                self._links = {known: link for known, link in self._links.items() if link.in_use}
            backoff = Backoff(self._first_s, self._longest_s)
            link = self._links[peer_id] = Link(backoff)
        return link


MAX_REFUSALS: Final = 1_000
"""Participants whose refusal is remembered: a federation has fewer."""


class Refusals:
    """The participants that refuse this peer. Each side looks dead to the other then.

    The operator must learn of it for as long as it lasts: otherwise it looks like a broken network.

    Attributes:
        reasons: the reason of each participant's refusal, until one of its peers accepts this peer
            again.
    """

    def __init__(self, events: Events) -> None:
        self.reasons: dict[str, str] = {}
        self._events = events

    def accepted(self, participant: str) -> None:
        """A peer of that participant has accepted this peer as a member."""
        self.reasons.pop(participant, None)

    async def greet(self, stream: trio.abc.Stream, remote: PeerName, hello: bytes) -> Verdict:
        """Send our hello to an authenticated peer, and return its verdict.

        Raises:
            RefusedError: the remote does not accept this peer as a member. MedusaError: the
                connection broke.
        """
        try:
            await send_hello(stream, hello)
            verdict = await receive_verdict(stream)
            if (error := verdict.error()) is not None:
                raise error
        except RefusedError as error:
            self._note(remote.participant, str(error))
            raise RefusedError(f"{remote.participant} refuses this peer: {error}") from None
        return verdict

    def _note(self, participant: str, reason: str) -> None:
        if self.reasons.get(participant) != reason and len(self.reasons) < MAX_REFUSALS:
            self.reasons[participant] = reason
            self._events.note("error", f"hears that {participant} refuses this peer: {reason}")
