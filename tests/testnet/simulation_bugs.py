"""Safety mechanisms, each turned off on its own, and the testnets in which a checker must notice
that."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import trio

from medusa.engine.objects.availability import Availability, Mode, Recovery
from medusa.engine.objects.query import Aggregate, AggregateCall, Union
from medusa.engine.operators.shared.step import Interval
from medusa.engine.replication.directory.directory import Directory
from medusa.engine.replication.following.follower import Follower
from medusa.engine.replication.leaders.news import News
from medusa.engine.replication.moves.assignments import Assignments
from medusa.engine.replication.moves.messages import Confirm, Confirmed, PlacementStatus
from medusa.engine.replication.moves.workers import Workers
from medusa.engine.replication.records.term import Term
from medusa.engine.streams.journal.entries import Bytes
from medusa.engine.streams.journal.journal import Journal
from medusa.engine.streams.log.recent import Epoch
from medusa.engine.streams.revisions.corrections import Change, Corrections, Kind
from medusa.engine.streams.source.acceptance import Acceptance, Entry, Writer
from medusa.engine.streams.source.source import Source
from medusa.engine.streams.store.stream_state import StreamState
from medusa.engine.tasks.fork import Fork
from medusa.engine.tasks.plan import Task
from medusa.engine.tasks.windows import needs
from medusa.overlay.events import wall_clock
from medusa.testnet.simulation.faults import Cheat, Crash, Drift, Fault, Forge, Partition
from medusa.testnet.simulation.manifest import (
    Check,
    ContractTable,
    Manifest,
    MoveTable,
    PosterTable,
    QueryTable,
    Settings,
    StreamTable,
    SubscriberTable,
    Weather,
)

WORKLOAD_S = 6.0

STREAM = "medusa://mit.edu/s"
FAR = "medusa://utah.edu/s"
SUMS = "medusa://mit.edu/sums"
MERGED = "medusa://mit.edu/merged"

ALONE = Availability()


def windows(availability: Availability) -> QueryTable:
    """Return sums of windows that overlap, at mit.edu/1."""
    total = AggregateCall("sum", "value", "total")
    box = Aggregate("sums", STREAM, SUMS, 900_000, 300_000, (), (total,))
    return QueryTable("mit.edu/1", "medusa://mit.edu/q", (box,), (), availability)


def cluster(
    seed: int,
    *faults: Fault,
    mit: int = 2,
    k_safety: int = 0,
    availability: Availability = ALONE,
    **more: Any,
) -> Manifest:
    """Return a cluster: a stream at mit.edu/0, a query at mit.edu/1, and a client at utah.edu,
    which posts and reads."""
    posters = tuple(
        PosterTable(
            f"p{number}",
            STREAM,
            at,
            posts=40,
            every_s=round(0.7 * WORKLOAD_S / 40, 3),
            crashes=1,
        )
        for number, at in enumerate((("mit.edu/0", "mit.edu/1"), ("utah.edu/0",)))
    )
    return Manifest(
        **{
            "participants": {"mit.edu": mit, "utah.edu": 1},
            "workload_s": WORKLOAD_S,
            "settle_s": 30.0,
            "settings": Settings(epoch_s=0.1),
            "streams": (StreamTable(STREAM, "mit.edu/0", k_safety=k_safety),),
            "queries": (windows(availability),),
            "posters": posters,
            "subscribers": (SubscriberTable("r", SUMS, ("utah.edu/0", "mit.edu/1"), 2.0),),
            "faults": faults,
            **more,
        }
    )


def leaders_die(seed: int) -> Manifest:
    rng = random.Random(seed)
    starts = [rng.uniform(0.5, 1.5), rng.uniform(2.0, 3.0), rng.uniform(3.5, 4.5)]
    return cluster(seed, *(Crash(at, 0.5, "mit.edu/0") for at in starts))


def slow_lines(seed: int) -> Manifest:
    return cluster(seed, weather=Weather(delay_s=(0.01, 0.05)))


def moved_and_back(seed: int) -> Manifest:
    there, back = (
        MoveTable(at_s, SUMS, "mit.edu/1", to)
        for at_s, to in ((2.0, "mit.edu/0"), (4.0, "mit.edu/1"))
    )
    return cluster(seed, moves=(there, back))


def liar(seed: int) -> Manifest:
    return cluster(seed, Forge(1.0, 0.0, "utah.edu/0", "mit.edu/0"))


def clock_goes_back(seed: int) -> Manifest:
    return cluster(seed, Drift(2.0, 3.0, "mit.edu/1", 0.0, -30.0), Crash(3.0, 0.5, "mit.edu/1"))


def leader_cut_off(seed: int) -> Manifest:
    """Cut the leader off from its replicas, while a client that stays with it posts."""
    return cluster(seed, Partition(1.5, 4.0, ("mit.edu/0",)), mit=3, k_safety=1)


def primary_cut_off(seed: int) -> Manifest:
    standby = Availability(Mode.ACTIVE_STANDBY, Recovery.PRECISE)
    return cluster(seed, Partition(1.5, 4.0, ("mit.edu/1",)), availability=standby)


def primary_dies(seed: int) -> Manifest:
    """Let the primary of a query with upstream backup die; the source keeps only the tuples that it
    must."""
    backup = Availability(Mode.UPSTREAM_BACKUP, Recovery.PRECISE)
    return cluster(
        seed,
        Crash(2.5, 3.0, "mit.edu/1"),
        availability=backup,
        streams=(StreamTable(STREAM, "mit.edu/0", history_s=0.0),),
        # one post after the other, and late rows are not kept for long either
        posters=(PosterTable("p", STREAM, ("mit.edu/0",), posts=80, every_s=0.05),),
    )


def standby_is_far(seed: int) -> Manifest:
    """Return a passive standby with one checkpoint per second."""
    standby = Availability(Mode.PASSIVE_STANDBY, Recovery.PRECISE, checkpoint_s=1.0)
    return cluster(seed, availability=standby, weather=Weather(delay_s=(0.005, 0.02)))


def partner_that_cheats(seed: int) -> Manifest:
    """Return mit.edu without room for its query; utah.edu runs the query, and is paid with bad
    money at first."""
    short = dict.fromkeys(("mit.edu/0", "mit.edu/1"), 0.005)
    return cluster(
        seed,
        Cheat(1.0, 4.0, "mit.edu/1"),
        settle_s=60.0,
        settings=Settings(
            epoch_s=0.1, settle_s=0.3, trade=True, job_cpu_s=0.05, row_cpu_s=0.01, capacities=short
        ),
        contracts=(ContractTable("mit.edu", "utah.edu"),),
    )


def merged_at(
    seed: int, at: str, availability: Availability, *faults: Fault, **more: Any
) -> Manifest:
    """Return two streams, at mit.edu/0 and at utah.edu, merged at a peer of mit.edu and read at
    mit.edu/1."""
    merge = Union("merge", (STREAM, FAR), MERGED)
    posters = tuple(
        PosterTable(f"p{number}", stream, (place,), posts=60, every_s=0.08)
        for number, (stream, place) in enumerate(((STREAM, "mit.edu/0"), (FAR, "utah.edu/0")))
    )
    return cluster(
        seed,
        *faults,
        streams=(StreamTable(STREAM, "mit.edu/0"), StreamTable(FAR, "utah.edu/0")),
        queries=(QueryTable(at, "medusa://mit.edu/q", (merge,), (), availability),),
        posters=posters,
        subscribers=(
            SubscriberTable("u", MERGED, ("mit.edu/1",), 60.0, Corrections.UNDO),
            SubscriberTable("r", MERGED, ("mit.edu/1",), 60.0, Corrections.REVISIONS),
        ),
        **more,
    )


def input_cut_off(seed: int) -> Manifest:
    """Cut an input off for longer than the bound."""
    return merged_at(
        seed, "mit.edu/1", Availability(bound_s=1.0), Partition(1.0, 4.5, ("utah.edu/0",))
    )


# -- the seeded bugs -------------------------------------------------------------------------------


def acknowledged_before_journaled(patch: pytest.MonkeyPatch) -> None:
    """Write each entry only when the next one arrives."""
    write = Journal.append
    held: dict[int, tuple[bytes, bytes]] = {}

    def append(journal: Journal, meta: bytes, body: Bytes) -> None:
        before = held.pop(id(journal), None)
        if before is not None:
            write(journal, *before)
        held[id(journal)] = (bytes(meta), bytes(body))

    patch.setattr(Journal, "append", append)


def repeated_posts_stored(patch: pytest.MonkeyPatch) -> None:
    real = Acceptance.is_duplicate

    def is_duplicate(acceptance: Acceptance, writer: Writer, sequence: int) -> bool:
        real(acceptance, writer, sequence)
        return False

    patch.setattr(Acceptance, "is_duplicate", is_duplicate)


def numbers_of_producers_by_name_alone(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("medusa.engine.api.flow._writer", lambda _, request: Writer(request.producer))


def late_rows_dropped(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Source, "take_late", lambda *_: None)


def windows_begin_where_the_output_stands(patch: pytest.MonkeyPatch) -> None:
    def from_boundary(
        task: Task, after: int, upto: int, first: int | None = None
    ) -> Interval | None:
        interval = needs(task, after, upto, first)
        return interval and Interval(max(interval.lo, min(after, interval.hi - 1)), interval.hi)

    patch.setattr("medusa.engine.tasks.jobs.needs", from_boundary)


def workers_never_released(patch: pytest.MonkeyPatch) -> None:
    async def release(*_: object) -> None: ...

    def confirm(_: Workers, __: str, ___: Confirm) -> Confirmed:
        return Confirmed(PlacementStatus.ACTIVE, since=0)

    patch.setattr(Assignments, "release", release)
    patch.setattr(Workers, "confirm", confirm)


def signatures_of_statements_unchecked(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("medusa.overlay.statement_store.verify_statement", lambda _key, _envelope: None)


def incarnation_forgotten(patch: pytest.MonkeyPatch) -> None:
    """Take the next incarnation from the clock alone."""

    def from_clock(_: Path, __: int) -> int:
        return int(wall_clock() * 1e6)

    patch.setattr("medusa.overlay.gossip.driver.next_incarnation", from_clock)


def acknowledged_before_replicas_have_it(patch: pytest.MonkeyPatch) -> None:
    async def acknowledged(*_: object) -> None: ...

    patch.setattr(News, "acknowledged", acknowledged)


def term_numbers_ignored(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Term, "succeeds", lambda _term, _other: False)
    patch.setattr(Directory, "number", lambda _directory, _stream: 0)


def acknowledged_before_the_output_is_safe(patch: pytest.MonkeyPatch) -> None:
    """Acknowledge upstream without regard to what the primary's own copy has."""
    patch.setattr(Follower, "need", lambda _follower, _boundary: None)


def released_before_the_standby_has_it(patch: pytest.MonkeyPatch) -> None:
    async def released(*_: object) -> None: ...

    patch.setattr(StreamState, "released", released)


def signatures_of_receipts_unchecked(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("medusa.contracts.receipts.verify", lambda *_: None)


def boundaries_may_go_back(patch: pytest.MonkeyPatch) -> None:
    """Let a post of older rows move the boundary back."""
    real = Acceptance.apply

    def apply(acceptance: Acceptance, entry: Entry) -> None:
        real(acceptance, entry)
        if entry.count and entry.promise is None:
            acceptance.boundary = entry.greatest - acceptance.slack_us - 1

    patch.setattr(Acceptance, "apply", apply)


def nobody_forks(patch: pytest.MonkeyPatch) -> None:
    async def run(_: Fork) -> None:
        await trio.sleep_forever()

    patch.setattr(Fork, "run", run)


def tentative_tuples_taken_for_stable(patch: pytest.MonkeyPatch) -> None:
    """Let clients that ask for corrections take tentative tuples for stable."""

    def tentative(undoing: Any, epoch: Epoch) -> list[Change]:
        return [Change(Kind.INSERTION, epoch.after, epoch.upto, epoch.table, epoch.upto)]

    patch.setattr("medusa.engine.streams.revisions.corrections._Undoing.tentative", tentative)


def differences_without_deletions(patch: pytest.MonkeyPatch) -> None:
    def difference(before: pa.Table, now: pa.Table) -> tuple[pa.Table, pa.Table]:
        return before.slice(0, 0), now

    patch.setattr("medusa.engine.streams.revisions.corrections.difference", difference)


@dataclass(frozen=True)
class Bug:
    """A seeded bug. check: the checker that finds the bug. seeds: the number of seeds within which
    it finds the bug. quick: whether the normal suite tries the bug."""

    turn_off: Callable[[pytest.MonkeyPatch], None]
    manifest: Callable[[int], Manifest]
    check: Check
    seeds: int = 20
    quick: bool = False

    @property
    def name(self) -> str:
        return self.turn_off.__name__


BUGS = (
    Bug(acknowledged_before_journaled, leaders_die, Check.STREAMS, quick=True),
    Bug(repeated_posts_stored, leaders_die, Check.STREAMS),
    Bug(numbers_of_producers_by_name_alone, leaders_die, Check.STREAMS, quick=True),
    Bug(late_rows_dropped, slow_lines, Check.STREAMS),
    Bug(windows_begin_where_the_output_stands, slow_lines, Check.STREAMS, quick=True),
    Bug(workers_never_released, moved_and_back, Check.OWNERS),
    Bug(signatures_of_statements_unchecked, liar, Check.MEMBERSHIP, quick=True),
    Bug(incarnation_forgotten, clock_goes_back, Check.GOSSIP),
    Bug(acknowledged_before_replicas_have_it, leader_cut_off, Check.STREAMS),
    Bug(term_numbers_ignored, primary_cut_off, Check.OWNERS),
    Bug(acknowledged_before_the_output_is_safe, primary_dies, Check.LIVENESS),
    Bug(released_before_the_standby_has_it, standby_is_far, Check.STANDBYS, quick=True),
    Bug(signatures_of_receipts_unchecked, partner_that_cheats, Check.MONEY),
    Bug(boundaries_may_go_back, slow_lines, Check.STREAMS),
    Bug(nobody_forks, input_cut_off, Check.BOUND, quick=True),
    Bug(tentative_tuples_taken_for_stable, input_cut_off, Check.STREAMS),
    Bug(differences_without_deletions, input_cut_off, Check.STREAMS, quick=True),
)
