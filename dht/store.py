"""The records that this peer stores for the federation, and its own publications.

Merge rules:

* Under a key of a single kind the newest record stays, whichever peer of the participant signed it.
* Of a `many` kind the newest record of each publisher stays, of at most MAX_PER_KEY publishers.
* An older version than the stored one is refused; an older renewal of the same version is ignored.
* An expired record still keeps its place against older ones until it is purged, and may answer
  while no other node can be asked.
* A record from the future, stored while our clock was ahead, keeps no place and answers no request;
  nor does a damaged one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, cast

from medusa.dht.database import Database
from medusa.dht.records import (
    MAX_INLINE_BYTES,
    MAX_SKEW_US,
    Pointer,
    PublisherOf,
    Record,
    Subject,
    check_kind,
    digest_of,
    is_of_future,
    newer,
    read_record,
    verify_record,
)
from medusa.dht.wire import MAX_VALUES
from medusa.overlay.errors import (
    BusyError,
    ConflictError,
    DecodeError,
    InvalidInputError,
    UntrustedError,
)
from medusa.overlay.listeners import Listeners
from medusa.overlay.names import ObjectName, PeerId

MAX_PER_KEY: Final = MAX_VALUES
"""Publishers under one key of a `many` kind, so that their records fit one answer."""

MAX_RECORDS: Final = 200_000
"""Records in all, of 1 KiB: 200 MB of disk."""

MAX_PER_PARTICIPANT: Final = 20_000
"""Records of one participant, all its peers together: ten participants can fill a peer's store."""

PAGE: Final = 100
"""Records read at a time when all are iterated: 100 KB."""

_INSERT = "INSERT OR REPLACE INTO records VALUES (?, ?, ?, ?, ?, ?, ?, ?)"


@dataclass(frozen=True, slots=True)
class Publication:
    """An object that this peer published.

    Attributes:
        version: when it was published, microseconds UTC; a later one replaces it.
        body: the encoded object, None once it is withdrawn.
        until: microseconds UTC until which a withdrawal is sent; 0 while it is not withdrawn.
    """

    subject: Subject
    version: int
    body: bytes | None
    until: int = 0

    @property
    def is_sound(self) -> bool:
        """Whether the stored row can have been published: False if bits of it were lost since."""
        try:
            check_kind(self.subject.kind)
            ObjectName.parse(self.subject.name)
        except InvalidInputError:
            return False
        numbers = isinstance(self.version, int) and isinstance(self.until, int)
        return numbers and 0 < self.version < 2**63 and isinstance(self.body, bytes | None)

    def record(self, publisher: PeerId, issued_at: int, expires_at: int) -> Record:
        """The record of this declaration by that peer; the times: microseconds UTC."""
        body: bytes | Pointer | None = self.body
        if self.body is not None and len(self.body) > MAX_INLINE_BYTES:
            body = Pointer(digest_of(self.body), len(self.body))
        of = self.subject
        return Record(
            of.kind, of.many, of.name, publisher, self.version, issued_at, expires_at, body
        )


class RecordStore:
    """The store of records. Implements `medusa.dht.directory.Replicas`.

    Args:
        clock: seconds since the epoch.

    Attributes:
        taken: called with every record that is newly stored.
        superseded: called with the subject of this peer's publication when another peer's newer
            record arrives.
    """

    def __init__(
        self,
        database: Database,
        federation: str,
        publisher_of: PublisherOf,
        clock: Callable[[], float],
    ) -> None:
        self._database = database
        self._federation = federation
        self._publisher_of = publisher_of
        self._clock = clock
        self.superseded: Listeners[[Subject]] = Listeners()
        self.taken: Listeners[[Record]] = Listeners()
        rows = database.rows("SELECT participant, count(*) FROM records GROUP BY participant")
        self._per_participant: Counter[str] = Counter(
            {str(participant): cast("int", count) for participant, count in rows}
        )

    def accept(self, key: bytes, value: bytes) -> None:
        """Verify a record and store it by the merge rules.

        The costly checks come last: a record that is no news is not even verified.

        Raises:
            DecodeError, UntrustedError: it may not be believed, or does not belong under this key.
            ConflictError: a newer version is stored.
            BusyError: the limit of this participant, or of all, is reached.
        """
        record, _ = read_record(value)
        if record.subject.key != key:
            raise UntrustedError(f"record of {record.name}: stored under a key that is not its own")
        held, void = self._under(key)
        rivals = [h for h in held if not record.many or h.publisher == record.publisher]
        if self._is_news(record, rivals):
            verify_record(value, self._federation, self._publisher_of, self._clock())
            gone = [each.publisher for each in rivals + self._surplus(record, held)]
            gone += [by for by in void if not record.many or by == record.publisher]
            self._replace(gone, record, value)
            self.taken.notify(record)
            own = None if record.many else self.publication(record.subject)
            if own is not None and own.version < record.version:
                self.superseded.notify(record.subject)

    def _under(self, key: bytes) -> tuple[list[Record], list[PeerId]]:
        """The valid records under the key, expired ones included; and the publishers of the invalid
        ones, which are damaged or have a time in the future: a new record replaces these."""
        held: list[Record] = []
        void: list[PeerId] = []
        rows = self._database.rows("SELECT publisher, data FROM records WHERE key = ?", key)
        for publisher, data in rows:
            try:
                record, _ = read_record(cast("bytes", data))
            except DecodeError:
                void.append(cast("PeerId", publisher))
                continue
            if is_of_future(record, self._now_us()):
                void.append(cast("PeerId", publisher))
            else:
                held.append(record)
        return held, void

    def _is_news(self, record: Record, rivals: list[Record]) -> bool:
        for rival in rivals:
            if rival.version > record.version:
                raise ConflictError(
                    f"{record.name}: version {record.version} is older than {rival.version}"
                )
        return all(newer(record, rival) for rival in rivals)

    def _replace(self, losers: list[PeerId], record: Record, data: bytes) -> None:
        """Store a record in place of the losers'. losers: publishers whose records are deleted."""
        # all records under one key have one name, so all are this participant's
        participant = ObjectName.parse(record.name).participant
        if not losers:
            self._check_room(participant)
        deletions = [
            (
                "DELETE FROM records WHERE key = ? AND publisher = ?",
                (record.subject.key, loser),
            )
            for loser in losers
        ]
        self._database.change(*deletions, (_INSERT, _row(record, participant, data)))
        self._per_participant[participant] += 1 - len(losers)

    def _surplus(self, record: Record, held: list[Record]) -> list[Record]:
        """The records to delete so that at most MAX_PER_KEY publishers remain: withdrawn ones
        first."""
        others = [h for h in held if record.many and h.publisher != record.publisher]
        others.sort(key=lambda h: (h.body is not None, h.issued_at))
        return others[: max(0, len(others) + 1 - MAX_PER_KEY)]

    def _check_room(self, participant: str) -> None:
        if self._per_participant[participant] >= MAX_PER_PARTICIPANT:
            raise BusyError(f"{participant}: already {MAX_PER_PARTICIPANT} records here")
        if self._per_participant.total() >= MAX_RECORDS:
            raise BusyError(f"already {MAX_RECORDS} records here")

    def held(self, key: bytes) -> list[bytes]:
        """Records under the key, without expired ones and ones from the future."""
        return self._data("key = ? AND expires_at > ?", key, self._now_us())

    def remembered(self, key: bytes) -> list[bytes]:
        """Records under the key, with expired ones but none from the future: for when no node can
        be asked."""
        return self._data("key = ?", key)

    def everything(self) -> Iterator[tuple[bytes, bytes]]:
        """Give (key, record) of all records, except expired records and records from the future;
        read them a page at a time."""
        sql = (
            "SELECT key, publisher, data FROM records WHERE (key, publisher) > (?, ?) "
            "AND expires_at > ? AND version <= ? AND issued_at <= ? ORDER BY key, publisher LIMIT ?"
        )
        last: tuple[object, object] = b"", b""
        now = self._now_us()
        times = now, now + MAX_SKEW_US, now + MAX_SKEW_US
        while rows := self._database.rows(sql, *last, *times, PAGE):
            for key, publisher, data in rows:
                yield cast("bytes", key), cast("bytes", data)
                last = key, publisher

    def purge(self, kept_s: float) -> None:
        """Delete records that expired more than kept_s seconds ago."""
        limit = self._now_us() - int(kept_s * 1e6)
        rows = self._database.rows("SELECT participant FROM records WHERE expires_at < ?", limit)
        self._database.change(("DELETE FROM records WHERE expires_at < ?", (limit,)))
        self._per_participant.subtract(str(participant) for (participant,) in rows)

    def publish(self, publication: Publication) -> None:
        """Store a publication of our own; it is on disk on return."""
        p = publication
        row = (*_columns(p.subject), p.version, p.body, p.until)
        self._database.change(
            ("INSERT OR REPLACE INTO publications VALUES (?, ?, ?, ?, ?, ?)", row)
        )

    def forget(self, publication: Publication) -> None:
        """Delete a publication of our own whose withdrawal was sent for long enough."""
        sql = "DELETE FROM publications WHERE kind = ? AND many = ? AND name = ? AND version = ?"
        self._database.change((sql, (*_columns(publication.subject), publication.version)))

    def publication(self, subject: Subject) -> Publication | None:
        """Our own publication of the subject, withdrawn or not."""
        found = self._publications("kind = ? AND many = ? AND name = ?", *_columns(subject))
        return found[0] if found else None

    def publications(self) -> list[Publication]:
        """All our own publications, in order of kind and name."""
        return self._publications("true")

    def _publications(self, where: str, *arguments: object) -> list[Publication]:
        sql = f"SELECT * FROM publications WHERE {where} ORDER BY kind, name"  # noqa: S608
        return [
            Publication(
                Subject(str(kind), bool(many), str(name)),
                cast("int", version),
                cast("bytes | None", body),
                cast("int", until),
            )
            for kind, many, name, version, body, until in self._database.rows(sql, *arguments)
        ]

    def _data(self, where: str, *arguments: object) -> list[bytes]:
        sql = (
            f"SELECT data FROM records WHERE {where} "  # noqa: S608
            "AND version <= ? AND issued_at <= ? ORDER BY publisher"
        )
        latest = self._now_us() + MAX_SKEW_US
        rows = self._database.rows(sql, *arguments, latest, latest)
        return [cast("bytes", data) for (data,) in rows]

    def _now_us(self) -> int:
        return int(self._clock() * 1e6)


def _columns(subject: Subject) -> tuple[object, ...]:
    return subject.kind, subject.many, subject.name


def _row(record: Record, participant: str, data: bytes) -> tuple[object, ...]:
    return (
        record.subject.key,
        record.publisher,
        participant,
        record.body is None,
        record.version,
        record.issued_at,
        record.expires_at,
        data,
    )
