"""Runs the task that makes a stream's revisions, like any other, from its output's boundary.

An epoch without revisions is empty and costs no job. Revised windows are read again, each whole,
from the logs of the inputs. Those are held for as long as their tuples may be revised.

What revisions of its input change in an output is sans IO, and vectorised. The output is computed
for scenarios: tuples as they were before some revisions, and as they are after them. The difference
between the results is the revision of the output. All scenarios go through one job; a field has the
scenario's number.

* A task without a window treats each tuple alone. So the deleted tuples of one position are one
  scenario, the inserted ones another.
* A window is computed as it was and as it becomes. Its revision at position p comes out at
  max(p, e), where e is the window's last microsecond. A window that is still open at p comes out
  unrevised, together with its revision.

The position of a change depends on the inputs alone, and so does its content: the difference
between the result with all revisions up to there and the result before. The cut into epochs does
not matter.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from itertools import count, pairwise
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import trio

from engine.objects.schema import (
    BEGINNING,
    END,
    REVISED_STIME,
    REVISION_KIND,
    SCENARIO,
    STIME,
    Schema,
)
from engine.streams.corrections import Kind
from engine.streams.log import StreamLog
from engine.streams.ordering import between
from engine.streams.revisions.columns import SIGN, multiplied, net, signed, with_sign
from engine.streams.revisions.resolving import read_rows
from engine.tasks.execution import Result
from engine.tasks.plan import AggregateStep, Task
from engine.tasks.revisions.tasks import by_arrival, scenario_task
from engine.tasks.runner import TaskRunner
from engine.tasks.windows import Interval, whole_after
from overlay.files import storing

JOB_ROWS: Final = 2**20
"""Tuples of one job, about: a revision of a long window in every epoch must not fill the memory
with copies of the window."""

FOLDER: Final = "scenarios-"
"""Start of the names of the folders with a job's input, beside the output's log."""

Shaped = Callable[[pa.Table], pa.Table]


def runner_of(task: Task, **more: Any) -> TaskRunner:  # noqa: ANN401 - as TaskRunner
    """The runner of a task."""
    return TaskRunner(task, **more) if task.of is None else RevisionRunner(task, **more)


class RevisionRunner(TaskRunner):
    """Drives a task that makes the revisions of another task's output."""

    def __init__(self, task: Task, **more: Any) -> None:  # noqa: ANN401 - as TaskRunner
        super().__init__(task, **more)
        assert task.of is not None, "a task that makes revisions"
        self._of = task.of
        self._main = self._of.inputs if self._of.window is not None else ()
        self._revisions = task.inputs[len(self._main) :]
        case = scenario_task(self._of)
        self._computation = self._executor.compile(case)
        ordered = by_arrival(self._of)
        self._shape = _plain(
            case.input_schemas[0].source if ordered else case.input_schemas[0].derived
        )
        self._case_schema = case.output_schema.derived
        for path in self._output.folder.parent.glob(f"{FOLDER}*"):  # of a process that has died
            shutil.rmtree(path, ignore_errors=True)
        self._jobs = count()

    def _begin(self) -> None:
        origin = max(self.task.after, *(self._inputs[name].start for name in self._revisions))
        if origin > BEGINNING:
            self._output.begin(origin)

    def _interval(self, after: int, upto: int) -> Interval | None:
        """None if there are no revisions for (after, upto]."""
        window = self._of.window
        open_us = 0 if window is None else window.size_us
        since = _minus(after, open_us)
        logs = [self._inputs[name] for name in self._revisions]
        if not any(log.count(max(since, log.start), min(upto, log.boundary)) for log in logs):
            return None
        return Interval(_minus(since, 0 if window is None else self.task.history_us), upto)

    async def _job(self, after: int, upto: int, interval: Interval) -> Result:
        window = self._of.window
        revisions = await self._read(self._revisions, interval.lo, upto, self._signed)
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
        window: AggregateStep,
        revisions: pa.Table,
        after: int,
        upto: int,
    ) -> list[Result]:
        made: list[Result] = []
        waiting: list[pa.Table] = []
        rows, left_out = 0, 0
        start = max(self._inputs[name].start for name in self._main)
        # panes begin with the first whole one
        begins = whole_after(self._of, _plus(self.task.after, window.grain_us - 1))
        revised = revised_windows(revisions, window, after, upto)
        whole = [each for each in revised if each.end > begins]
        for run in _runs(whole, window.size_us):
            lo, hi = run[0].end - window.size_us, run[-1].end
            tuples = await self._read(self._main, max(lo, start), min(hi, upto), self._tuples)
            for each in run:
                if each.end - window.size_us + window.grain_us <= start:
                    left_out += 1  # its tuples were never here, or are dropped
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
            size_us: of a window; a result may be so much later than its tuples, less one.
        """
        if not tuples.num_rows:
            return Result(self._case_schema.empty_table(), 0.0)
        if not self._of.steps:
            return Result(tuples.select(self._case_schema.names).cast(self._case_schema), 0.0)
        ends = pc.min_max(tuples.column(STIME))
        lo, hi = ends["min"].as_py() - 1, ends["max"].as_py() + size_us - 1
        folder = self._output.folder.with_name(f"{FOLDER}{next(self._jobs)}")
        path = folder / "input.parquet"
        try:
            await trio.to_thread.run_sync(_write, path, tuples)
            files = {self._of.inputs[0]: [path]}
            return await self._computation.run(files, lo, hi, Interval(lo, hi))
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    async def _read(self, names: Sequence[str], after: int, upto: int, shaped: Shaped) -> pa.Table:
        """The rows of some inputs with after < stime <= upto, converted by `shaped`."""
        with ExitStack() as pins:
            held: Mapping[str, tuple[StreamLog, list[Path]]] = {
                name: (log, pins.enter_context(log.files(max(after, log.start), upto)))
                for name in names
                for log in [self._inputs[name]]
            }
            read = partial(_read_all, held, after, upto, shaped)
            return await trio.to_thread.run_sync(read)

    def _tuples(self, rows: pa.Table) -> pa.Table:
        names = [name for name in self._shape.names if name != SCENARIO]
        return rows.select(names).cast(pa.schema([self._shape.field(name) for name in names]))

    def _signed(self, rows: pa.Table) -> pa.Table:
        rows = rows.filter(pc.greater(rows.column(REVISED_STIME), self.task.after))
        tuples = signed(rows)
        extra = {SIGN: tuples.column(SIGN), POSITION: rows.column(STIME)}
        table = self._tuples(tuples)
        for name, column in extra.items():
            table = table.append_column(name, column)
        return table


def _read_all(
    held: Mapping[str, tuple[StreamLog, list[Path]]], after: int, upto: int, shaped: Shaped
) -> pa.Table:
    parts = [
        shaped(rows)
        for log, paths in held.values()
        for rows in [*read_rows(paths, log.schema, after, upto), log.schema.empty_table()]
    ]
    table = pa.concat_tables(parts).combine_chunks()
    # a stable sort: tuples of one stime stay in the order of their log, where it counts
    return table.take(pc.array_sort_indices(table.column(STIME).combine_chunks()))


def _write(path: Path, tuples: pa.Table) -> None:
    with storing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(tuples, path)


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


POSITION = "position "
"""The column with a revision's position; no field's name has a blank."""


@dataclass
class Scenarios:
    """Cases, by their numbers.

    Attributes:
        comes: the position at which a case's result appears; None: it was there before.
        goes: the position at which it disappears; None: it stays.
        ends: the stime of its results; others are of windows that were cut. None: any.
    """

    comes: list[int | None] = field(default_factory=list)
    goes: list[int | None] = field(default_factory=list)
    ends: list[int | None] = field(default_factory=list)

    def add(self, comes: int | None, goes: int | None, end: int | None = None) -> int:
        self.comes.append(comes)
        self.goes.append(goes)
        self.ends.append(end)
        return len(self.comes) - 1

    def changes(self, results: Sequence[pa.Table], schema: Schema) -> pa.Table:
        """The revisions to log, in canonical order.

        Args:
            results: the tuples of all cases, with their numbers. schema: of the log.
        """
        table = pa.concat_tables(results)
        case = table.column(SCENARIO).combine_chunks()
        ends = pa.array(self.ends, pa.int64()).take(case)
        table = table.filter(pc.or_kleene(pc.is_null(ends), pc.equal(ends, table.column(STIME))))
        case = table.column(SCENARIO).combine_chunks()
        table = table.drop_columns([SCENARIO])
        both: list[pa.Table] = []
        for positions, sign in ((self.comes, 1), (self.goes, -1)):
            at = pa.array(positions, pa.int64()).take(case)
            placed = with_sign(table.append_column(POSITION, at), sign)
            both.append(placed.filter(pc.is_valid(at)))
        summed = net(both)
        parts = [
            _logged(multiplied(summed, -1), Kind.DELETION, schema),
            _logged(multiplied(summed, 1), Kind.INSERTION, schema),
        ]
        found = pa.concat_tables(parts)
        keys = [(name, "ascending") for name in found.column_names]
        return found.take(pc.sort_indices(found, sort_keys=keys))


def _logged(tuples: pa.Table, kind: Kind, schema: Schema) -> pa.Table:
    columns = {
        STIME: tuples.column(POSITION),
        REVISED_STIME: tuples.column(STIME),
        REVISION_KIND: pa.repeat(pa.scalar(str(kind)), tuples.num_rows),
    }
    shape = schema.derived
    columns |= {n: tuples.column(n) for n in shape.names if n not in columns}
    return pa.table(columns).cast(shape)


def apart(revisions: pa.Table) -> tuple[Scenarios, pa.Table]:
    """The cases of a task without a window, and their tuples.

    Args:
        revisions: signed, with POSITION.
    """
    cases = Scenarios()
    positions = pc.unique(revisions.column(POSITION))
    for position in positions.to_pylist():
        cases.add(None, position)
        cases.add(position, None)
    number = pc.multiply(pc.index_in(revisions.column(POSITION), positions), 2)
    number = pc.add(number.cast(pa.int64()), pc.greater(revisions.column(SIGN), 0).cast(pa.int64()))
    tuples = revisions.drop_columns([SIGN, POSITION])
    return cases, tuples.append_column(SCENARIO, number)


@dataclass(frozen=True, slots=True)
class Revised:
    """A window (end - size, end], and the positions of its revisions, ascending."""

    end: int
    positions: tuple[int, ...]


def revised_windows(
    revisions: pa.Table, window: AggregateStep, after: int, upto: int
) -> list[Revised]:
    """The windows whose revision comes out in (after, upto], in order.

    Args:
        revisions: with POSITION; all up to `upto` that are about tuples of those windows.
    """
    times = revisions.column(STIME).combine_chunks()
    at = revisions.column(POSITION).combine_chunks()
    last = _last_window(times, window.advance_us)
    found: list[pa.Table] = []
    for back in range(-(-window.size_us // window.advance_us)):
        end = pc.add(last, window.size_us - 1 - back * window.advance_us)
        position = pc.max_element_wise(at, end)
        due = pc.and_(pc.greater(position, after), pc.less_equal(position, upto))
        table = pa.table({"end": end, POSITION: position})
        found.append(table.filter(pc.and_(due, pc.greater_equal(end, times))))
    pairs = pa.concat_tables(found).group_by(["end", POSITION]).aggregate([])
    pairs = pairs.sort_by([("end", "ascending"), (POSITION, "ascending")])
    by_end: dict[int, list[int]] = {}
    for end, position in zip(*(column.to_pylist() for column in pairs.columns), strict=True):
        by_end.setdefault(end, []).append(position)
    return [Revised(end, tuple(positions)) for end, positions in by_end.items()]


def _last_window(times: pa.Array, advance: int) -> pa.Array:
    """The start of the last window that holds each time."""
    quotient = pc.divide(times, advance)  # towards zero, where windows are aligned downwards
    below = pc.and_(pc.less(times, 0), pc.not_equal(pc.multiply(quotient, advance), times))
    return pc.multiply(pc.subtract(quotient, below.cast(pa.int64())), advance)


def contents(
    cases: Scenarios,
    revised: Revised,
    size_us: int,
    tuples: pa.Table,
    revisions: pa.Table,
    *,
    after: int,
) -> Iterator[pa.Table]:
    """A window before its first revision after `after`, and after each, as cases.

    Args:
        tuples: of the input, in order of stime, the window's among them.
        revisions: signed, with POSITION, in order of stime.
    """
    end = revised.end
    unrevised = between(tuples, end - size_us, end)
    about = between(revisions, end - size_us, end)
    position = pc.max_element_wise(about.column(POSITION), end)
    about = about.drop_columns([POSITION])
    for come, go in pairwise((None, *revised.positions, None)):
        known = about.filter(pc.less_equal(position, after if come is None else come))
        case = cases.add(come, go, end)
        rows = _applied(unrevised, known)
        yield rows.append_column(SCENARIO, pa.repeat(pa.scalar(case, pa.int64()), rows.num_rows))


def _applied(tuples: pa.Table, revisions: pa.Table) -> pa.Table:
    """The tuples as they are with these revisions of them, in no order."""
    if not revisions.num_rows:
        return tuples
    times = revisions.column(STIME).unique()
    touched = pc.is_in(tuples.column(STIME), times)
    changed = net([with_sign(tuples.filter(touched), 1), revisions])
    return pa.concat_tables([tuples.filter(pc.invert(touched)), multiplied(changed, 1)])
