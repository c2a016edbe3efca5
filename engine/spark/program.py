"""A task as a Spark job: its input files and an interval in, the output's tuples out.

Per epoch Spark analyses, plans and runs one small query. The reader with its schema and the column
trees are kept between epochs. The generated code stays the same, so that Spark compiles it once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from medusa.engine.dataframes.columns import quoted, within, without_negative_zero
from medusa.engine.dataframes.rows import fields_made, merged_fields, row_schema
from medusa.engine.dataframes.scans import reader_of
from medusa.engine.dataframes.stage import Job, Stage
from medusa.engine.objects.schema import BEGINNING, SEQ, STIME, Field
from medusa.engine.operators.join.spark import Joins
from medusa.engine.operators.join.step import JoinStep
from medusa.engine.operators.shared.step import Interval, Step
from medusa.engine.scalars.type_rules import FLOATS
from medusa.engine.spark.cpu import meter_of
from medusa.engine.spark.stages import StepInput, stage_of
from medusa.engine.streams.parquet import write_parquet
from medusa.engine.tasks.canonical import canonical
from medusa.engine.tasks.execution import Result
from medusa.engine.tasks.plan import Task
from medusa.engine.tasks.revised_tasks import by_arrival
from medusa.engine.tasks.windows import needs

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
        table = canonical(compiled.finished(frame.toArrow(), self._schema.names), self._schema)
        return Result(table, compiled.meter.read())

    def warm_up(self, session: SparkSession, within: Path) -> None:
        """Compute the task over one blank tuple per input, and drop the result: Spark loads and
        generates then the code of the first epoch, which takes it seconds.

        Args:
            within: a folder for these tuples that all executors can read.
        """
        with TemporaryDirectory(dir=within) as folder:
            self.run(session, *blank_epoch(self._task, Path(folder)))


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
            assert isinstance(join, JoinStep), "the step that has sides"
            schemas = dict(zip(task.inputs, task.input_schemas, strict=True))
            self._joins = Joins(session, join, schemas, task.source_inputs)
            fields: Sequence[Field] = fields_made(join.outputs)
        else:
            fields = merged_fields(task.input_schemas)
        seq = by_arrival(task)
        self._reader = reader_of(session, row_schema(fields, with_seq=seq))
        self._normal = _normalised(fields, with_seq=seq)
        self._stages: list[Stage] = []
        for step in steps:
            last = step is task.steps[-1]
            self._stages.append(stage_of(step, StepInput(fields, seq, last)))
            if step.mapping is not None:
                fields = fields_made(step.mapping)
        self._last = self._stages[-1] if self._stages else None
        self._first: Column | None = None
        if self._stages and self._joins is None and not self._normal:
            self._first = self._stages[0].condition
            if self._first is not None:  # this saves one analysis
                del self._stages[0]
        self._own = _OwnTable(session, task) if task.recalls else None
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
        job = Job(after, upto, not large)
        if not self._stages:
            return frame
        *stages, last = self._stages
        for stage in stages:
            frame = stage.apply(frame, job)
        if self._own is not None:
            job = replace(job, own=self._own.frame(files, small=not large))
            if not large:
                frame = frame.coalesce(1)  # no shuffle
        return last.apply(frame, job)

    def finished(self, raw: pa.Table, names: Sequence[str]) -> pa.Table:
        """Return Spark's result with the output's columns; the rows may have any order."""
        return raw.select(names) if self._last is None else self._last.finished(raw, names)

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
        """The output so far as a DataFrame; None: there is none yet."""
        paths = files.get(self._name, ())
        if not paths:
            return None
        frame = self._reader.parquet(*(f"file://{path.absolute()}" for path in paths))
        return frame.coalesce(1) if small else frame


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
