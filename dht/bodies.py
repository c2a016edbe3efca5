"""Stores bodies that are too large for a record by their hash, and fetches them from a peer that
has them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import Final, cast

import trio

from medusa.dht.database import Database
from medusa.dht.records import Pointer, Record, digest_of
from medusa.overlay.concurrency import Bell
from medusa.overlay.errors import MedusaError, NotAuthorisedError, UnavailableError, UntrustedError
from medusa.overlay.events import Events
from medusa.overlay.names import ObjectName, PeerId

MAX_CACHED_BYTES: Final = 64 * 2**20
"""Bytes of other peers' bodies stored, the most recently used first."""

FETCH_S: Final = 3.0
"""Seconds for one source to deliver a body: then the next source is asked."""

_PINNED: Final = 1e300
"""`used_at` of our own bodies, which are never evicted."""

Fetch = Callable[[PeerId, bytes], Awaitable[bytes]]
"""(peer id, digest) -> the body that the peer sends; raises MedusaError."""


class Bodies:
    """A store of bodies by digest, on disk. clock: seconds since the epoch."""

    def __init__(
        self, database: Database, fetch: Fetch, events: Events, clock: Callable[[], float]
    ) -> None:
        self._database = database
        self._fetch = fetch
        self._events = events
        self._clock = clock

    def keep(self, body: bytes, *, own: bool) -> Pointer:
        """Store a body; one of our own stays until it is released."""
        pointer = Pointer(digest_of(body), len(body))
        used_at = _PINNED if own else self._clock()
        self._database.change(
            ("INSERT OR REPLACE INTO bodies VALUES (?, ?, ?)", (pointer.digest, body, used_at))
        )
        self._crowd_out()
        return pointer

    def release(self, digest: bytes) -> None:
        """Treat a body of our own as a cached one from now on."""
        sql = "UPDATE bodies SET used_at = ? WHERE digest = ?"
        self._database.change((sql, (self._clock(), digest)))

    def get(self, digest: bytes) -> bytes | None:
        """The body with that hash, if it is stored and its bytes are unchanged."""
        rows = self._database.rows("SELECT body FROM bodies WHERE digest = ?", digest)
        body = cast("bytes", rows[0][0]) if rows else None
        return body if body is not None and digest_of(body) == digest else None

    async def obtain(self, pointer: Pointer, sources: Iterable[PeerId]) -> bytes:
        """The body, from the store or from the first of these peers that has the right one.

        Raises:
            UntrustedError: the sources sent other bytes than the record's hash.
            NotAuthorisedError: a source refuses it to us, and no other has it.
            UnavailableError: no source could send it.
        """
        await trio.lowlevel.checkpoint()
        body = self.get(pointer.digest)
        problem: MedusaError = UnavailableError(f"body {pointer.digest.hex()}: nobody to ask")
        for peer_id in sources if body is None else ():
            try:
                body = await self._from(peer_id, pointer)
            except UntrustedError as error:
                self._events.note("warning", f"disbelieved a body: {error}")
                problem = error
            except NotAuthorisedError as error:
                if not isinstance(problem, UntrustedError):
                    problem = error
            except MedusaError as error:
                if not isinstance(problem, NotAuthorisedError):
                    problem = UnavailableError(f"body {pointer.digest.hex()}: {error}")
            else:
                self.keep(body, own=False)
                break
        if body is None:
            raise problem
        return body

    async def _from(self, peer_id: PeerId, pointer: Pointer) -> bytes:
        with trio.move_on_after(FETCH_S):
            body = await self._fetch(peer_id, pointer.digest)
            if len(body) != pointer.size or digest_of(body) != pointer.digest:
                raise UntrustedError(
                    f"peer {peer_id.hex()} sent another body than {pointer.digest.hex()}"
                )
            return body
        raise UnavailableError(f"peer {peer_id.hex()} did not send it within {FETCH_S:.0f} s")

    def _crowd_out(self) -> None:
        sql = "SELECT digest, length(body) FROM bodies WHERE used_at < ? ORDER BY used_at DESC"
        total = 0
        for digest, size in self._database.rows(sql, _PINNED):
            total += cast("int", size)
            if total > MAX_CACHED_BYTES:
                self._database.change(("DELETE FROM bodies WHERE digest = ?", (digest,)))


MAX_WANTED: Final = 10_000
"""Bodies waiting to be fetched. Beyond that the oldest are dropped, and fetched when asked for."""


class Copying:
    """Copies the bodies of our participant's other peers, so that a second source exists when the
    publisher is away. Only the owner's peers may send the body of a private object.

    Args:
        participant, peer_id: ours.
        sources: the peers that may have the body of a record.
    """

    def __init__(
        self,
        participant: str,
        peer_id: PeerId,
        bodies: Bodies,
        sources: Callable[[Record], list[PeerId]],
    ) -> None:
        self._participant = participant
        self._peer_id = peer_id
        self._bodies = bodies
        self._sources = sources
        self._wanted: dict[Pointer, Record] = {}
        self._more = Bell()

    def note(self, record: Record) -> None:
        """Fetch the body of a newly stored record later, if another peer of our participant
        published it."""
        body = record.body
        if not isinstance(body, Pointer) or record.publisher == self._peer_id:
            return
        if ObjectName.parse(record.name).participant == self._participant:
            self._wanted[body] = record
            if len(self._wanted) > MAX_WANTED:
                del self._wanted[next(iter(self._wanted))]
            self._more.ring()

    async def run(self) -> None:
        """Fetch bodies, for ever. A body that cannot be fetched now is fetched when a caller asks
        for it."""
        while True:
            self._more.clear()
            while self._wanted:
                pointer, record = self._wanted.popitem()
                with suppress(MedusaError):
                    await self._bodies.obtain(pointer, self._sources(record))
            await self._more.wait()
