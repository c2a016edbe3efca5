"""The property behind modifications: up to T every output is that of one batch run with the old
parameters, after T that of one with the new ones; for every cut of the epochs, every number of
modifications and restarts, and any retention."""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pyarrow as pa
import trio
from hypothesis import event, given, settings
from hypothesis import strategies as st
from modified_queries import chains, folded, other_box, stored_query
from reference_networks import SOURCES, queries, rows

from examples import LARGE_DATA, examples
from medusa.engine.evaluation.expressions import Row
from medusa.engine.language.check import check_query
from medusa.engine.language.folding import widths
from medusa.engine.language.modification import BoxChange, modified_query
from medusa.engine.objects.query import Box, Query
from medusa.engine.objects.schema import BEGINNING, END
from medusa.engine.operators.registry import operator_of
from medusa.engine.operators.shared.panes import panes_name
from medusa.engine.reference.executor import Costs, ReferenceExecutor
from medusa.engine.reference.interpreter import run_query
from medusa.engine.replication.records.query_history import modified, settled
from medusa.engine.replication.records.stored_query import StoredQuery
from medusa.engine.streams.config import EngineConfig
from medusa.engine.streams.log.stream_log import StreamLog
from medusa.engine.tasks.network import Network
from medusa.engine.tasks.plan import Task
from medusa.engine.tasks.query_editions import (
    Footing,
    changed,
    earliest,
    made_since,
    succeeded,
    trimmed,
)
from medusa.engine.tasks.revisions.runner import runner_of
from medusa.engine.tasks.runner import TaskRunner
from medusa.overlay.errors import ConflictError, InvalidInputError
from medusa.overlay.events import Events

SPAN = 200
"""All tuples are within -SPAN and SPAN microseconds."""


@dataclass
class Bench:
    """A query's logs and tasks, without any peer.

    Attributes:
        editions: (query, since when) of all editions so far.
        sources: all rows, posted or not.
        read: the results, by task.
    """

    folder: Path
    stored: StoredQuery
    sources: dict[str, list[Row]]
    executor: ReferenceExecutor
    logs: dict[str, StreamLog] = field(default_factory=dict)
    runners: dict[str, TaskRunner] = field(default_factory=dict)
    editions: list[tuple[Query, int]] = field(default_factory=list)
    read: dict[str, list[Row]] = field(default_factory=lambda: defaultdict(list))

    def open(self) -> None:
        """Open the logs again from disk, as after a restart."""
        for log in self.logs.values():
            log.close()
        stored = msgspec.json.decode(msgspec.json.encode(self.stored), type=StoredQuery)
        self.stored = stored
        tasks = stored.network.tasks()
        self.logs = {}
        for name, schema in SOURCES.items():
            self.logs[name] = StreamLog.open(self.folder / name, schema.source, history_us=0)
        for task in tasks:
            schema = task.output_schema.derived
            self.logs[task.name] = StreamLog.open(self.folder / task.name, schema, history_us=0)
        self.runners = {task.name: self._runner(task) for task in tasks}

    def _runner(self, task: Task) -> TaskRunner:
        runner = runner_of(
            task,
            inputs={name: self.logs[name] for name in task.inputs},
            output=self.logs[task.name],
            executor=self.executor,
            config=EngineConfig(epoch_s=0.05),
            events=Events(),
        )
        runner.inputs.hold()
        return runner

    def arrive(self, source: str, upto: int) -> None:
        log = self.logs[source]
        if upto <= log.boundary:
            return
        found = [row for row in self.sources[source] if log.boundary < row["stime"] <= upto]
        log.append(upto, pa.Table.from_pylist(found, schema=log.schema))

    async def run(self, names: Sequence[str]) -> None:
        """Run these tasks as far as their inputs go; then let retention delete all that no hold
        keeps."""
        for name in names:
            log, runner = self.logs[name], self.runners[name]
            while log.boundary < runner.inputs.boundary:
                before = log.boundary
                await runner._run_epoch()  # the steps of `run`, without its pauses
                epoch = log.reader.read(max(before, log.start))
                while epoch is not None:
                    self.read[name] += _rows(epoch.table)
                    epoch = log.reader.read(epoch.upto)
        for log in self.logs.values():
            log.upkeep.retain(0.0)

    @property
    def tasks(self) -> tuple[Task, ...]:
        return tuple(runner.task for runner in self.runners.values())

    @property
    def footing(self) -> Footing:
        given = {name: self.logs[name].boundary for name in self.runners}
        starts = {name: log.start for name, log in self.logs.items()}
        return Footing(given, starts).joined(made_since(self.tasks, self.stored.since))

    def modify(self, query: Query, least: int) -> str:
        """Modify the query; return the outcome."""
        tasks = Network(query, self.stored.inputs, self.stored.kept).tasks()
        names = changed(self.tasks, tasks)
        if not names:
            return "the same"
        known = self.stored.entry.since
        least = max(least, known + 1 if known > BEGINNING else BEGINNING)
        try:
            succeeded(self.tasks, tasks, BEGINNING)
            at = earliest(tasks, names, self.footing, least)
        except (InvalidInputError, ConflictError) as error:
            return "refused: " + ("schema" if "instead of" in str(error) else "boundary")
        made = succeeded(self.tasks, tasks, at)
        self.stored = modified(self.stored, query, at)
        self.editions.append((query, at))
        for task in made:
            self.runners[task.name].modify(task)
        return "modified"

    def settle(self) -> None:
        given = {name: self.logs[name].boundary for name in self.runners}
        stored = settled(self.stored, self.tasks, given)
        gone = self.stored.editions[: len(self.stored.editions) - len(stored.editions)]
        self.stored = stored
        if gone:
            for task in trimmed(self.tasks, gone[-1].upto):
                self.runners[task.name].modify(task)

    def expected(self) -> dict[str, list[Row]]:
        """Return the answers of the interpreter of networks, box by box, edition by edition."""
        panes = {panes_name(name) for name in widths(self.stored.entry.query)}
        made: dict[str, list[Row]] = {name: [] for name in self.runners if name not in panes}
        ends = [since for _, since in self.editions[1:]] + [END]
        for (query, since), upto in zip(self.editions, ends, strict=True):
            schemas = check_query(query, SOURCES)
            answers = run_query(query, self.sources, schemas)
            for name, found in made.items():
                found += [row for row in answers[name] if since < row["stime"] <= upto]
        return made


def dense() -> list[Row]:
    return [
        {"stime": at, "a": at % 7 - 1, "b": at % 5 - 2, "c": None, "d": 0.5, "seq": number}
        for number, at in enumerate(range(-60, 90, 2))
    ]


async def play(
    data: st.DataObject, query: Query, sources: dict[str, list[Row]], folder: Path
) -> None:
    draw = data.draw
    stored = stored_query(query)
    executor = ReferenceExecutor(Costs())
    bench = Bench(folder, stored, sources, executor, editions=[(query, BEGINNING)])
    bench.open()
    cuts = [*sorted(draw(st.lists(st.integers(-60, 90), min_size=2, max_size=8))), END]
    made: list[str] = []
    for cut in cuts:
        for source in SOURCES:
            late = draw(st.booleans()) and cut != END
            bench.arrive(source, cut - (7 if late else 0))
        if cut == END or draw(st.booleans()):
            boxes = {box.name: box for box in bench.stored.entry.query.boxes}
            schemas = check_query(bench.stored.entry.query, SOURCES)
            box = other_box(draw, boxes[draw(st.sampled_from(sorted(boxes)))], schemas)
            if box is not None:
                made.append(_modify(bench, box, draw(st.sampled_from([BEGINNING, cut, cut + 9]))))
        if draw(st.booleans()):
            bench.settle()
        names = [name for name in bench.runners if cut == END or draw(st.booleans())]
        await bench.run(names)
        if draw(st.booleans()):
            bench.open()
    event(", ".join(sorted(set(made))) or "nothing modified")
    for name, wanted in bench.expected().items():
        assert bench.read[name] == wanted, name
        assert bench.logs[name].boundary == END


def _modify(bench: Bench, box: Box, least: int) -> str:
    change = BoxChange(box.name, tuple(operator_of(box).parameters()), whole=True)
    try:
        query = modified_query(bench.stored.entry.query, [change])
        check_query(query, SOURCES)
    except InvalidInputError:
        return "refused: type"
    assert {each.name: each for each in query.boxes}[box.name] == box
    return bench.modify(query, min(least, END - 1))


def _rows(table: pa.Table) -> list[Row]:
    micros = [
        column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column
        for column in table.columns
    ]
    return pa.table(micros, names=table.column_names).to_pylist()


@settings(max_examples=examples(40, soak=150), suppress_health_check=LARGE_DATA)
@given(st.data(), queries(), rows(), rows())
def test_old_up_to_the_boundary_and_new_after_it(
    data: st.DataObject, query: Query, first: list[Row], second: list[Row]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        trio.run(play, data, query, {"s0": first, "s1": second}, Path(folder))


@settings(max_examples=examples(40, soak=150), suppress_health_check=LARGE_DATA)
@given(st.data(), chains())
def test_each_window_over_a_modified_box_is_of_one_edition(
    data: st.DataObject, query: Query
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        trio.run(play, data, query, {"s0": dense(), "s1": []}, Path(folder))


@settings(max_examples=examples(60, soak=300), suppress_health_check=LARGE_DATA)
@given(st.data(), folded())
def test_windows_folded_from_panes_are_of_one_edition(data: st.DataObject, query: Query) -> None:
    with tempfile.TemporaryDirectory() as folder:
        trio.run(play, data, query, {"s0": dense(), "s1": []}, Path(folder))
