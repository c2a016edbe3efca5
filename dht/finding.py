"""Finds and verifies the records of a subject."""

from __future__ import annotations

from collections.abc import Iterable

import trio

from medusa.dht.directory import Directory
from medusa.dht.local_peer import LocalPeer
from medusa.dht.records import Record, Subject, newer, verify_record
from medusa.dht.store import RecordStore
from medusa.overlay.clock import MEND
from medusa.overlay.errors import (
    MedusaError,
    NotFoundError,
    RefusedError,
    UnavailableError,
    WithdrawnError,
)
from medusa.overlay.names import NO_PEER, ObjectName, PeerId


class Finder:
    """Asks the directory, verifies the answers, and remembers them for when no node answers."""

    def __init__(self, local: LocalPeer, directory: Directory, store: RecordStore) -> None:
        self._local = local
        self._directory = directory
        self._store = store

    async def records(self, subject: Subject) -> list[Record]:
        """The records of a subject, the newest first: one for each publisher, of a single kind only
        the newest. This peer's own publication is always included, whatever other nodes or the
        clock say.

        Raises:
            UnavailableError: too few peers answer, nothing is remembered, and it is not ours.
            RefusedError: likewise, because the other peers refuse this one.
        """
        own = self._own(subject)
        try:
            found = await self.published(subject)
        except UnavailableError:
            if not own:
                raise
            found = []
        return _newest(own + found, many=subject.many)

    def _own(self, subject: Subject) -> list[Record]:
        publication = self._store.publication(subject)
        if publication is None:
            return []
        now_us = int(self._local.clock() * 1e6)
        return [publication.record(self._local.peer_id, now_us, now_us + 1)]

    async def published(self, subject: Subject) -> list[Record]:
        """As `records`, but only those that the responsible nodes hold.

        Raises:
            UnavailableError: too few peers answer, and nothing is remembered.
        """
        key = subject.key
        try:
            values = await self._directory.get(key)
        except UnavailableError as error:
            records = self.remembered(subject)
            if not records and not await self._is_ours_to_deny(subject):
                if exclusion := self._local.exclusion():
                    raise RefusedError(f"{subject}: {exclusion}") from None
                raise UnavailableError(f"{subject}: {error}") from None
        else:
            self._remember(key, values)
            records = self._believed(subject, values, expired_ok=False)
        return _newest(records, many=subject.many)

    async def _is_ours_to_deny(self, subject: Subject) -> bool:
        """Whether this peer can tell alone that the subject has no record: its name is of our own
        participant, and no peer of our participant publishes it. So each side of a split can create
        objects of the participants whose peers are all on that side.

        Raises:
            UnavailableError: other peers of ours, which may publish it, cannot be asked.
        """
        local = self._local
        if ObjectName.parse(subject.name).participant != local.participant:
            return False
        silent: list[str] = []
        found = False

        async def ask(peer: PeerId) -> None:
            nonlocal found
            try:
                names = (await local.fetch_names(peer)).names
            except MedusaError:
                silent.append(peer.hex()[:8])
            else:
                found = found or subject.name in names.get(subject.kind, ())

        async with trio.open_nursery() as nursery:
            for peer in local.contacts.known():
                if local.contacts.participant_of(peer) == local.participant:
                    nursery.start_soon(ask, peer)
        if silent:
            raise UnavailableError(
                f"{subject}: peers of {local.participant} that may know of it cannot be asked "
                f"now: {', '.join(sorted(silent))}"
            )
        return not found

    async def newest(self, subject: Subject) -> Record:
        """
        Raises:
            NotFoundError: there is no record. WithdrawnError: the object was withdrawn.
            UnavailableError: as `records`, and in place of NotFoundError if `is_in_doubt`, unless
                the peers of our own participant can answer.
        """
        records = await self.records(subject)
        if not records:
            raise await self._absence(subject)
        if records[0].body is None:
            raise WithdrawnError(f"{subject}: its owner has deleted it")
        return records[0]

    async def _absence(self, subject: Subject) -> NotFoundError | UnavailableError:
        """The error for a subject that has no record. What our participant's peers publish does not
        depend on any clock: they are asked themselves where records are in doubt.

        Raises:
            UnavailableError: other peers of ours, which may publish it, cannot be asked.
        """
        text = f"{subject}: not found"
        if self.is_in_doubt and await self._is_ours_to_deny(subject):
            return NotFoundError(text)
        return self.absent(text)

    @property
    def is_in_doubt(self) -> bool:
        """Whether this peer may take records for expired, or of the future, that others believe."""
        return self._local.clock_is_contradicted()

    def absent(self, text: str) -> NotFoundError | UnavailableError:
        """The error for something that has no record."""
        if self.is_in_doubt:
            return UnavailableError(
                f"{text}, but other clocks contradict ours, or did until now: {MEND}, or have the "
                "one set that is (`medusa status` names them)"
            )
        return NotFoundError(text)

    def remembered(self, subject: Subject) -> list[Record]:
        """The stored records of a subject, expired ones too."""
        return self._believed(subject, self._store.remembered(subject.key), expired_ok=True)

    def _remember(self, key: bytes, values: Iterable[bytes]) -> None:
        held = set(self._store.held(key))
        for value in values:
            if value not in held:
                try:
                    self._store.accept(key, value)
                except MedusaError:
                    # verified below; a record that is not stored is no loss
                    continue

    def _believed(
        self, subject: Subject, values: Iterable[bytes], *, expired_ok: bool
    ) -> list[Record]:
        records: list[Record] = []
        local, now = self._local, self._local.clock()
        for value in values:
            try:
                record = verify_record(
                    value, local.federation, local.publisher_of, now, expired_ok=expired_ok
                )
            except MedusaError as error:
                # without the record's text, so that forgers cannot fill the list of events with new
                # texts
                local.events.note("warning", f"disbelieved a record that was found ({error.code})")
                continue
            if record.subject == subject:
                records.append(record)
        return records


def _newest(records: Iterable[Record], *, many: bool) -> list[Record]:
    """The newest record of each publisher or (not many) of all; the newest first."""
    best: dict[PeerId, Record] = {}
    for record in records:
        slot = record.publisher if many else NO_PEER
        if slot not in best or newer(record, best[slot]):
            best[slot] = record
    return sorted(best.values(), key=lambda r: r.version, reverse=True)
