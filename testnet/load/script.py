"""The script of the load demonstration: peers, their questions, their traffic, and the contracts.

All sizes are in tasks: the speed of the traffic is chosen so that a task's load is `TASK_UNITS` on
the present machine, so the course is the same on fast and slow machines.

Each standing question is a part of the papers' intrusion query over one stream of connections, with
a threshold of its own; windows are 60 s, tumbling, aligned to the epoch. DuckDB answers the same
questions in one batch; it shares only the threshold with the engine.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import trio

from medusa.engine.objects.definitions import ANY, StreamDefinition
from medusa.testnet.connections.query import HISTORY_US, Row, source_schema
from medusa.testnet.kit.answers import tuples_in
from medusa.testnet.kit.peers import CONFIG
from medusa.testnet.kit.traffic import POST_ROWS, TICK_S
from medusa.tools.client.async_client import AsyncMedusaClient

WINDOW_S: Final = 60


class Kind(StrEnum):
    """The kinds of questions.

    Each asks which addresses exceed its limit. BUSY: of connections. SCAN: of destination ports.
    SWEEP: of destination addresses. TARGET: of addresses that connect to a destination.
    """

    BUSY = "busy"
    SCAN = "scan"
    SWEEP = "sweep"
    TARGET = "target"


_AGGREGATES: Final = {
    Kind.BUSY: ("count()", "src_ip"),
    Kind.SCAN: ("count_distinct(dst_port)", "src_ip"),
    Kind.SWEEP: ("count_distinct(dst_ip)", "src_ip"),
    Kind.TARGET: ("count_distinct(src_ip)", "dst_ip"),
}
"""The function and the key of the aggregate box, by the kind of question."""

_SQL: Final = {
    Kind.BUSY: ("count(*)", "src_ip"),
    Kind.SCAN: ("count(DISTINCT dst_port)", "src_ip"),
    Kind.SWEEP: ("count(DISTINCT dst_ip)", "src_ip"),
    Kind.TARGET: ("count(DISTINCT src_ip)", "dst_ip"),
}


@dataclass(frozen=True, slots=True)
class Watch:
    """One standing question of one participant: a query of one task.

    Attributes:
        owner: the participant. sensor: the number of the stream that it reads, from 0.
        number: the number of the question among those of its kind, from 1.
        threshold: values above it are reported.
    """

    owner: str
    sensor: int
    kind: Kind
    number: int
    threshold: int

    @property
    def query(self) -> str:
        return f"medusa://{self.owner}/watch/{self.kind}{self.number}"

    @property
    def answer(self) -> str:
        """The name of the output stream, which is its task's name."""
        return f"medusa://{self.owner}/{self.kind}{self.number}"

    def document(self, source: str) -> str:
        """The query as XML, over a stream of connections."""
        function, key = _AGGREGATES[self.kind]
        return f"""\
<query name="{self.query}">
  <box name="count" type="aggregate">
    <input port="1" stream="{source}"/>
    <output port="1" stream="{self.query}/all"/>
    <param name="aggregate-function.0" value="{function}"/>
    <param name="aggregate-function-output-name.0" value="n"/>
    <param name="window-size" value="{WINDOW_S}"/>
    <param name="advance" value="{WINDOW_S}"/>
    <param name="group-by" value="{key}"/>
  </box>
  <box name="above" type="filter">
    <input port="1" stream="{self.query}/all"/>
    <output port="1" stream="{self.answer}"/>
    <param name="expression.0" value="n > {self.threshold}"/>
  </box>
</query>"""

    def rows_of(self, table: pa.Table) -> list[Row]:
        """An epoch of the answer as (window's start in seconds, address, number)."""
        columns = ("window_start", _AGGREGATES[self.kind][1], "n")
        return [(start // 1_000_000, *row) for start, *row in tuples_in(table, columns)]


_THRESHOLDS: Final = {Kind.BUSY: 100, Kind.SCAN: 10, Kind.SWEEP: 12, Kind.TARGET: 30}
"""The papers' thresholds for the first question of a kind; each further one has a slightly lower
one."""


def watches_of(owner: str, count: int, sensors: int) -> tuple[Watch, ...]:
    """Return `count` questions of a participant; kinds and sensors take turns."""
    kinds = tuple(Kind)
    found = []
    for index in range(count):
        turn, kind = index // len(kinds) + 1, kinds[index % len(kinds)]
        sensor = (index + turn) % sensors
        found.append(Watch(owner, sensor, kind, turn, max(_THRESHOLDS[kind] // turn, 1)))
    return tuple(found)


def expected(tables: Iterable[pa.Table], watches: Sequence[Watch]) -> dict[Watch, list[Row]]:
    """The answer to each question over all given connections, sorted."""
    needed = {"ts": pa.float64(), "src_ip": pa.string(), "dst_ip": pa.string()}
    types = pa.schema([*needed.items(), ("dst_port", pa.int32())])
    batches = (batch for table in tables for batch in table.select(types.names).to_batches())
    with duckdb.connect() as database:
        database.register(
            "posted",
            pa.RecordBatchReader.from_batches(types, (batch.cast(types) for batch in batches)),
        )
        database.execute("CREATE TABLE conns AS SELECT * FROM posted")
        return {watch: sorted(database.execute(_statement(watch)).fetchall()) for watch in watches}


def _statement(watch: Watch) -> str:
    function, key = _SQL[watch.kind]
    # floor(ts) is exact, and so is its quotient's floor.
    return f"""
        SELECT CAST(floor(floor(ts) / {WINDOW_S}) AS BIGINT) * {WINDOW_S} AS window_start,
               {key}, {function} AS n
        FROM conns GROUP BY ALL HAVING n > {watch.threshold}"""  # noqa: S608 - our own words


class Tape:
    """A trace that repeats from its beginning, later by whole windows, so that every round gives
    the same answers at other times.

    Args:
        trace: connections by ascending ts; at least one.
        ahead: seconds of trace that come at once.
    """

    def __init__(self, trace: pa.Table, ahead: float = 0.0) -> None:
        self._trace = trace.combine_chunks()
        self._times: list[float] = trace.column("ts").to_pylist()
        self._start = math.floor(self._times[0] / WINDOW_S) * WINDOW_S
        end = math.floor(self._times[-1] / WINDOW_S + 1) * WINDOW_S
        self._span = end - self._start
        self._next = 0
        self._round = 0
        self._at = ahead

    def forward(self, seconds: float) -> Iterator[pa.Table]:
        """The connections of the next `seconds` of trace, in parts of the size of posts."""
        self._at += seconds
        while self._at >= (self._round + 1) * self._span:
            yield from self._upto(len(self._times))
            self._round, self._next = self._round + 1, 0
        until = self._start + self._at - self._round * self._span
        yield from self._upto(bisect.bisect_left(self._times, until))

    def _upto(self, end: int) -> Iterator[pa.Table]:
        for first in range(self._next, end, POST_ROWS):
            part = self._trace.slice(first, min(POST_ROWS, end - first))
            later = pc.add(part.column("ts"), float(self._round * self._span))
            yield part.set_column(0, "ts", later).cast(part.schema)
        self._next = max(self._next, end)


class Player:
    """Posts a tape to a stream until `end`.

    Attributes:
        speed: seconds of trace per second; may be changed at any time.
        posted: the posted connections, for the batch run; they share their memory with the trace.
    """

    def __init__(
        self,
        tape: Tape,
        client: AsyncMedusaClient,
        stream: str,
        speed: float,
        count: Callable[[int], None] = lambda rows: None,
    ) -> None:
        """count: called with the rows of each post."""
        self.speed = speed
        self.posted: list[pa.Table] = []
        self._tape = tape
        self._client = client
        self._stream = stream
        self._count = count
        self._ending = trio.Event()

    def end(self) -> None:
        """Stop posting, and end the stream."""
        self._ending.set()

    async def run(self) -> None:
        """Play until `end`.

        Raises:
            MedusaError: a post has failed for good.
        """
        due = trio.current_time()
        while not self._ending.is_set():
            for part in self._tape.forward(self.speed * TICK_S):
                await self._client.post_event(self._stream, part)
                self.posted.append(part)
                self._count(part.num_rows)
            # time lost by a slow peer is not made up for
            due = max(due + TICK_S, trio.current_time())
            with trio.move_on_at(due):
                await self._ending.wait()
        await self._client.post_event(self._stream, None, end=True)
        await self._client.flush()


TASK_UNITS: Final = 2.5
"""Initial load of a task: four peers full of such tasks, and all other work, leave a part of two
cores free."""
SENSORS: Final = 2
"""Streams of connections of each participant. A task works when a window closes, and all tasks of
one stream do so at once. So the windows of the streams close in turn, to avoid waves of load."""


@dataclass(frozen=True, slots=True)
class Place:
    """One peer.

    Attributes:
        letter: its name in the papers. tasks: the number of its own tasks.
        room: its declared capacity, in tasks of `TASK_UNITS`.
    """

    letter: str
    participant: str
    tasks: int
    room: float

    @property
    def watches(self) -> tuple[Watch, ...]:
        return watches_of(self.participant, self.tasks, SENSORS)

    def stream(self, sensor: int) -> StreamDefinition:
        """The stream of a sensor, from 0; every member may read it."""
        return StreamDefinition(
            name=f"medusa://{self.participant}/sensor{sensor + 1}",
            schema=source_schema(self.participant),
            readers=(ANY,),
            history_us=HISTORY_US,
            max_ahead_us=None,
        )

    @property
    def capacity(self) -> float:
        """Units of 1 % of a core."""
        return self.room * TASK_UNITS

    @property
    def menu(self) -> str:
        """The peer's menu for others: any task, up to its capacity."""
        return str(math.ceil(self.capacity))

    @property
    def config(self) -> str:
        """The peer's medusa.toml."""
        return f"{CONFIG}\n[engine]\ncapacity_cores = {self.capacity / 100:.4f}\n"


A: Final = Place("A", "mit.edu", tasks=16, room=10.0)
B: Final = Place("B", "utah.edu", tasks=6, room=10.0)
C: Final = Place("C", "brown.edu", tasks=5, room=10.0)
D: Final = Place("D", "brandeis.edu", tasks=1, room=12.0)
"""A has 6 tasks too many, B has room for 4 and C for 5: neither alone is enough for A."""

AHEAD_S: Final = WINDOW_S / SENSORS
"""Seconds of trace by which a sensor's traffic is ahead of the one before it."""

FOUNDERS: Final = (A, B, C)
EVERYBODY: Final = (A, B, C, D)

RAISE: Final = 1.5
"""Factor of each increase of B's traffic."""
RAISES: Final = 4
"""Increases at most: with more than some windows in an epoch, more speed is hardly more load."""
OVERLOAD: Final = 1.12
"""The traffic rises until all loads together are this many times all capacities. D brings room for
more."""

PRICE: Final = 1.0
"""Money per unit of load and second in the contracts of A, B and C."""
CHEAPER: Final = 0.8
"""D's price as a share of `PRICE`, as on the papers' poster."""
RANGE_TASKS: Final = 2
"""Width of the price range, in tasks: at one fixed price load cannot flow through a full peer."""


@dataclass(frozen=True, slots=True)
class Agreement:
    """A contract: load may move in both directions at up to that price."""

    one: Place
    other: Place
    price: float

    def proposal(self) -> tuple[str, ...]:
        """The arguments of `medusa-peer` that propose it."""
        return (
            *("contract", "propose", "--to", self.other.participant),
            *("--price", f"{self.price:.6f}", "--tasks", str(RANGE_TASKS)),
            *("--task-load", f"{TASK_UNITS:g}", "--capacity", f"{self.one.capacity:g}"),
            *("--runs", self.one.menu, "--they-run", self.other.menu),
            *("--valid-for", "1d", "--json"),
        )


AMONG_FOUNDERS: Final = (Agreement(A, B, PRICE), Agreement(A, C, PRICE), Agreement(B, C, PRICE))
WITH_D: Final = Agreement(C, D, PRICE * CHEAPER)


@dataclass(frozen=True, slots=True)
class Script:
    """The course of a run.

    Attributes:
        founders: the initial peers, with these agreements.
        whole: all four steps; else only the first.
        warm_s: seconds after the first tasks have worked: a JVM is slow at its start.
        rounds: how often the traffic's speed is corrected at most.
        hold_s: seconds for which a step must stay acceptable.
    """

    founders: tuple[Place, ...]
    agreements: tuple[Agreement, ...]
    whole: bool
    warm_s: float
    rounds: int
    hold_s: float = 10.0


FULL: Final = Script(FOUNDERS, AMONG_FOUNDERS, whole=True, warm_s=20.0, rounds=4)

_SHORT_A: Final = Place("A", "mit.edu", tasks=8, room=5.0)
_SHORT_B: Final = Place("B", "utah.edu", tasks=1, room=8.0)
SHORT: Final = Script(
    (_SHORT_A, _SHORT_B),
    (Agreement(_SHORT_A, _SHORT_B, PRICE),),
    whole=False,
    warm_s=10.0,
    rounds=2,
)
"""A has 3 tasks too many, and B has room for 7."""
