"""Reads the content of a stopped peer's home, for `medusa-peer inspect`, without changing it."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from msgspec import Struct

from medusa.contracts.balances import Balance
from medusa.contracts.ledger import LEDGER_FILE, read_balances
from medusa.dht.catalog import DATABASE
from medusa.dht.database import open_database
from medusa.dht.records import Publisher, read_record
from medusa.dht.store import RecordStore
from medusa.engine.replication.leaders.logs import BallotFiles
from medusa.engine.replication.moves.guest import AssignmentFiles
from medusa.engine.replication.records.stored_query import QueryFiles
from medusa.engine.replication.restored import FILE as RESTORED
from medusa.engine.streams.store.inspecting import SeenJournal, SeenLog, see_streams
from medusa.engine.streams.store.subscriptions import Lease, Leases
from medusa.overlay.errors import (
    ConflictError,
    DamagedError,
    MedusaError,
    NotFoundError,
    UntrustedError,
)
from medusa.overlay.files import storing
from medusa.overlay.gossip.incarnation import load_incarnation
from medusa.overlay.identity import Identity
from medusa.overlay.membership_file import load_membership
from medusa.overlay.names import NO_PEER, PeerId
from medusa.tools.home.folder import FROZEN, Home

T = TypeVar("T")


class LogLine(Struct, frozen=True):
    """One log of a stream: its own, that of its late tuples, or that of its revisions.

    Attributes:
        start, boundary: the interval of the kept rows, microseconds.
        lost: intervals (after, upto] whose rows are damaged or missing.
    """

    name: str
    start: int
    boundary: int
    files: int
    rows: int
    bytes: int
    lost: tuple[tuple[int, int], ...] = ()


class JournalLine(Struct, frozen=True):
    """One journal of a source stream. torn: bytes of an incomplete entry, which the peer wrote when
    it died."""

    name: str
    segments: int
    entries: int
    bytes: int
    torn: int = 0


class StreamLine(Struct, frozen=True):
    """A stream that the peer keeps. variant: tells its log from others of the same stream."""

    name: str
    role: str
    variant: str
    logs: tuple[LogLine, ...]
    journals: tuple[JournalLine, ...]


class PlacementLine(Struct, frozen=True):
    """The worker of a task, from one boundary of its output on. worker: "": the peer itself."""

    task: str
    term: int
    worker: str
    since: int


class QueryLine(Struct, frozen=True):
    """A query that the peer keeps, or stands by for.

    Attributes:
        term: the term of the query; the peer with the highest term is the primary.
        primary, secondary: peer ids (hex).
        editions: earlier editions of which something may still be computed.
    """

    name: str
    status: str
    term: int
    primary: str
    secondary: str
    outputs: tuple[str, ...]
    placements: tuple[PlacementLine, ...]
    editions: int


class AssignmentLine(Struct, frozen=True):
    """A task that the peer runs for another. since: None: it only prepares to."""

    task: str
    term: int
    owner: str
    contract: str
    since: int | None


class BallotLine(Struct, frozen=True):
    """The peer's vote on the leader of a source stream with replicas.

    Attributes:
        promised: the highest term that it knows. voted: its vote in that term.
        term, leader, replicas: the latest that it knows to be installed; 0: none.
        joined: the term whose leader gave the peer its journal; 0: it has none.
    """

    stream: str
    voters: tuple[str, ...]
    promised: int
    voted: str
    term: int
    leader: str
    replicas: tuple[str, ...]
    joined: int
    deleted: bool


class CatalogLine(Struct, frozen=True):
    """Records of the catalog in the peer's index, by kind.

    Attributes:
        published: names that the peer itself publishes.
        records: number of kept records that have not expired, its own included.
    """

    published: dict[str, tuple[str, ...]] = {}
    records: dict[str, int] = {}


class LedgerLine(Struct, frozen=True):
    """The ledger: sums in micros. fault: the first invalid entry and its fault; "": all are
    valid."""

    contracts: tuple[Balance, ...]
    entries: int
    fault: str


class Inspection(Struct, frozen=True):
    """The content of a home whose peer does not run.

    Attributes:
        restored: the next start is the first one after a restore from a backup.
        frozen: folders with second names of the data, which a backup left behind.
        incarnation: the highest of gossip that the peer may have used; 0: not known.
        abstains: streams on which the peer no longer has a vote.
        damaged: the files that could not be read, each with its mend.
    """

    home: str
    participant: str
    peer: str
    federation: str
    restored: bool
    frozen: tuple[str, ...]
    incarnation: int
    streams: tuple[StreamLine, ...]
    queries: tuple[QueryLine, ...]
    assignments: tuple[AssignmentLine, ...]
    ballots: tuple[BallotLine, ...]
    abstains: tuple[str, ...]
    leases: tuple[Lease, ...]
    catalog: CatalogLine
    ledger: LedgerLine | None
    damaged: tuple[str, ...]


class Findings:
    """Collects damaged files while the others are read."""

    def __init__(self) -> None:
        self.damaged: list[str] = []

    def note(self, error: MedusaError) -> None:
        """Remember a damaged thing."""
        self.damaged.append(str(error))

    def read(self, load: Callable[[], T], otherwise: T) -> T:
        """The result of `load`; `otherwise` if the file is missing or damaged."""
        try:
            return load()
        except NotFoundError:
            return otherwise
        except MedusaError as error:
            self.note(error)
            return otherwise


def inspect_home(home: Home) -> Inspection:
    """Read a home. Blocking.

    Raises:
        NotFoundError: no peer was made there. ConflictError: its peer runs.
    """
    home.require()
    if home.is_locked():
        raise ConflictError(
            f"a peer runs in {home.folder}: ask it (medusa status --home {home.folder}), or stop it"
        )
    found = Findings()
    identity = found.read(lambda: Identity.load(home.folder), None)
    membership = found.read(lambda: load_membership(home.folder), None)
    federation = "" if membership is None else membership.federation
    data = home.data
    ballots = BallotFiles(data / "ballots")
    return Inspection(
        str(home.folder),
        "" if identity is None else identity.participant,
        "" if identity is None else identity.peer_id.hex(),
        "" if membership is None else membership.name,
        (data / RESTORED).exists(),
        tuple(sorted(path.name for path in home.folder.glob(f"{FROZEN}*"))),
        found.read(lambda: load_incarnation(data), 0),
        found.read(lambda: tuple(_streams(data, found)), ()),
        found.read(lambda: tuple(_queries(data, found)), ()),
        found.read(lambda: tuple(_assignments(data, found)), ()),
        found.read(lambda: tuple(_ballots(ballots, found)), ()),
        found.read(lambda: tuple(sorted(ballots.abstaining())), ()),
        found.read(lambda: tuple(Leases(data / "leases.json", 0.0).all()), ()),
        found.read(lambda: _catalog(data, federation, found), CatalogLine()),
        found.read(lambda: _ledger(home, identity, federation), None),
        tuple(found.damaged),
    )


def _streams(data: Path, found: Findings) -> Iterator[StreamLine]:
    for each in see_streams(data / "streams", found.note):
        stored = each.stored
        yield StreamLine(
            stored.entry.stream.name,
            stored.role.value,
            stored.variant,
            tuple(map(_log, each.logs)),
            tuple(map(_journal, each.journals)),
        )


def _log(log: SeenLog) -> LogLine:
    return LogLine(log.name, log.start, log.boundary, log.files, log.rows, log.bytes, log.lost)


def _journal(seen: SeenJournal) -> JournalLine:
    return JournalLine(seen.name, seen.segments, seen.entries, seen.bytes, seen.torn)


def _queries(data: Path, found: Findings) -> Iterator[QueryLine]:
    for stored in QueryFiles(data / "queries").load(found.note):
        term = stored.term
        yield QueryLine(
            stored.name,
            stored.entry.status.value.lower(),
            term.number,
            term.holder.hex(),
            term.secondary.hex(),
            tuple(stored.entry.outputs),
            tuple(
                PlacementLine(term.subject, term.number, term.holder.hex(), term.since)
                for term in (stored.placements(task)[-1].term for task in stored.written_placements)
            ),
            len(stored.editions),
        )


def _assignments(data: Path, found: Findings) -> Iterator[AssignmentLine]:
    for stored in AssignmentFiles(data / "assignments").load(found.note):
        task, term = stored.key
        contract = stored.assignment.deal.contract
        yield AssignmentLine(task, term, stored.owner, contract, stored.since)


def _ballots(files: BallotFiles, found: Findings) -> Iterator[BallotLine]:
    for stored in files.load(found.note):
        ballot, term = stored.ballot, stored.ballot.term
        yield BallotLine(
            stored.entry.stream.name,
            ballot.voters,
            ballot.promised,
            ballot.voted,
            0 if term is None else term.number,
            "" if term is None else term.leader,
            () if term is None else term.replicas,
            ballot.joined,
            ballot.deleted,
        )


def _catalog(data: Path, federation: str, found: Findings) -> CatalogLine:
    def damaged(text: str) -> None:
        reason = text.partition(": ")[2].rpartition(";")[0]
        mend = "the next start puts it aside and makes it anew"
        found.note(DamagedError(f"{data / DATABASE}: {reason}; {mend}"))

    published: dict[str, tuple[str, ...]] = {}
    records = Counter[str]()
    with _copied(data, DATABASE) as copy, open_database(copy, damaged) as database:
        store = RecordStore(database, federation, _nobody, time.time)
        for each in store.publications():
            if each.body is not None:
                kind = each.subject.kind
                published[kind] = (*published.get(kind, ()), each.subject.name)
        for _, record in store.everything():
            records[read_record(record)[0].kind] += 1
    return CatalogLine(published, dict(sorted(records.items())))


def _ledger(home: Home, identity: Identity | None, federation: str) -> LedgerLine | None:
    own = NO_PEER if identity is None else identity.peer_id
    with _copied(home.folder, LEDGER_FILE) as copy:
        said = read_balances(copy, own, federation)
    return LedgerLine(said.contracts, said.entries, said.fault)


@contextmanager
def _copied(folder: Path, name: str) -> Iterator[Path]:
    """A copy of an SQLite file with the files beside it, because reading it writes to its
    folder."""
    with tempfile.TemporaryDirectory() as place:
        for path in sorted(folder.glob(f"{name}*")):
            with storing(path):
                shutil.copyfile(path, Path(place, path.name))
        if not any(Path(place).iterdir()):
            raise NotFoundError(f"{folder / name}: no such file")
        try:
            yield Path(place, name)
        except MedusaError as error:
            raise DamagedError(str(error).replace(place, str(folder))) from None


def _nobody(peer: PeerId) -> Publisher:
    raise UntrustedError(f"peer {peer.hex()} is not asked about")
