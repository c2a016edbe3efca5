"""A task as a Spark job: its input files and an interval in, the output's tuples out.

Per epoch Spark analyses, plans and runs one small query. The reader with its schema and the column
trees are kept between epochs. The generated code stays the same, so that Spark compiles it once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, DataFrameReader, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from engine.language.operators import FLOATS
from engine.language.steps import Expression
from engine.objects.query import WINDOW_START
from engine.objects.schema import BEGINNING, END, SEQ, STIME, Field, Schema
from engine.spark.columns import (
    SPARK_TYPES,
    Aggregates,
    column,
    order_of,
    quoted,
    window_starts,
    without_negative_zero,
)
from engine.spark.cpu import meter_of
from engine.tasks.execution import Result
from engine.tasks.plan import AggregateStep, FilterStep, MapStep, Step, Task
from engine.tasks.windows import Interval, needs

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
        """As `engine.tasks.execution.Computation.run`; blocking."""
        paths = [path for name in self._task.inputs for path in files.get(name, ())]
        if not paths:
            return Result(self._schema.empty_table(), 0.0)
        compiled = self._compiled
        if compiled is None or compiled.session is not session:
            compiled = self._compiled = _Compiled(self._task, session)
        compiled.meter.start()
        frame = compiled.frame(paths, after, upto, interval)
        compiled.meter.plan(frame)
        table = _canonical(self._finish(frame.toArrow()), self._schema)
        return Result(table, compiled.meter.read())

    def rehearse(self, session: SparkSession, within: Path) -> None:
        """Compute the task over one blank tuple per input, and drop the result: Spark loads and
        generates then the code of the first epoch, which takes it seconds.

        Args:
            within: a folder for these tuples that all executors can read.
        """
        with TemporaryDirectory(dir=within) as folder:
            files: dict[str, list[Path]] = {}
            for number, schema in enumerate(self._task.input_schemas):
                path = Path(folder) / f"{number}.parquet"
                pq.write_table(_blank(schema.derived), path)
                files[self._task.inputs[number]] = [path]
            window = self._task.window
            upto = 0 if window is None else window.size_us
            interval = needs(self._task, -1, upto, 0)
            assert interval is not None, "a window that holds 0 is closed by then"
            self.run(session, files, -1, upto, interval)

    def _finish(self, raw: pa.Table) -> pa.Table:
        """Spark's result with the output's columns, in any order of rows."""
        window = self._task.window
        if window is None or window is not self._task.steps[-1]:
            return raw.select(self._schema.names)
        starts = raw.column(0)
        stime = pc.add(starts, window.size_us - 1)
        columns = [stime, starts.cast(pa.timestamp("us", tz="UTC")), *raw.columns[1:]]
        names = [STIME, WINDOW_START]
        names += [each.name for each in window.group_by]
        names += [each.output for each in window.functions]
        return pa.table(columns, names=names).select(self._schema.names)


def _blank(schema: pa.Schema) -> pa.Table:
    """One row of zeros and empty texts."""
    values = ["" if pa.types.is_string(field.type) else 0 for field in schema]
    columns = [pa.array([value]).cast(f.type) for value, f in zip(values, schema, strict=True)]
    return pa.table(columns, schema=schema)


class _Compiled:
    """The parts of a program that are kept for one session."""

    def __init__(self, task: Task, session: SparkSession) -> None:
        self.session = session
        self.meter = meter_of(session)
        schema = _merged(task.input_schemas)
        # With one source stream aggregated as it is, its arrival order counts.
        self._by_arrival = (
            len(task.inputs) == 1
            and task.inputs[0] in task.source_inputs
            and isinstance(task.steps[0], AggregateStep)
        )
        self._reader = _reader(session, schema, with_seq=self._by_arrival)
        self._normal = _normalised(schema, with_seq=self._by_arrival)
        fields: Sequence[Field] = schema.fields
        steps = task.steps
        self._first: Column | None = None
        if steps and isinstance(steps[0], FilterStep) and not self._normal:  # one analysis less
            self._first, steps = _leaves_by(steps[0]), steps[1:]
        self._stages: list[_Stage] = []
        for step in steps:
            last = step is task.steps[-1]
            self._stages.append(_Stage(step, fields, by_arrival=self._by_arrival, last=last))
            if isinstance(step, MapStep):
                fields = _mapped(step)

    def frame(self, paths: Sequence[Path], after: int, upto: int, interval: Interval) -> DataFrame:
        large = sum(path.stat().st_size for path in paths) >= LARGE_BYTES
        frame = self._reader.parquet(*(f"file://{path.absolute()}" for path in paths))
        wanted = F.expr(within(STIME, interval.lo + 1, interval.hi, constant=large))
        if self._first is not None:
            wanted = wanted & self._first
        frame = frame.where(wanted)
        if self._normal:
            frame = frame.select(*self._normal)
        for stage in self._stages:
            frame = stage.apply(frame, after, upto, small=not large)
        return frame


class _Stage:
    """One step, with its columns."""

    def __init__(
        self, step: Step, fields: Sequence[Field], *, by_arrival: bool, last: bool
    ) -> None:
        self._step = step
        match step:
            case FilterStep():
                self._predicate = _leaves_by(step)
            case MapStep():
                self._columns = [quoted(STIME), *(_output(*each) for each in step.outputs)]
            case AggregateStep():
                self._window = _free_name(fields)
                order = F.struct(STIME, SEQ) if by_arrival else order_of(fields)
                self._columns = [window_starts(step).alias(self._window), F.col("*")]
                self._keys = [F.col(self._window)] + [
                    quoted(each.name).alias(f"key{number}")
                    for number, each in enumerate(step.group_by)
                ]
                self._aggregates = Aggregates(step.functions, order)
                keys = [F.col(f"key{number}") for number in range(len(step.group_by))]
                found = [F.col(self._window), *keys, *self._aggregates.values]
                if last:
                    self._found = [] if self._aggregates.plain else found
                else:
                    self._found = _named(step, found)

    def apply(self, frame: DataFrame, after: int, upto: int, *, small: bool) -> DataFrame:
        match self._step:
            case FilterStep():
                return frame.where(self._predicate)
            case MapStep():
                return frame.select(*self._columns)
            case AggregateStep(size_us=size, advance_us=advance):
                windows = frame.select(*self._columns)
                if advance != size:  # other windows hold these tuples, too
                    held = f"{self._window} > {STIME} - {size}L"
                    due = within(self._window, after + 2 - size, upto + 1 - size, constant=False)
                    windows = windows.where(f"{held} AND {due}")
                if small:
                    windows = windows.coalesce(1)  # no shuffle
                result = windows.groupBy(*self._keys).agg(*self._aggregates.computed)
                return result.select(*self._found) if self._found else result


def _named(step: AggregateStep, found: Sequence[Column]) -> list[Column]:
    """The output's columns by their names, for the steps that follow in the same job.

    Args:
        found: the window's start, the keys, the values.
    """
    start, *rest = found
    names = [*(each.name for each in step.group_by), *(each.output for each in step.functions)]
    return [
        (start + F.lit(step.size_us - 1)).alias(STIME),
        F.timestamp_micros(start).alias(WINDOW_START),
        *(value.alias(name) for value, name in zip(rest, names, strict=True)),
    ]


def _free_name(fields: Sequence[Field]) -> str:
    taken = {each.name for each in fields}
    return next(name for n in range(len(taken) + 1) if (name := f"window{n}") not in taken)


def within(name: str, least: int, most: int, *, constant: bool) -> str:
    """The condition least <= name <= most.

    Numbers that differ from epoch to epoch would make Spark generate and compile other code every
    time. So they are in an array that the code refers to. The index into it depends (in form only)
    on the column; else Spark would fold it to a number. Such a condition is not pushed into the
    scan; `constant` makes a plain one, which is.
    """
    least, most = max(least, BEGINNING + 1), min(most, END)
    if constant:
        return f"{name} BETWEEN {least}L AND {most}L"
    bounds, first = f"array({least}L, {most}L)", f"CAST({name} & 0L AS INT)"
    return f"{name} >= get({bounds}, {first}) AND {name} <= get({bounds}, {first} + 1)"


def _merged(schemas: Sequence[Schema]) -> Schema:
    """The first schema; a field is nullable if it is in any."""
    first = schemas[0]
    fields = tuple(
        Field(each[0].name, each[0].type, nullable=any(field.nullable for field in each))
        for each in zip(*(schema.fields for schema in schemas), strict=True)
    )
    return Schema(first.name, fields, first.time)


def _reader(session: SparkSession, schema: Schema, *, with_seq: bool) -> DataFrameReader:
    fields = [T.StructField(STIME, T.LongType())]
    if with_seq:
        fields.append(T.StructField(SEQ, T.LongType()))
    fields += [T.StructField(each.name, SPARK_TYPES[each.type]) for each in schema.fields]
    return (
        session.read.schema(T.StructType(fields))
        .option("__globPaths__", "false")  # a name may hold [ or *
        .option("recursiveFileLookup", "true")  # a folder a=b is not a partition
    )


def _normalised(schema: Schema, *, with_seq: bool) -> list[Column]:
    """The input's columns without -0.0; empty if there is no float among them."""
    if not any(each.type in FLOATS for each in schema.fields):
        return []
    columns = [quoted(STIME), *([quoted(SEQ)] if with_seq else [])]
    for each in schema.fields:
        plain = quoted(each.name)
        changed = without_negative_zero(plain).alias(each.name)
        columns.append(changed if each.type in FLOATS else plain)
    return columns


def _leaves_by(step: FilterStep) -> Column:
    """True for the tuples that leave by the step's port."""
    before = [~F.coalesce(column(each), F.lit(False)) for each in step.predicates[: step.port]]
    own = [column(each) for each in step.predicates[step.port : step.port + 1]]
    condition, *rest = [*before, *own]
    for each in rest:
        condition = condition & each
    return condition


def _output(name: str, expression: Expression) -> Column:
    made = column(expression)
    if expression.type in FLOATS:
        made = without_negative_zero(made)
    return made.alias(name)


def _mapped(step: MapStep) -> list[Field]:
    """A map's fields; all are nullable as far as the order of tuples is concerned."""
    return [Field(name, each.type, nullable=True) for name, each in step.outputs]


def _canonical(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The rows in the schema's types, by stime, then payload; NaN after numbers, nulls last."""
    table = table.cast(schema)
    columns = [
        pc.add(each, pa.scalar(0.0, each.type)) if pa.types.is_floating(each.type) else each
        for each in table.columns  # no -0.0
    ]
    table = pa.table(columns, schema=schema)
    keys = [(name, "ascending") for name in table.column_names]
    return table.take(pc.sort_indices(table, sort_keys=keys))
