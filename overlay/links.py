"""What is remembered of the way to each peer: its connection, dials under way, the last
failure, and who refuses us."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import trio

from overlay.certificates import PeerName
from overlay.concurrency import Watched
from overlay.connection import Connection
from overlay.errors import MedusaError, RefusedError
from overlay.events import Events
from overlay.greeting import Verdict, receive_verdict, send_hello
from overlay.names import PeerId

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
        retry_at: trio's time before which no new dial is made; reason says why.
    """

    adopted: Watched[Connection | None] = field(default_factory=lambda: Watched(None))
    instance: bytes = b""
    greeting: trio.Lock = field(default_factory=trio.Lock)
    attempt: trio.Event | None = None
    failures: int = 0
    retry_at: float = 0.0
    error: MedusaError | None = None

    @property
    def connection(self) -> Connection | None:
        """The one that stands: a closed one counts no more, though its tasks may be ending."""
        adopted = self.adopted.value
        return None if adopted is None or adopted.closed.is_set() else adopted

    @property
    def in_use(self) -> bool:
        """Whether anything but the memory of a failure hangs on it."""
        idle = self.adopted.value is None and self.attempt is None
        return not idle or self.greeting.locked()


class Links:
    """One link a peer."""

    def __init__(self) -> None:
        self._links: dict[bytes, Link] = {}

    def get(self, peer_id: PeerId) -> Link | None:
        return self._links.get(peer_id)

    def all(self) -> tuple[Link, ...]:
        return tuple(self._links.values())

    def to(self, peer_id: PeerId) -> Link:
        """The link to that peer, made if there is none."""
        link = self._links.get(peer_id)
        if link is None:
            if len(self._links) >= MAX_LINKS:
                self._links = {known: link for known, link in self._links.items() if link.in_use}
            link = self._links[peer_id] = Link()
        return link


MAX_REFUSALS: Final = 1_000
"""Participants of which it is remembered that they refuse us: a federation has fewer."""


class Refusals:
    """Participants that refuse this peer: the others seem dead to it then, and it to them.

    A person must hear of it, for as long as it lasts: nothing else tells it from a broken network.

    Attributes:
        reasons: by participant, as far as none of its peers has taken us for a member since.
    """

    def __init__(self, events: Events) -> None:
        self.reasons: dict[str, str] = {}
        self._events = events

    def accepted(self, participant: str) -> None:
        """A peer of that participant takes us for a member."""
        self.reasons.pop(participant, None)

    async def greet(self, stream: trio.abc.Stream, remote: PeerName, hello: bytes) -> Verdict:
        """The verdict of that peer, which has proved who it is, on our hello.

        Raises:
            RefusedError: it does not take us for a member. MedusaError: the connection broke.
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
