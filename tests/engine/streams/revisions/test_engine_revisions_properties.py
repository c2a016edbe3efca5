"""For any posts, revisions, query, cut into epochs and restart, the stable output with its
revisions equals the query's result over the revised sources; and the revisions do not depend on the
cut."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from reference_networks import queries
from revised_epochs import (
    DENSE,
    HISTORY_US,
    SCHEMAS,
    SLACK_US,
    Act,
    Model,
    acts,
    after,
    as_rows,
    entry_of,
)

from examples import examples
from medusa.engine.objects.query import Query
from medusa.engine.objects.schema import END, REVISION_KIND
from medusa.engine.reference.executor import Costs, ReferenceExecutor
from medusa.engine.reference.interpreter import canonical, run_query
from medusa.engine.streams.config import EngineConfig, SourceConfig
from medusa.engine.streams.ipc import encode
from medusa.engine.streams.log.stream_log import StreamLog
from medusa.engine.streams.messages import Post
from medusa.engine.streams.revisions.columns import (
    folded,
    request_schema,
    revisions_entry,
    revisions_name,
)
from medusa.engine.streams.source.acceptance import Writer
from medusa.engine.streams.source.leader import Leader, open_leader
from medusa.engine.streams.source.post_request import PostRequest
from medusa.engine.tasks.network import Network
from medusa.engine.tasks.plan import Task
from medusa.engine.tasks.revisions.runner import runner_of
from medusa.overlay.events import Events


class Reach(NamedTuple):
    """How far back a source can be corrected, by revisions and by late tuples."""

    history_us: int = HISTORY_US
    lateness_us: int = 0


PLAIN_REACH = Reach()


class Plant:
    """The sources, their logs and the tasks, over restarts."""

    def __init__(self, folder: Path, query: Query, epoch_rows: int, reach: Reach) -> None:
        self.folder = folder
        self.history_us, self.lateness_us = history_us, lateness_us = reach
        inputs = {n: entry_of(schema, history_us, lateness_us) for n, schema in SCHEMAS.items()}
        beside = [revisions_entry(each) for each in inputs.values() if each.is_revised]
        self.network = Network(query, {**inputs, **{each.stream.name: each for each in beside}})
        self.tasks = self.network.tasks()
        self.config = EngineConfig(epoch_rows=epoch_rows)
        self.homes: dict[str, Leader] = {}
        self.logs: dict[str, StreamLog] = {}
        self.runners: list[Any] = []
        self._closing = AsyncExitStack()
        self._posts: Counter[str] = Counter()

    async def open(self) -> None:
        self._closing = AsyncExitStack()
        for name, schema in SCHEMAS.items():
            leader = await self._closing.enter_async_context(
                open_leader(
                    self.folder / name,
                    name,
                    schema,
                    SourceConfig(slack_us=SLACK_US, lateness_us=self.lateness_us),
                    history_us=self.history_us,
                    now=0.0,
                )
            )
            self.homes[name] = leader
            self.logs[name] = leader.logs.stream
            if leader.logs.revisions is not None:
                self.logs[revisions_name(name)] = leader.logs.revisions
        for task in self.tasks:
            log = StreamLog.open(
                self.folder / task.output / "log",
                task.output_schema.derived,
                history_us=self.history_us,
            )
            self._closing.callback(log.close)
            self.logs[task.output] = log
        executor = ReferenceExecutor(Costs())
        self.runners = [
            runner_of(
                task,
                inputs={name: self.logs[name] for name in task.inputs},
                output=self.logs[task.output],
                executor=executor,
                config=self.config,
                events=Events(),
            )
            for task in self.tasks
        ]
        for runner in self.runners:
            runner.inputs.hold()

    async def close(self) -> None:
        await self._closing.aclose()

    async def take(self, act: Act, *, end: bool = False) -> list[int]:
        self._posts[act.stream] += 1
        number = self._posts[act.stream]
        leader, schema = self.homes[act.stream], SCHEMAS[act.stream]
        if act.revised:
            shape = request_schema(schema).payload
            request = [
                {REVISION_KIND: kind, **(new if kind == "REPLACEMENT" else {"b": new["b"]})}
                for kind, new in act.revised
            ]
            body = encode(pa.Table.from_pylist(request, schema=shape))
            posted = await leader.revise(
                PostRequest(Writer("p"), Post(number, revisions=True), body),
                history_us=self.history_us,
                now=0.0,
            )
            return list(posted.missed)
        body = encode(pa.Table.from_pylist(act.rows, schema=schema.payload)) if act.rows else b""
        await leader.post(
            PostRequest(Writer("p"), Post(number, boundary=act.promise, end=end), body), now=0.0
        )
        return []

    async def move(self, what: int) -> None:
        """Let some leader, or some task, make progress."""
        names = [*self.homes, *self.tasks]
        which = what % len(names)
        if which < len(self.homes):
            await list(self.homes.values())[which].advance(0.0)
        else:
            runner = self.runners[which - len(self.homes)]
            await runner._run_epoch()
            for log in self.logs.values():
                log.upkeep.retain(0.0)

    async def finish(self) -> None:
        for name in self.homes:
            await self.take(Act(name), end=True)
            await self.homes[name].advance(0.0)
        for runner in self.runners:
            while self.logs[runner.task.output].boundary < END:
                await runner._run_epoch()

    def logged(self, name: str) -> pa.Table:
        log = self.logs[name]
        with log.reader.pinned(log.start, log.boundary) as paths:
            tables = [pq.ParquetFile(path).read(use_threads=False) for path in paths]
        shape = _plain(log.schema)
        return pa.concat_tables([shape.empty_table(), *(table.cast(shape) for table in tables)])


def _plain(schema: pa.Schema) -> pa.Schema:
    return pa.schema([pa.field(each.name, each.type) for each in schema])


@dataclass(frozen=True)
class Schedule:
    """When leaders and tasks make progress: the listed ones after each act; -1: all restart."""

    moves: list[list[int]]
    epoch_rows: int


schedules = st.builds(
    Schedule,
    st.lists(st.lists(st.integers(-1, 30), max_size=5), min_size=12, max_size=12),
    st.sampled_from([1, 7, 1000]),
)


async def carried_out(
    query: Query, done: Sequence[Act], schedule: Schedule, models: Mapping[str, Model], reach: Reach
) -> tuple[dict[str, pa.Table], tuple[Task, ...]]:
    """Carry out the schedule; return the logs at the end."""
    with TemporaryDirectory() as folder:
        plant = Plant(Path(folder), query, schedule.epoch_rows, reach)
        await plant.open()
        try:
            for act, moves in zip(done, cycle(schedule.moves), strict=False):
                assert await plant.take(act) == models[act.stream].take(act)
                for what in moves:
                    if what < 0:
                        await plant.close()
                        await plant.open()
                    else:
                        await plant.move(what)
            await plant.finish()
            return {name: plant.logged(name) for name in plant.logs}, plant.tasks
        finally:
            await plant.close()


@settings(max_examples=60)
@given(queries(), st.lists(acts, max_size=12), schedules, schedules)
def test_any_query(query: Query, done: list[Act], first: Schedule, second: Schedule) -> None:
    check(query, done, first, second)


@st.composite
def dense_acts(draw: st.DrawFn, back: int = 5) -> list[Act]:
    """Draw tuples of few keys close together, a boundary that follows them, and revisions
    throughout. back: how far revisions may reach back."""
    found: list[Act] = []
    for now in range(0, 60, 10):
        payload = st.fixed_dictionaries(
            {
                "a": st.integers(0, 9),
                "b": st.integers(0, 5),
                "c": st.sampled_from(["x", "y"]),
                "d": st.just(0.5),
                "t": st.integers(now - back, now + 15),
            }
        )
        stream = draw(st.sampled_from(["s0", "s0", "s1"]))
        found.append(Act(stream, draw(st.lists(payload, max_size=4))))
        if draw(st.booleans()):
            revision = st.tuples(st.sampled_from(["DELETION", "REPLACEMENT"]), payload)
            found.append(Act("s0", [], draw(st.lists(revision, min_size=1, max_size=3))))
        found += [Act(name, [], [], now + draw(st.integers(-9, 3))) for name in SCHEMAS]
    return found


@settings(max_examples=examples(15, soak=60))
@given(dense_acts(), schedules, schedules)
def test_dense_revisions(done: list[Act], first: Schedule, second: Schedule) -> None:
    check(DENSE, done, first, second)


@settings(max_examples=examples(15, soak=60))
@given(dense_acts(), schedules, schedules, st.integers(5, 40))
def test_tuples_behind_the_history_are_out_of_reach(
    done: list[Act], first: Schedule, second: Schedule, history_us: int
) -> None:
    check(DENSE, done, first, second, Reach(history_us))


@settings(max_examples=examples(20, soak=80))
@given(queries(), st.lists(acts, max_size=12), schedules, schedules, st.integers(1, 60))
def test_late_tuples_of_any_query(
    query: Query, done: list[Act], first: Schedule, second: Schedule, lateness_us: int
) -> None:
    """Tuples within the lateness are inserted, in a stream with a key and in one without."""
    check(query, done, first, second, Reach(lateness_us=lateness_us))


@settings(max_examples=examples(15, soak=60))
@given(dense_acts(back=30), schedules, schedules, st.integers(1, 25))
def test_late_tuples_among_dense_revisions(
    done: list[Act], first: Schedule, second: Schedule, lateness_us: int
) -> None:
    check(DENSE, done, first, second, Reach(lateness_us=lateness_us))


def check(
    query: Query, done: Sequence[Act], first: Schedule, second: Schedule, reach: Reach = PLAIN_REACH
) -> None:
    models = {name: Model(*reach) for name in SCHEMAS}
    logs, tasks = trio.run(carried_out, query, done, first, models, reach)

    def since(name: str) -> int:
        """Return the time before which the log need not have tuples."""
        of = [name, revisions_name(name), *SCHEMAS, *map(revisions_name, SCHEMAS)]
        times = [time for n in of if n in logs for time in logs[n].column("stime").to_pylist()]
        return max(times, default=0) - reach.history_us

    expected = run_query(
        query,
        {name: model.rows for name, model in models.items()},
        Network(query, {name: entry_of(schema) for name, schema in SCHEMAS.items()}).schemas(),
    )
    outputs = {task.output for task in tasks}
    for task in tasks:
        if task.of is not None:
            continue
        beside = revisions_name(task.output)
        found = folded(logs[task.output], [logs[beside]] if beside in outputs else [])
        rows = canonical(as_rows(found), task.output_schema)
        earliest = since(task.output)
        assert after(rows, earliest) == after(expected[task.output], earliest), task.output
    for stream, model in models.items():
        if (beside := revisions_name(stream)) in logs:
            source = folded(logs[stream], [logs[beside]])
            known = [{name: row[name] for name in source.column_names} for row in model.rows]
            assert after(as_rows(source), since(stream)) == after(known, since(stream))
    models = {name: Model(*reach) for name in SCHEMAS}
    again, _ = trio.run(carried_out, query, done, second, models, reach)
    for name, table in logs.items():
        state = since(name.removesuffix("/revisions"))
        assert after(table.to_pylist(), state) == after(again[name].to_pylist(), state), name
