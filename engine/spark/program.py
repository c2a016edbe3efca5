"""A task as a Spark job: its input files and an interval in, the output's tuples out.

Per epoch Spark analyses, plans and runs one small query. The reader with its schema and the column
trees are kept between epochs. The generated code stays the same, so that Spark compiles it once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, cast

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from medusa.engine.objects.schema import BEGINNING, SEQ, STIME, Field
from medusa.engine.operators.aggregate.step import AggregateStep, Form
from medusa.engine.operators.cumulate import CumulateStep
from medusa.engine.operators.filter import FilterStep
from medusa.engine.operators.join.step import JoinStep
from medusa.engine.operators.map import MapStep
from medusa.engine.operators.match.step import MatchStep
from medusa.engine.operators.rank import RankStep
from medusa.engine.operators.registry import AnyStep
from medusa.engine.operators.sessions import SessionsStep
from medusa.engine.operators.shared.step import Step
from medusa.engine.operators.top import TopStep
from medusa.engine.operators.totals.step import TotalsStep
from medusa.engine.operators.tuple_windows.step import TupleWindowsStep
from medusa.engine.scalars.type_rules import FLOATS
from medusa.engine.spark.columns import column, output, quoted, within, without_negative_zero
from medusa.engine.spark.cpu import meter_of
from medusa.engine.spark.joins import Joins
from medusa.engine.spark.matches import Matches
from medusa.engine.spark.ranks import Ranks
from medusa.engine.spark.rows import merged_fields, row_schema
from medusa.engine.spark.scans import reader_of
from medusa.engine.spark.spans import Spans
from medusa.engine.spark.top import TopOf
from medusa.engine.spark.totals import TotalsOf
from medusa.engine.spark.tuple_windows import TupleWindowsOf
from medusa.engine.spark.windows import Windows, names_made
from medusa.engine.streams.parquet import write_parquet
from medusa.engine.tasks.canonical import canonical
from medusa.engine.tasks.execution import Result
from medusa.engine.tasks.plan import Task
from medusa.engine.tasks.revised_tasks import by_arrival
from medusa.engine.tasks.windows import Interval, needs

LARGE_BYTES: Final = 16 * 2**20
"""Parquet bytes from which a job is spread over cores and its bounds are pushed into the scan: a
partition of a scan has as many (`spark.sql.files.maxPartitionBytes`). Below it one core without a
shuffle is quicker, here and on a cluster (ADR 32)."""


class Program:
    """One task, ready to run on any session."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._schema = task.output_schema.derived
        self._compiled: _Compiled | None = None

    def run(
        self,
        session: SparkSession,
        files: Mapping[str, Sequence[Path]],
        after: int,
        upto: int,
        interval: Interval,
    ) -> Result:
        """As `medusa.engine.tasks.execution.Computation.run`; blocking."""
        if not any(files.get(name) for name in self._task.inputs):
            return Result(self._schema.empty_table(), 0.0)
        compiled = self._compiled
        if compiled is None or compiled.session is not session:
            compiled = self._compiled = _Compiled(self._task, session)
        compiled.meter.start()
        frame = compiled.frame(files, after, upto, interval)
        compiled.meter.plan(frame)
        table = canonical(self._finish(frame.toArrow()), self._schema)
        return Result(table, compiled.meter.read())

    def rehearse(self, session: SparkSession, within: Path) -> None:
        """Compute the task over one blank tuple per input, and drop the result: Spark loads and
        generates then the code of the first epoch, which takes it seconds.

        Args:
            within: a folder for these tuples that all executors can read.
        """
        with TemporaryDirectory(dir=within) as folder:
            self.run(session, *blank_epoch(self._task, Path(folder)))

    def _finish(self, raw: pa.Table) -> pa.Table:
        """Spark's result with the output's columns, in any order of rows."""
        window = self._task.steps[-1] if self._task.steps else None
        if not isinstance(window, AggregateStep):
            return raw.select(self._schema.names)
        starts = raw.column(0)
        stime = pc.add(starts, window.size_us - 1)
        columns = [stime, *raw.columns[1:]]
        if window.form is not Form.PARTIAL:
            columns.insert(1, starts.cast(pa.timestamp("us", tz="UTC")))
        names = [STIME, *names_made(window)]
        return pa.table(columns, names=names).select(self._schema.names)


def blank_epoch(
    task: Task, folder: Path
) -> tuple[Mapping[str, Sequence[Path]], int, int, Interval]:
    """The arguments of a run over one blank tuple per input. folder: for its files."""
    files: dict[str, list[Path]] = {}
    for number, (name, schema) in enumerate(zip(task.inputs, task.input_schemas, strict=True)):
        path = folder / f"{number}.parquet"
        source = name in task.source_inputs
        write_parquet(_blank(schema.source if source else schema.derived), path)
        files[name] = [path]
    upto = task.span_us
    interval = needs(task, -1, upto, 0)
    assert interval is not None, "a window that holds 0 is closed by then"
    return files, -1, upto, interval


def _blank(schema: pa.Schema) -> pa.Table:
    """A table of one row of zeros and empty texts."""
    values = ["" if pa.types.is_string(field.type) else 0 for field in schema]
    columns = [pa.array([value]).cast(f.type) for value, f in zip(values, schema, strict=True)]
    return pa.table(columns, schema=schema)


class _Compiled:
    """The parts of a program that are kept for one session."""

    def __init__(self, task: Task, session: SparkSession) -> None:
        self.session = session
        self.meter = meter_of(session)
        self._inputs = task.inputs
        self._joins: Joins | None = None
        steps: Sequence[Step] = task.steps
        if task.sided:
            join, *steps = steps
            assert isinstance(join, JoinStep), "the step with sides"
            schemas = dict(zip(task.inputs, task.input_schemas, strict=True))
            self._joins = Joins(session, join, schemas, task.source_inputs)
            fields: Sequence[Field] = mapped(join)
        else:
            fields = merged_fields(task.input_schemas)
        self._by_arrival = by_arrival(task)
        self._reader = reader_of(session, row_schema(fields, with_seq=self._by_arrival))
        self._normal = _normalised(fields, with_seq=self._by_arrival)
        self._first: Column | None = None
        one_less = self._joins is None and not self._normal
        if steps and isinstance(steps[0], FilterStep) and one_less:  # one analysis less
            self._first, steps = leaves_by(steps[0]), steps[1:]
        self._stages: list[_Stage] = []
        self._table: TotalsOf | TopOf | TupleWindowsOf | None = None
        if task.recalls:
            self._own = _OwnTable(session, task)
            steps, last_step = steps[:-1], steps[-1]
        for step in steps:
            last = step is task.steps[-1]
            self._stages.append(_Stage(step, fields, by_arrival=self._by_arrival, last=last))
            if isinstance(step, MapStep):
                fields = mapped(step)
        if task.recalls and isinstance(last_step, TotalsStep):
            self._table = TotalsOf(last_step, fields)
        elif task.recalls and isinstance(last_step, TopStep):
            self._table = TopOf(last_step, by_arrival=self._by_arrival)
        elif task.recalls and isinstance(last_step, TupleWindowsStep):
            self._table = TupleWindowsOf(last_step, fields, by_arrival=self._by_arrival)
        self._all = bool(task.tables)

    def frame(
        self, files: Mapping[str, Sequence[Path]], after: int, upto: int, interval: Interval
    ) -> DataFrame:
        paths = [path for name in self._inputs for path in files.get(name, ())]
        large = sum(path.stat().st_size for path in paths) >= LARGE_BYTES
        if self._joins is None:
            wanted = Interval(BEGINNING, interval.hi) if self._all else interval
            frame = self._scan(paths, wanted, large=large)
        else:
            frame = self._joins.frame(files, after, upto, interval, large=large)
        for stage in self._stages:
            frame = stage.apply(frame, after, upto, small=not large)
        if self._table is None:
            return frame
        own = self._own.frame(files, small=not large)
        if not large:
            frame = frame.coalesce(1)  # no shuffle
        if isinstance(self._table, TotalsOf):
            return self._table.apply(frame, own, after)
        return self._table.apply(frame, own)

    def _scan(self, paths: Sequence[Path], interval: Interval, *, large: bool) -> DataFrame:
        frame = self._reader.parquet(*(f"file://{path.absolute()}" for path in paths))
        wanted = F.expr(within(STIME, interval.lo + 1, interval.hi, constant=large))
        if self._first is not None:
            wanted = wanted & self._first
        frame = frame.where(wanted)
        return frame.select(*self._normal) if self._normal else frame


class _OwnTable:
    """The output of a task so far, which the task reads as a table."""

    def __init__(self, session: SparkSession, task: Task) -> None:
        self._name = task.output
        self._reader = reader_of(session, row_schema(task.output_schema.fields, with_seq=False))

    def frame(self, files: Mapping[str, Sequence[Path]], *, small: bool) -> DataFrame | None:
        """None: there is nothing yet."""
        paths = files.get(self._name, ())
        if not paths:
            return None
        frame = self._reader.parquet(*(f"file://{path.absolute()}" for path in paths))
        return frame.coalesce(1) if small else frame


class _Stage:
    """One step of the plan, and the columns after it."""

    def __init__(
        self, step: Step, fields: Sequence[Field], *, by_arrival: bool, last: bool
    ) -> None:
        self._step = cast("AnyStep", step)
        match self._step:
            case FilterStep():
                self._predicate = leaves_by(self._step)
            case MapStep():
                self._columns = [quoted(STIME), *(output(*each) for each in self._step.outputs)]
            case JoinStep():
                raise AssertionError("a join is a task's first step")
            case TotalsStep() | TopStep() | TupleWindowsStep():
                raise AssertionError("a task ends with its table")
            case MatchStep():
                self._matches = Matches(self._step, fields, by_arrival=by_arrival)
            case AggregateStep():
                self._windows = Windows(self._step, fields, by_arrival=by_arrival, last=last)
            case SessionsStep() | CumulateStep():
                self._spans = Spans(self._step, fields, by_arrival=by_arrival)
            case RankStep():
                self._ranks = Ranks(self._step, fields, by_arrival=by_arrival)

    def apply(self, frame: DataFrame, after: int, upto: int, *, small: bool) -> DataFrame:
        match self._step:
            case FilterStep():
                return frame.where(self._predicate)
            case MapStep():
                return frame.select(*self._columns)
            case JoinStep() | TotalsStep() | TopStep() | TupleWindowsStep():
                return frame
            case MatchStep():
                return self._matches.apply(frame, after, upto, small=small)
            case AggregateStep():
                return self._windows.apply(frame, after, upto, small=small)
            case SessionsStep() | CumulateStep():
                return self._spans.apply(frame, after, upto, small=small)
            case RankStep():
                return self._ranks.apply(frame, small=small)


def _normalised(fields: Sequence[Field], *, with_seq: bool) -> list[Column]:
    """The input's columns without -0.0; empty if there is no float among them."""
    if not any(each.type in FLOATS for each in fields):
        return []
    columns = [quoted(STIME), *([quoted(SEQ)] if with_seq else [])]
    for each in fields:
        plain = quoted(each.name)
        changed = without_negative_zero(plain).alias(each.name)
        columns.append(changed if each.type in FLOATS else plain)
    return columns


def leaves_by(step: FilterStep) -> Column:
    """True for the tuples that leave by the step's port."""
    before = [~F.coalesce(column(each), F.lit(False)) for each in step.predicates[: step.port]]
    own = [column(each) for each in step.predicates[step.port : step.port + 1]]
    condition, *rest = [*before, *own]
    for each in rest:
        condition = condition & each
    return condition


def mapped(step: MapStep | JoinStep) -> list[Field]:
    """The fields that a step makes; all are nullable as far as the order of tuples is concerned."""
    return [Field(name, each.type, nullable=True) for name, each in step.outputs]
