"""A testnet in one TOML document: peers, streams, queries, workload, faults, and checks.

The same document runs in the simulator and as real processes
(`medusa.testnet.simulation.run_real`). Times are seconds from the start of the
workload; names of objects are whole (`medusa://…`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from medusa.engine.objects.availability import Availability
from medusa.engine.objects.definitions import MAX_SPAN_US
from medusa.engine.objects.query import Box, Query
from medusa.engine.reading import read_document as read_xml
from medusa.engine.streams.revisions.corrections import Corrections
from medusa.overlay.errors import InvalidInputError
from medusa.overlay.gossip.config import Preset
from medusa.overlay.names import ObjectName, check_participant
from medusa.testnet.simulation.faults import Fault, named_peers
from medusa.tools.home.config import read_document

MAX_PEERS: Final = 64
"""Peers in one testnet: they share a process, or a machine."""

MAX_S: Final = 86_400.0
"""Longest time in a manifest, seconds: a day."""

MAX_ROWS: Final = 10_000_000
"""Rows of one poster: the checkers hold all of them."""


class Check(StrEnum):
    """The checks of a run's history."""

    STREAMS = "streams"
    OWNERS = "owners"
    MEMBERSHIP = "membership"
    MONEY = "money"
    STANDBYS = "standbys"
    BOUND = "bound"
    GOSSIP = "gossip"
    LIVENESS = "liveness"


class _Table(Struct, frozen=True, forbid_unknown_fields=True):
    """A table of the manifest (TOML). A key that it does not have is refused."""


class Settings(_Table, frozen=True):
    """The settings of every peer.

    Attributes:
        settle_s: the time between the receipts of a task, seconds. trade: whether load is offered
            and taken.
        confirm_s, stay_s: see `ContractsConfig`.
        job_cpu_s, row_cpu_s: cost of an epoch of any task, and of a row, CPU seconds; of the
            simulator only.
        capacity_cores: the capacity of a peer, unless `capacities` has another for its name.
    """

    preset: Preset = Preset.LOCAL
    epoch_s: float = 0.2
    lease_s: float = 3600.0
    patience_s: float = 10.0
    settle_s: float = 3.0
    trade: bool = False
    confirm_s: float = 0.5
    stay_s: float = 1.0
    job_cpu_s: float = 0.001
    row_cpu_s: float = 0.0
    capacity_cores: float = 4.0
    capacities: dict[str, float] = {}


class Weather(_Table, frozen=True):
    """The network without any fault, of the simulator only.

    Attributes:
        delay_s: shortest and mean one-way delay, seconds.
        loss, duplicate, reorder: shares of the datagrams.
    """

    delay_s: tuple[float, float] = (0.0002, 0.001)
    loss: float = 0.0
    duplicate: float = 0.0
    reorder: float = 0.0


class StreamTable(_Table, frozen=True):
    """A source stream of posters' rows (`medusa.testnet.simulation.history`).

    Attributes:
        history_s: how long tuples stay readable after all promised readers have them, seconds.
    """

    name: str
    home: str
    slack_s: float = 0.0
    k_safety: int = 0
    history_s: float = 3600.0


class QueryTable(_Table, frozen=True):
    """A query, in boxes or as an XML document, created and started at a peer."""

    at: str
    name: str = ""
    boxes: tuple[Box, ...] = ()
    outputs: tuple[str, ...] = ()
    availability: Availability = Availability()
    xml: str = ""

    def query(self) -> Query:
        """
        Raises:
            InvalidInputError: the document is not one query.
        """
        if not self.xml:
            return Query(self.name, self.boxes, self.outputs, self.availability)
        document = read_xml(self.xml)
        if len(document.queries) != 1 or document.schemas or document.streams:
            raise InvalidInputError("xml must define one query and nothing else")
        return document.queries[0]


class PosterTable(_Table, frozen=True):
    """A client that posts numbered rows.

    Attributes:
        at: the peers that it posts to, of one participant: the first, and another one if that does
            not answer.
        posts, rows: number of posts, and rows in each. every_s: the time between two posts, mean,
            seconds.
        keys: number of values of the key column.
        crashes: how often the client dies with unanswered posts and another one continues.
    """

    name: str
    stream: str
    at: tuple[str, ...]
    posts: int
    rows: int = 1
    every_s: float = 0.1
    keys: int = 3
    crashes: int = 0

    @property
    def participant(self) -> str:
        return self.at[0].partition("/")[0]


class SubscriberTable(_Table, frozen=True):
    """A client that subscribes.

    Attributes:
        at: the peers that it reads from, one after the other.
        stay_s: the mean time that it reads from one peer, seconds.
        corrections: their form; None: only stable tuples.
    """

    name: str
    stream: str
    at: tuple[str, ...]
    stay_s: float = 5.0
    corrections: Corrections | None = None


class MoveTable(_Table, frozen=True):
    """`medusa move`: moves the task of a stream to another peer of the participant."""

    at_s: float
    stream: str
    by: str
    to: str


class ContractTable(_Table, frozen=True):
    """Two participants run tasks for each other; both have signed before the work begins.

    Attributes:
        price: least and most, micros per unit of load and second.
        most_load: units that either runs for the other. sublet: whether a task may be passed on.
        revoked_s: when `one` revokes it; None: never.
    """

    one: str
    other: str
    price: tuple[int, int] = (100_000, 1_000_000)
    most_load: int = 400
    sublet: bool = True
    revoked_s: float | None = None


class Manifest(_Table, frozen=True):
    """A testnet.

    Attributes:
        participants: number of peers of each; the first one founds the federation. The peers are
            called `mit.edu/0`, `mit.edu/1`…
        workload_s: the time with faults; then everything is healed.
        settle_s: the time in which everything must have converged after that.
        checks: all of them by default.
    """

    participants: dict[str, int]
    name: str = ""
    workload_s: float = 10.0
    settle_s: float = 60.0
    settings: Settings = Settings()
    weather: Weather = Weather()
    streams: tuple[StreamTable, ...] = ()
    queries: tuple[QueryTable, ...] = ()
    posters: tuple[PosterTable, ...] = ()
    subscribers: tuple[SubscriberTable, ...] = ()
    moves: tuple[MoveTable, ...] = ()
    contracts: tuple[ContractTable, ...] = ()
    faults: tuple[Fault, ...] = ()
    checks: tuple[Check, ...] = tuple(Check)

    @property
    def peers(self) -> tuple[str, ...]:
        """The names of the peers."""
        return tuple(
            f"{name}/{n}" for name, count in self.participants.items() for n in range(count)
        )


def load_manifest(path: Path) -> Manifest:
    """Load the manifest in a file.

    Raises:
        InvalidInputError: it cannot be read or is invalid; names the file and the place.
    """
    try:
        path.stat()
        document = read_document(path)
    except OSError as error:
        raise InvalidInputError(f"{path}: {error.strerror}") from None
    try:
        return read_manifest(document)
    except InvalidInputError as error:
        raise InvalidInputError(f"{path}: {error}") from None


def read_manifest(document: object) -> Manifest:
    """Convert a parsed document to a manifest.

    Raises:
        InvalidInputError: it is invalid; names the place.
    """
    try:
        manifest = msgspec.convert(document, Manifest)
    except msgspec.ValidationError as error:
        what, _, where = str(error).partition(" - at ")
        raise InvalidInputError(f"{where.strip('`$').lstrip('.') or 'top'}: {what}") from None
    for where, what in _faults_of(manifest):
        raise InvalidInputError(f"{where}: {what}")
    return manifest


def _faults_of(manifest: Manifest) -> Iterator[tuple[str, str]]:
    """Each fault as (place, mistake)."""
    counts = manifest.participants.values()
    if min(counts, default=0) < 1 or sum(counts) > MAX_PEERS:
        yield "participants", f"each has a peer or more, and all {MAX_PEERS} at most"
        return
    names = manifest.peers
    for place, peers in _mentions(manifest):
        for name in peers:
            if name not in names:
                yield place, f"no peer is called {name}"
    for place, seconds in _times(manifest):
        if not 0 <= seconds <= MAX_S:
            yield place, f"{seconds:g} s is out of range"
    yield from _faults_of_names(manifest)
    yield from _faults_of_numbers(manifest)


def _mentions(manifest: Manifest) -> Iterator[tuple[str, Iterable[str]]]:
    for number, stream in enumerate(manifest.streams):
        yield f"streams[{number}].home", (stream.home,)
    for number, query in enumerate(manifest.queries):
        yield f"queries[{number}].at", (query.at,)
    for number, poster in enumerate(manifest.posters):
        yield f"posters[{number}].at", poster.at or ("",)
    for number, subscriber in enumerate(manifest.subscribers):
        yield f"subscribers[{number}].at", subscriber.at or ("",)
    for number, move in enumerate(manifest.moves):
        yield f"moves[{number}]", (move.by, move.to)
    for number, fault in enumerate(manifest.faults):
        yield f"faults[{number}]", named_peers(fault)
    yield "settings.capacities", manifest.settings.capacities


def _times(manifest: Manifest) -> Iterator[tuple[str, float]]:
    yield "workload_s", manifest.workload_s
    yield "settle_s", manifest.settle_s
    for number, fault in enumerate(manifest.faults):
        yield f"faults[{number}].at_s", fault.at_s
        yield f"faults[{number}].for_s", fault.for_s
    for number, move in enumerate(manifest.moves):
        yield f"moves[{number}].at_s", move.at_s
    for number, stream in enumerate(manifest.streams):
        yield f"streams[{number}].slack_s", min(stream.slack_s, MAX_SPAN_US / 1e6)
        yield f"streams[{number}].history_s", stream.history_s
    for number, contract in enumerate(manifest.contracts):
        yield f"contracts[{number}].revoked_s", contract.revoked_s or 0.0
    for number, poster in enumerate(manifest.posters):
        yield f"posters[{number}].every_s", poster.every_s


def _faults_of_names(manifest: Manifest) -> Iterator[tuple[str, str]]:
    for name in manifest.participants:
        yield from _refused("participants", partial(check_participant, name))
    for number, stream in enumerate(manifest.streams):
        yield from _refused(f"streams[{number}].name", partial(ObjectName.parse, stream.name))
    for number, contract in enumerate(manifest.contracts):
        for name in (contract.one, contract.other):
            if name not in manifest.participants:
                yield f"contracts[{number}]", f"no participant is called {name}"
    for number, query in enumerate(manifest.queries):
        yield from _refused(f"queries[{number}]", query.query)
    for number, poster in enumerate(manifest.posters):
        if any(peer.partition("/")[0] != poster.participant for peer in poster.at):
            yield f"posters[{number}].at", "peers of one participant, whose token the client has"


def _refused(place: str, check: Callable[[], object]) -> Iterator[tuple[str, str]]:
    try:
        check()
    except InvalidInputError as error:
        yield place, str(error)


def _faults_of_numbers(manifest: Manifest) -> Iterator[tuple[str, str]]:
    for label in ("loss", "duplicate", "reorder"):
        if not 0 <= getattr(manifest.weather, label) < 1:
            yield f"weather.{label}", "a share from 0 to below 1"
    for number, poster in enumerate(manifest.posters):
        if not (0 <= poster.posts * poster.rows <= MAX_ROWS and poster.keys > 0):
            yield f"posters[{number}]", f"0 to {MAX_ROWS} rows, of one key or more"
