"""The history of a run: events seen by its clients and by an observer, read by the checkers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, TypeVar

import pyarrow as pa
from msgspec import Struct

from medusa.contracts.balances import Balance
from medusa.engine.objects.schema import Field, FieldType, Schema

Row = dict[str, Any]
"""A tuple as subscribers get it: stime and the fields; of a source stream also `seq`."""


class Posted(Struct, frozen=True):
    """One row. t: its time, microseconds; (poster, number) names it."""

    t: int
    poster: str
    number: int
    key: int
    value: int


def schema_of(stream: str) -> Schema:
    """The schema of a source stream: its name is the name of the stream and `/schema`."""
    return Schema(
        f"{stream}/schema",
        (
            Field("t", FieldType.LONG),
            Field("poster", FieldType.STRING, size=32),
            Field("number", FieldType.LONG),
            Field("key", FieldType.INT),
            Field("value", FieldType.INT),
        ),
        time="t",
    )


def table_of(rows: Iterable[Posted]) -> pa.Table:
    rows = list(rows)
    return pa.table(
        {
            "t": pa.array([row.t for row in rows], pa.int64()),
            "poster": pa.array([row.poster for row in rows], pa.string()),
            "number": pa.array([row.number for row in rows], pa.int64()),
            "key": pa.array([row.key for row in rows], pa.int32()),
            "value": pa.array([row.value for row in rows], pa.int32()),
        }
    )


def rows_of(table: pa.Table) -> tuple[Row, ...]:
    """The rows of an epoch, with times as microseconds."""
    plain = [
        column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column
        for column in table.columns
    ]
    return tuple(pa.table(plain, names=table.column_names).to_pylist())


E = TypeVar("E", bound="Event")


class Event(Struct, frozen=True):
    """at: seconds since the start of the run."""

    at: float


class Attempted(Event, frozen=True):
    """A poster queued rows: from now on they may or may not be stored."""

    poster: str
    stream: str
    rows: tuple[Posted, ...]


class Acknowledged(Event, frozen=True):
    """The peer acknowledged all rows up to that number."""

    poster: str
    stream: str
    upto: int


class Received(Event, frozen=True):
    """A subscriber got an epoch: tuples with after < stime <= upto, microseconds."""

    subscriber: str
    peer: str
    stream: str
    after: int
    upto: int
    rows: tuple[Row, ...]


class Tentative(Event, frozen=True):
    """A subscriber got that many tentative tuples."""

    subscriber: str
    rows: int


class Invited(Event, frozen=True):
    """A member admitted a participant."""

    participant: str


class Failed(Event, frozen=True):
    """A client got an error that retries cannot solve."""

    client: str
    error: str


class Late(Event, frozen=True):
    """All rows of a stream's late tuples, read at the end."""

    stream: str
    rows: tuple[Row, ...]


class Overdue(Event, frozen=True):
    """Items missing at the deadline after the heal."""

    what: str


class PrimaryView(Struct, frozen=True):
    """A query of which a peer believes to be the primary, under that term."""

    query: str
    term_number: int


class AccountView(Struct, frozen=True):
    """One side's receipts for one peer's payments to another under a contract.

    Attributes:
        payer, payee: peer ids (hex). tuples, amount: the numbers of tuples and of micros of all
            receipts together.
        head: digest (hex) of the last one, which contains that of the one before, and so on.
    """

    contract: str
    payer: str
    payee: str
    receipts: int = 0
    tuples: int = 0
    amount: int = 0
    head: str = ""


class Books(Struct, frozen=True):
    """A ledger. fault: an error in its chain or a signature, or ""."""

    balances: tuple[Balance, ...] = ()
    accounts: tuple[AccountView, ...] = ()
    fault: str = ""


class WorkView(Struct, frozen=True):
    """A task that a peer runs for another, or that another peer runs for it."""

    task: str
    term_number: int
    peer: str


class PeerView(Event, frozen=True):
    """The internal state of a running peer.

    Attributes:
        id: its peer id, hex. life: the number of its present start.
        statements: digests of its membership statements. members: the members that follow from
            these statements.
        primaries: the queries whose primary it is. works: the tasks that it runs for others. gives:
            its own tasks that run elsewhere.
        health: the state of each other peer in its failure detector, by peer id (hex). incarnation:
        its own incarnation.
        producers: for each stream, the producer by its catalog: "peer term worker".
        books: what its ledger contains.
    """

    peer: str
    id: str
    participant: str
    life: int = 0
    statements: tuple[str, ...] = ()
    members: tuple[str, ...] = ()
    primaries: tuple[PrimaryView, ...] = ()
    works: tuple[WorkView, ...] = ()
    gives: tuple[WorkView, ...] = ()
    health: Mapping[str, str] = {}
    incarnation: int = 0
    producers: Mapping[str, str] = {}
    books: Books = Books()


class Covered(Event, frozen=True):
    """A primary that limits its consumers to the boundaries that its secondary has.

    Attributes:
        look: counts the observer's looks; if one is missing, this did not hold then.
        under: term, lives of both and more: another value is another promise.
        ours, theirs: for each output, the boundary at the primary and at the secondary,
            microseconds.
    """

    look: int
    query: str
    under: str
    ours: Mapping[str, int]
    theirs: Mapping[str, int]


class Reached(Event, frozen=True):
    """The state of a task whose results have a bound.

    Attributes:
        look: counts the observer's looks; if one is missing, it did not run then.
        life: counts the starts of its peer.
        came: the boundary of its most advanced input, microseconds. given: the boundary of its
            results.
    """

    look: int
    peer: str
    life: int
    task: str
    bound_s: float
    came: int
    given: int


class Quiescent(Event, frozen=True):
    """The state after the heal and a convergence time: each running peer's view, by name, and the
    ids of the others."""

    peers: tuple[PeerView, ...]
    down: tuple[str, ...] = ()


class Paid(Event, frozen=True):
    """The ledgers after every stream has ended, and time for the last bills."""

    state: Quiescent


class History:
    """Events in the order in which they happened."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def add(self, event: Event) -> None:
        self.events.append(event)

    def of(self, kind: type[E]) -> Iterator[E]:
        return (event for event in self.events if isinstance(event, kind))


EVIDENCE: Final = 6
"""Lines of evidence for one violation."""


class Violation(Struct, frozen=True):
    """A broken rule.

    Attributes:
        check: the broken rule. text: how it was broken. evidence: lines from the history.
    """

    check: str
    text: str
    evidence: tuple[str, ...] = ()


def found(check: str, text: str, evidence: Iterable[object] = ()) -> Violation:
    lines = [str(each) for each in evidence]
    more = [f"... {len(lines) - EVIDENCE} more"] if len(lines) > EVIDENCE else []
    return Violation(check, text, (*lines[:EVIDENCE], *more))
