"""Runs the task that makes a stream's revisions, like any other, from its output's boundary.

An epoch without revisions is empty and costs no job. It reads each revised window again as a whole,
from the logs of the inputs, which are kept for as long as their tuples may be revised.
`medusa.engine.tasks.revisions.scenarios` computes the changes.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from itertools import count
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import trio

from medusa.engine.objects.schema import BEGINNING, END, REVISED_STIME, SCENARIO, STIME
from medusa.engine.operators.shared.step import Interval, Windows
from medusa.engine.streams.config import EngineConfig
from medusa.engine.streams.log.epochs import write_rows
from medusa.engine.streams.log.stream_log import StreamLog
from medusa.engine.streams.revisions.columns import SIGN, revisions_name, signed
from medusa.engine.streams.revisions.resolving import read_rows
from medusa.engine.tasks.execution import Executor, Result
from medusa.engine.tasks.inputs import TaskInputs
from medusa.engine.tasks.jobs import EpochJobs, Jobs
from medusa.engine.tasks.plan import Task
from medusa.engine.tasks.revised_tasks import numbered_inputs, scenario_task
from medusa.engine.tasks.revisions.scenarios import (
    POSITION,
    Revised,
    Scenarios,
    apart,
    contents,
    joined_contents,
    revised_runs,
    revised_windows,
)
from medusa.engine.tasks.runner import TaskRunner
from medusa.engine.tasks.windows import whole_after
from medusa.overlay.events import Events
from medusa.overlay.files import storing

JOB_ROWS: Final = 2**20
"""Tuples of one job, about: a revision of a long window in every epoch must not fill the memory
with copies of the window."""

FOLDER: Final = "scenarios-"
"""The prefix of the folders with a job's input, beside the output's log."""

Shaped = Callable[[pa.Table], pa.Table]


def runner_of(
    task: Task,
    *,
    inputs: Mapping[str, StreamLog],
    output: StreamLog,
    executor: Executor,
    config: EngineConfig,
    events: Events,
) -> TaskRunner:
    """The runner of a task.

    Args:
        inputs: the log of each input stream. output: the log to which it appends.
    """
    reads = TaskInputs(task, inputs, output)
    jobs: Jobs = EpochJobs(reads, executor)
    if task.of is not None:
        jobs = RevisionJobs(reads, task.of, executor, events)
    return TaskRunner(reads, jobs, executor=executor, config=config, events=events)


class RevisionJobs:
    """The jobs of a task that makes the revisions of another task's output.

    Args:
        of: the other task.
    """

    def __init__(self, inputs: TaskInputs, of: Task, executor: Executor, events: Events) -> None:
        self._reads = inputs
        self._inputs = inputs.logs
        self._output = inputs.output
        self._events = events
        self._of = of
        self._main = of.inputs if of.has_state else ()
        self._revisions = inputs.task.inputs[len(self._main) :]
        case = scenario_task(self._of)
        self._computation = executor.compile(case)
        numbered = numbered_inputs(self._of)
        self._shapes = {
            name: _plain(schema.source if name in numbered else schema.derived)
            for name, schema in zip(case.inputs, case.input_schemas, strict=True)
        }
        self._shape = self._shapes[case.inputs[0]]
        # for each input of the task that computes the cases: the streams whose tuples it has
        joined = self._of.sided
        self._sides: dict[str, tuple[str, ...]] = {name: (name,) for name in case.inputs}
        if not joined:
            self._sides = {case.inputs[0]: self._main}
        self._case_schema = case.output_schema.derived
        # left by a process that has died
        for path in self._output.folder.parent.glob(f"{FOLDER}*"):
            shutil.rmtree(path, ignore_errors=True)
        self._jobs = count()

    @property
    def task(self) -> Task:
        """The task in its present form."""
        return self._reads.task

    def begins(self) -> int:
        return max(self.task.after, *(self._inputs[name].start for name in self._revisions))

    def interval(self, after: int, upto: int) -> Interval | None:
        """The interval of the inputs; None if there are no revisions for (after, upto]."""
        since = _minus(after, self._of.span_us)
        logs = [self._inputs[name] for name in self._revisions]
        if not any(
            log.reader.count(max(since, log.start), min(upto, log.boundary)) for log in logs
        ):
            return None
        history_us = self.task.history_us if self._of.has_state else 0
        return Interval(_minus(since, history_us), upto)

    async def run(self, after: int, upto: int, interval: Interval) -> Result:
        if self._of.near is not None:
            return await self._near(after, interval)
        window = self._of.windows
        signed_rows = partial(self._signed, self._shape)
        revisions = await self._read(self._revisions, interval.lo, upto, signed_rows)
        if window is None:
            cases, tuples = apart(revisions.filter(pc.greater(revisions.column(POSITION), after)))
            made = [await self._compute_cases(tuples.cast(self._shape), 1)]
        else:
            cases = Scenarios()
            made = await self._compute_windows(cases, window, revisions, after, upto)
        empty = self._case_schema.empty_table()
        changes = cases.changes([empty, *(r.table for r in made)], self.task.output_schema)
        return Result(changes, sum(result.cpu_s for result in made))

    async def _compute_windows(
        self,
        cases: Scenarios,
        window: Windows,
        revisions: pa.Table,
        after: int,
        upto: int,
    ) -> list[Result]:
        made: list[Result] = []
        waiting: list[pa.Table] = []
        rows, left_out = 0, 0
        start = max(self._inputs[name].start for name in self._main)
        # panes begin with the first whole pane
        begins = whole_after(self._of, _plus(self.task.after, window.grain_us - 1))
        revised = revised_windows(revisions, window, after, upto)
        whole = [each for each in revised if each.end > begins]
        for run in _runs(whole, window.size_us):
            lo, hi = run[0].end - window.size_us, run[-1].end
            tuples = await self._read(
                self._main, max(lo, start), min(hi, upto), partial(_tuples, self._shape)
            )
            for each in run:
                if each.end - window.size_us + window.grain_us <= start:
                    left_out += 1  # the tuples were dropped, or this peer never had them
                    continue
                for part in contents(cases, each, window.size_us, tuples, revisions, after=after):
                    waiting.append(part.cast(self._shape))
                    rows += part.num_rows
                if rows >= JOB_ROWS:
                    made.append(
                        await self._compute_cases(pa.concat_tables(waiting), window.size_us)
                    )
                    waiting, rows = [], 0
        if waiting:
            made.append(await self._compute_cases(pa.concat_tables(waiting), window.size_us))
        if left_out:
            text = f"left {left_out} windows of {self.task.name} from before {start} unrevised"
            self._events.note("warning", f"{text}: their tuples are gone")
        return made

    async def _compute_cases(self, tuples: pa.Table, size_us: int) -> Result:
        """The task's results over these tuples, case by case.

        Args:
            size_us: the size of a window: the stime of a result is at most `size_us - 1` after that
                of its tuples.
        """
        if not tuples.num_rows:
            return Result(self._case_schema.empty_table(), 0.0)
        if not self._of.steps:
            return Result(tuples.select(self._case_schema.names).cast(self._case_schema), 0.0)
        ends = pc.min_max(tuples.column(STIME))
        lo, hi = ends["min"].as_py() - 1, ends["max"].as_py() + size_us - 1
        return await self._results({self._of.inputs[0]: tuples}, Interval(lo, hi))

    async def _results(self, inputs: Mapping[str, pa.Table], interval: Interval) -> Result:
        """The task's results over these inputs, which are within the interval."""
        folder = self._output.folder.with_name(f"{FOLDER}{next(self._jobs)}")
        try:
            files: dict[str, list[Path]] = {}
            for number, (name, tuples) in enumerate(inputs.items()):
                path = folder / f"input{number}.parquet"
                await trio.to_thread.run_sync(_write, path, tuples)
                files[name] = [path]
            return await self._computation.run(files, interval.lo, interval.hi, interval)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    async def _near(self, after: int, interval: Interval) -> Result:
        """The revisions, with positions in (after, interval.hi], of results that depend on tuples
        near each other."""
        upto, span = interval.hi, self._of.span_us
        since = _minus(after, span)
        revisions = await self._signed_by_input(interval)
        start = max(self._inputs[name].start for name in self._main)
        cases, made, left_out = Scenarios(), [], 0
        for run in revised_runs(list(revisions.values()), span, since):
            if run.first - span <= start and start > BEGINNING:
                left_out += 1  # tuples on which its results depend were dropped
                continue
            lo, hi = run.first - span - 1, min(run.last + span, upto)
            tuples = {
                name: await self._read(
                    streams, max(lo, start), hi, partial(_tuples, self._shapes[name])
                )
                for name, streams in self._sides.items()
            }
            found = joined_contents(cases, run, span, tuples, revisions, since=since)
            inputs = {name: each.cast(self._shapes[name]) for name, each in found.items()}
            if any(each.num_rows for each in inputs.values()):
                made.append(await self._results(inputs, Interval(lo, hi)))
        if left_out:
            text = f"left {left_out} parts of {self.task.name} from before {start} unrevised"
            self._events.note("warning", f"{text}: their tuples are gone")
        empty = self._case_schema.empty_table()
        changes = cases.changes([empty, *(each.table for each in made)], self.task.output_schema)
        at = changes.column(STIME)
        due = changes.filter(pc.and_(pc.greater(at, after), pc.less_equal(at, upto)))
        return Result(due, sum(each.cpu_s for each in made))

    async def _signed_by_input(self, interval: Interval) -> dict[str, pa.Table]:
        """The signed revisions of each input."""
        found = {}
        for name, streams in self._sides.items():
            shape = self._shapes[name]
            beside = map(revisions_name, streams)
            names = [each for each in beside if each in self._revisions]
            if names:
                shaped = partial(self._signed, shape)
                found[name] = await self._read(names, interval.lo, interval.hi, shaped)
            else:
                found[name] = _none_signed(shape)
        return found

    async def _read(self, names: Sequence[str], after: int, upto: int, shaped: Shaped) -> pa.Table:
        """The rows of some inputs with after < stime <= upto, converted by `shaped`."""
        with ExitStack() as pins:
            held: Mapping[str, tuple[StreamLog, list[Path]]] = {
                name: (
                    log,
                    pins.enter_context(log.reader.pinned(max(after, log.start), upto)),
                )
                for name in names
                for log in [self._inputs[name]]
            }
            read = partial(_read_all, held, after, upto, shaped)
            return await trio.to_thread.run_sync(read)

    def _signed(self, shape: pa.Schema, rows: pa.Table) -> pa.Table:
        rows = rows.filter(pc.greater(rows.column(REVISED_STIME), self.task.after))
        tuples = signed(rows)
        extra = {SIGN: tuples.column(SIGN), POSITION: rows.column(STIME)}
        table = _tuples(shape, tuples)
        for name, column in extra.items():
            table = table.append_column(name, column)
        return table


def _tuples(shape: pa.Schema, rows: pa.Table) -> pa.Table:
    names = [name for name in shape.names if name != SCENARIO]
    return rows.select(names).cast(pa.schema([shape.field(name) for name in names]))


def _none_signed(shape: pa.Schema) -> pa.Table:
    """An empty table of revisions."""
    fields = [shape.field(name) for name in shape.names if name != SCENARIO]
    extra = [pa.field(SIGN, pa.int64()), pa.field(POSITION, pa.int64())]
    return pa.schema([*fields, *extra]).empty_table()


def _read_all(
    held: Mapping[str, tuple[StreamLog, list[Path]]], after: int, upto: int, shaped: Shaped
) -> pa.Table:
    parts = [
        shaped(rows)
        for log, paths in held.values()
        for rows in [*read_rows(paths, log.schema, after, upto), log.schema.empty_table()]
    ]
    table = pa.concat_tables(parts).combine_chunks()
    # the sort is stable: tuples of one stime keep the order of their log, where it matters
    return table.take(pc.array_sort_indices(table.column(STIME).combine_chunks()))


def _write(path: Path, tuples: pa.Table) -> None:
    with storing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_rows(tuples, path)


def _runs(windows: Sequence[Revised], size_us: int) -> Iterator[list[Revised]]:
    """Windows in groups that overlap or touch."""
    run: list[Revised] = []
    for window in windows:
        if run and window.end - size_us > run[-1].end:
            yield run
            run = []
        run.append(window)
    if run:
        yield run


def _plus(boundary: int, span: int) -> int:
    return boundary if boundary in {BEGINNING, END} else min(END, boundary + span)


def _minus(boundary: int, span: int) -> int:
    return boundary if boundary in {BEGINNING, END} else max(BEGINNING, boundary - span)


def _plain(schema: pa.Schema) -> pa.Schema:
    return pa.schema([pa.field(each.name, each.type) for each in schema])
