"""What this peer declares: kept on disk, told to the nodes that should hold it, and renewed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import trio

from dht.bodies import Bodies
from dht.config import DhtConfig
from dht.directory import Directory
from dht.finding import Finder
from dht.records import MAX_SKEW_US, Pointer, Record, Subject, digest_of, seal
from dht.republish import Schedule
from dht.store import Publication, RecordStore
from dht.surroundings import Surroundings
from overlay.errors import ConflictError, MedusaError, UnavailableError

MAX_INLINE_BYTES: Final = 512
"""Bytes of a body inside its record: with the longest name the record still is under 1 KiB."""

TELL_AGAIN_S: Final = 5.0
"""Seconds within which everything is told again where peers come back, and at least between two
such times."""

TOLD_PER_S: Final = 20
"""Publications told again in a second: less than half of what others take from one peer."""

PURGE_S: Final = 60.0
"""Seconds between purges of what expired long ago."""


class Publishing:
    """One peer's publications.

    Attributes:
        yielded: told of what another peer of ours turned out to publish now.
    """

    def __init__(
        self,
        around: Surroundings,
        directory: Directory,
        store: RecordStore,
        bodies: Bodies,
        finder: Finder,
        *,
        config: DhtConfig,
    ) -> None:
        self._around = around
        self._directory = directory
        self._store = store
        self._bodies = bodies
        self._finder = finder
        self._config = config
        self._schedule: Schedule[Subject] = Schedule(config.republish_s, around.rng)
        for publication in store.publications():
            self._schedule.add(publication.subject, trio.current_time())
        self._sooner = trio.Event()
        self._told_again_at = float("-inf")
        store.superseded = self._renew_soon
        self.yielded: Callable[[Subject], None] = lambda _: None

    async def declare(self, subject: Subject, body: bytes | None) -> int:
        """The subject is this body from now on, or (None) is withdrawn; on disk on return.

        Returns:
            how many peers hold the record, this one counted.

        Raises:
            ConflictError: another peer of ours keeps publishing newer versions.
            MedusaError: this peer itself may not publish (see `RecordStore.accept`).
        """
        publication = self._next(subject, body, beyond=0)
        try:
            return await self._tell(publication)
        except ConflictError:
            if self._store.publication(subject) != publication:
                return 1  # what we have declared since then is the newer one
            # our clock is behind that of another peer of ours: go beyond what that one said
            newest = await self._newest_version(subject)
            if newest <= publication.version:  # who says so has nothing to show
                return 1
            return await self._tell(self._next(subject, body, beyond=newest))

    async def keep_told(self) -> None:
        """Renew what this peer publishes, and forget what expired, for ever."""
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
            self._sooner = trio.Event()

    def _next(self, subject: Subject, body: bytes | None, *, beyond: int) -> Publication:
        """The publication to make now, stored; its version is above all that is known here."""
        rivals = [r.version for r in self._finder.remembered(subject) if self._is_rival(r)]
        newest = max([beyond, *rivals])
        before = self._store.publication(subject)
        now_us = self._now_us()
        if before is not None and before.body == body and before.version >= newest:
            version = before.version
        else:
            version = max(now_us, newest + 1, before.version + 1 if before else 0)
        if version > now_us + MAX_SKEW_US:
            raise ConflictError(f"{subject}: its newest version is in the future; check the clocks")
        until = 0 if body is not None else now_us + self._lifetime_us()
        publication = Publication(subject, version, body, until)
        if body is not None and len(body) > MAX_INLINE_BYTES:
            self._bodies.keep(body, own=True)
        self._store.publish(publication)
        if before is not None and before.body is not None and before.body != body:
            self._bodies.release(digest_of(before.body))
        return publication

    async def _tell(self, publication: Publication) -> int:
        """Store the renewed record here and at the nodes that should hold it."""
        subject, record = publication.subject, self._sealed(publication)
        # to be tried again soon, unless it turns out well below
        self._schedule.failed(subject, trio.current_time())
        self._store.accept(subject.key, record)
        try:
            told = await self._directory.put(subject.key, record)
        except ConflictError:
            raise
        except MedusaError as error:
            if not isinstance(error, UnavailableError):
                self._around.events.note("warning", f"{subject}: not told yet: {error}")
            self._sooner.set()
            return 1
        self._schedule.renewed(subject, trio.current_time())
        return told

    def _sealed(self, publication: Publication) -> bytes:
        body: bytes | Pointer | None = publication.body
        if publication.body is not None and len(publication.body) > MAX_INLINE_BYTES:
            body = Pointer(digest_of(publication.body), len(publication.body))
        subject, now_us = publication.subject, self._now_us()
        record = Record(
            subject.kind,
            subject.many,
            subject.name,
            self._around.peer_id,
            publication.version,
            now_us,
            now_us + self._lifetime_us(),
            body,
        )
        return seal(record, self._around.federation, self._around.private_key)

    async def _renew(self, subject: Subject) -> None:
        publication = self._store.publication(subject)
        if publication is None or 0 < publication.until < self._now_us():
            self._schedule.remove(subject)
            if publication is not None:
                self._store.forget(publication)
            return
        try:
            await self._tell(publication)
        except ConflictError:
            await self._yield_to_newer(publication)
        except MedusaError as error:
            self._around.events.note("warning", f"{subject}: not renewed: {error}")

    def tell_again(self) -> None:
        """Somebody is back who may have been on the other side of a split: those there have not
        heard of what was published here meanwhile, or have published the same."""
        now = trio.current_time()
        if now < self._told_again_at + TELL_AGAIN_S:
            return  # of one split all come back at about the same time
        self._told_again_at = now
        for number, publication in enumerate(self._store.publications()):
            wait_s = TELL_AGAIN_S * self._around.rng.uniform(0.2, 1.0) + number / TOLD_PER_S
            self._schedule.add(publication.subject, now + wait_s)
        self._sooner.set()

    def _renew_soon(self, subject: Subject) -> None:
        self._schedule.add(subject, trio.current_time())
        self._sooner.set()

    async def _yield_to_newer(self, publication: Publication) -> None:
        """Somebody says there is a newer version: if that is so, this one is told no more."""
        subject = publication.subject
        if await self._newest_version(subject) <= publication.version:
            self._schedule.renewed(subject, trio.current_time())
            return
        self.leave(subject)
        self._around.events.note("info", f"{subject}: another peer of ours publishes it now")
        self.yielded(subject)

    def leave(self, subject: Subject) -> None:
        """Tell it no more, without withdrawing it: another peer of ours does from now on."""
        publication = self._store.publication(subject)
        if publication is None:
            return
        self._schedule.remove(subject)
        self._store.forget(publication)
        if publication.body is not None:
            self._bodies.release(digest_of(publication.body))

    async def _newest_version(self, subject: Subject) -> int:
        try:
            records = await self._finder.records(subject)
        except UnavailableError:
            return 0
        return max((r.version for r in records if self._is_rival(r)), default=0)

    def _is_rival(self, record: Record) -> bool:
        """Whether our record about the same subject must have a greater version than this one."""
        return not record.many or record.publisher == self._around.peer_id

    def _lifetime_us(self) -> int:
        return int(self._config.lifetime_s * 1e6)

    def _now_us(self) -> int:
        return int(self._around.clock() * 1e6)
