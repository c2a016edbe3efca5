"""Keeps this peer's publications on disk, sends them to the nodes that should hold them, and renews
them."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from random import Random  # noqa: TID251 -- the type only: the generator is passed in
from typing import Final, Generic, TypeVar

import trio

from medusa.dht.bodies import Bodies
from medusa.dht.config import DhtConfig
from medusa.dht.directory import Directory
from medusa.dht.finding import Finder
from medusa.dht.local_peer import LocalPeer
from medusa.dht.records import MAX_INLINE_BYTES, MAX_SKEW_US, Record, Subject, digest_of, seal
from medusa.dht.store import Publication, RecordStore
from medusa.overlay.backoff import Backoff
from medusa.overlay.clock import MEND, shown
from medusa.overlay.concurrency import Bell
from medusa.overlay.errors import ConflictError, MedusaError, UnavailableError
from medusa.overlay.listeners import Listeners
from medusa.overlay.names import ObjectName

NOTIFY_AGAIN_S: Final = 5.0
"""Seconds within which all publications are sent again after a peer's return, and the least time
between two such times."""

TOLD_PER_S: Final = 20
"""Publications sent again in a second: less than half of the number that other nodes accept from
one peer."""

PURGE_S: Final = 60.0
"""Seconds between purges of long expired records."""


K = TypeVar("K", bound=Hashable)

FIRST_RETRY_S: Final = 1.0
"""Seconds until a failed renewal is tried again; doubled up to the ordinary interval."""

AT_ONCE: Final = 8
"""Renewals under way together: each is some 16 datagrams."""


@dataclass(slots=True)
class _Entry:
    at: float
    backoff: Backoff


class Schedule(Generic[K]):
    """The times of renewals: well before a record expires, spread out, and soon after a failure.
    Times are seconds of any one clock."""

    def __init__(self, every_s: float, rng: Random) -> None:
        self._every_s = every_s
        self._rng = rng
        self._entries: dict[K, _Entry] = {}

    def add(self, key: K, at: float) -> None:
        """Renew the record at that time, and from then on regularly."""
        self._entries[key] = _Entry(at, Backoff(FIRST_RETRY_S, self._every_s))

    def remove(self, key: K) -> None:
        self._entries.pop(key, None)

    def renewed(self, key: K, now: float) -> None:
        """Note that the record was sent. The interval to the next time varies, so that records do
        not stay in step."""
        self.add(key, now + self._every_s * self._rng.uniform(0.75, 1.0))

    def failed(self, key: K, now: float) -> None:
        """Note that the record could not be sent: try again after a time that doubles."""
        if key not in self._entries:
            self.add(key, now)
        entry = self._entries[key]
        entry.at = now + entry.backoff.failed(self._rng)

    def due(self, now: float) -> list[K]:
        """At most AT_ONCE keys whose time has come, the longest waiting first."""
        ready = [
            (entry.at, n, key)
            for n, (key, entry) in enumerate(self._entries.items())
            if entry.at <= now
        ]
        return [key for _, _, key in sorted(ready, key=lambda r: r[:2])[:AT_ONCE]]

    def next_at(self) -> float:
        """The time of the next renewal; infinity if there is none."""
        return min((entry.at for entry in self._entries.values()), default=float("inf"))


class Publishing:
    """One peer's publications.

    Attributes:
        yielded: called with the kind and name of a publication that another peer of ours took over.
    """

    def __init__(
        self,
        local: LocalPeer,
        directory: Directory,
        store: RecordStore,
        bodies: Bodies,
        finder: Finder,
        *,
        config: DhtConfig,
    ) -> None:
        self._local = local
        self._directory = directory
        self._store = store
        self._bodies = bodies
        self._finder = finder
        self._config = config
        self._schedule: Schedule[Subject] = Schedule(config.republish_s, local.rng)
        for publication in store.publications():
            self._take_up(publication)
        self._check_clock()
        self._sooner = Bell()
        self._told_again_at = float("-inf")
        store.superseded.add(self._renew_soon)
        self.yielded: Listeners[[str, ObjectName]] = Listeners()

    def _take_up(self, publication: Publication) -> None:
        """Continue a publication of the last run, or drop it if the disk has changed its bytes."""
        subject, body = publication.subject, publication.body
        if not publication.is_sound or _owner(subject) != self._local.participant:
            self._store.forget(publication)
            self._local.events.note("error", f"publishes {subject} no more: damaged on disk")
            return
        large = body is not None and len(body) > MAX_INLINE_BYTES
        if body is not None and large and self._bodies.get(digest_of(body)) is None:
            self._bodies.keep(body, own=True)
        self._schedule.add(subject, trio.current_time())

    def _check_clock(self) -> None:
        """Note an error if this peer's publications are dated in the future: its clock was wrong
        then, or is wrong now."""
        latest = max((each.version for each in self._store.publications()), default=0)
        if latest > self._now_us() + MAX_SKEW_US:
            self._local.events.note(
                "error",
                f"dated its last publication {shown(latest / 1e6)}, and this machine's clock says "
                f"{shown(self._local.clock())}: {MEND}; what is dated later is told anew, as of "
                "now",
            )

    async def declare(self, subject: Subject, body: bytes | None) -> int:
        """Publish this body for the subject, or (None) withdraw it; on disk on return.

        Returns:
            number of peers that hold the record, this one included.

        Raises:
            ConflictError: another peer of ours keeps publishing newer versions.
            MedusaError: this peer itself may not publish (see `RecordStore.accept`).
        """
        publication = self._next(subject, body, beyond=0)
        try:
            return await self._notify(publication)
        except ConflictError:
            if self._store.publication(subject) != publication:
                return 1  # a later declaration of this peer has replaced it
            # our clock is behind that of another peer of ours: use a version above that peer's
            newest = await self._newest(subject)
            if newest is None or newest.version <= publication.version:
                return 1  # the node that reported a conflict has no newer record
            return await self._notify(self._next(subject, body, beyond=newest.version))

    def declare_soon(self, subject: Subject, body: bytes) -> None:
        """Publish a body of this peer's own files: on disk on return, sent with the next
        renewals."""
        before = self._store.publication(subject)
        if before is None or before.body != body or self._is_of_future(before):
            self._next(subject, body, beyond=0)
            self._renew_soon(subject)

    async def keep_told(self) -> None:
        """Renew this peer's publications, and drop expired records, for ever."""
        purge_at = trio.current_time()
        while True:
            now = trio.current_time()
            if now >= purge_at:
                self._store.purge(self._config.keep_expired_s)
                purge_at = now + PURGE_S
            due = self._schedule.due(now)
            async with trio.open_nursery() as nursery:
                for subject in due:
                    nursery.start_soon(self._renew, subject)
            with trio.move_on_at(min(self._schedule.next_at(), purge_at)):
                await self._sooner.wait()
            self._sooner.clear()

    def _next(self, subject: Subject, body: bytes | None, *, beyond: int) -> Publication:
        """Store and return a new publication, with a version above all that are known here."""
        rivals = [r.version for r in self._finder.remembered(subject) if self._is_rival(r)]
        newest = max([beyond, *rivals])
        before = self._store.publication(subject)
        now_us = self._now_us()
        # A version from the future was made while our clock was ahead. No peer believes it, nor any
        # version above it. Otherwise versions only grow, whatever the clock does.
        known = 0 if before is None or self._is_of_future(before) else before.version
        if known and before is not None and before.body == body and known >= newest:
            version = known
        else:
            version = min(max(now_us, newest + 1, known + 1), now_us + MAX_SKEW_US)
        until = 0 if body is not None else now_us + self._lifetime_us()
        publication = Publication(subject, version, body, until)
        if body is not None and len(body) > MAX_INLINE_BYTES:
            self._bodies.keep(body, own=True)
        self._store.publish(publication)
        if before is not None and before.body is not None and before.body != body:
            self._bodies.release(digest_of(before.body))
        return publication

    async def _notify(self, publication: Publication) -> int:
        """Store the renewed record here and at the nodes that should hold it."""
        subject, record = publication.subject, self._sealed(publication)
        # tried again soon, unless the put below succeeds
        self._schedule.failed(subject, trio.current_time())
        self._store.accept(subject.key, record)
        try:
            told = await self._directory.put(subject.key, record)
        except ConflictError:
            raise
        except MedusaError as error:
            if not isinstance(error, UnavailableError):
                self._local.events.note("warning", f"could not tell of {subject} yet: {error}")
            self._sooner.ring()
            return 1
        self._schedule.renewed(subject, trio.current_time())
        return told

    def _sealed(self, publication: Publication) -> bytes:
        now_us = self._now_us()
        record = publication.record(self._local.peer_id, now_us, now_us + self._lifetime_us())
        return seal(record, self._local.federation, self._local.private_key)

    async def _renew(self, subject: Subject) -> None:
        publication = self._store.publication(subject)
        if publication is None or 0 < publication.until < self._now_us():
            self._schedule.remove(subject)
            if publication is not None:
                self._store.forget(publication)
            return
        if self._is_of_future(publication):
            publication = self._next(subject, publication.body, beyond=0)
        try:
            await self._notify(publication)
        except ConflictError:
            await self._yield_to_newer(publication)
        except MedusaError as error:
            self._local.events.note("warning", f"could not renew {subject}: {error}")

    def notify_again(self) -> None:
        """Send all publications again, because a peer is back that may have been on the other side
        of a split. The peers there have not learnt of publications made here meanwhile, or have
        published the same names."""
        now = trio.current_time()
        if now < self._told_again_at + NOTIFY_AGAIN_S:
            return  # after a split many peers come back at about the same time
        self._told_again_at = now
        for number, publication in enumerate(self._store.publications()):
            wait_s = NOTIFY_AGAIN_S * self._local.rng.uniform(0.2, 1.0) + number / TOLD_PER_S
            self._schedule.add(publication.subject, now + wait_s)
        self._sooner.ring()

    def _renew_soon(self, subject: Subject) -> None:
        self._schedule.add(subject, trio.current_time())
        self._sooner.ring()

    async def _yield_to_newer(self, publication: Publication) -> None:
        """Settle a conflict with a newer version. If another peer of ours made it, stop publishing;
        if this peer made it before its clock was set back, publish a version above it."""
        subject = publication.subject
        newest = await self._newest(subject)
        if self._store.publication(subject) != publication:
            return  # a later declaration has replaced this one
        if newest is None or newest.version <= publication.version:
            self._schedule.renewed(subject, trio.current_time())
            return
        if newest.publisher == self._local.peer_id:
            self._next(subject, publication.body, beyond=newest.version)
            self._renew_soon(subject)
            return
        self.leave(subject)
        self._local.events.note(
            "info", f"left {subject} to another peer of ours, which publishes it now"
        )
        self.yielded.notify(subject.kind, ObjectName.parse(subject.name))

    def leave(self, subject: Subject) -> None:
        """Stop publishing the subject without withdrawing it: another peer of ours publishes it
        from now on."""
        publication = self._store.publication(subject)
        if publication is None:
            return
        self._schedule.remove(subject)
        self._store.forget(publication)
        if publication.body is not None:
            self._bodies.release(digest_of(publication.body))

    async def _newest(self, subject: Subject) -> Record | None:
        """The newest record at other nodes above which our own version must be."""
        try:
            records = await self._finder.published(subject)
        except UnavailableError:
            return None
        return next((record for record in records if self._is_rival(record)), None)

    def _is_rival(self, record: Record) -> bool:
        """Whether our record about the same subject must have a greater version than this one."""
        return not record.many or record.publisher == self._local.peer_id

    def _is_of_future(self, publication: Publication) -> bool:
        return publication.version > self._now_us() + MAX_SKEW_US

    def _lifetime_us(self) -> int:
        return int(self._config.lifetime_s * 1e6)

    def _now_us(self) -> int:
        return int(self._local.clock() * 1e6)


def _owner(subject: Subject) -> str:
    return ObjectName.parse(subject.name).participant
