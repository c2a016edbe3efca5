"""A document's streams, computed task by task by real Spark, or box by box by the interpreter."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from medusa.engine.language.check import check_query
from medusa.engine.language.document import Document
from medusa.engine.objects.schema import BEGINNING, SEQ, STIME, Schema
from medusa.engine.operators.shared.step import Interval
from medusa.engine.reference.interpreter import run_query, run_task
from medusa.engine.spark.program import Program
from medusa.engine.spark.session import Spark
from medusa.engine.streams.log.epochs import write_rows
from medusa.engine.streams.validate import times_of
from medusa.engine.tasks.plan import Task, plan
from medusa.engine.tasks.windows import needs

BASE = "medusa://mit.edu"

Row = dict[str, Any]


@cache
def schemas_of(document: Document) -> Mapping[str, Schema]:
    """Return the schemas of all streams that the document defines or makes."""
    defined = {schema.name: schema for schema in document.schemas}
    known = {stream.name: defined[stream.schema] for stream in document.streams}
    for query in document.queries:
        known |= check_query(query, known)
    return known


def posted(document: Document, data: Mapping[str, Sequence[Row]]) -> dict[str, pa.Table]:
    """Return the logs of the document's sources; rows have `stime` in microseconds if their schema
    has no time."""
    schemas, logs = schemas_of(document), {}
    for name, rows in data.items():
        schema = schemas[f"{BASE}/{name}"]
        plain = [{key: value for key, value in row.items() if key != STIME} for row in rows]
        payload = pa.Table.from_pylist(plain, schema=schema.payload)
        times = (
            pa.array([row[STIME] for row in rows], pa.int64())
            if schema.time is None
            else times_of(payload, schema)
        )
        log = payload.add_column(0, STIME, times).add_column(
            1, SEQ, pa.array(range(len(rows)), pa.int64())
        )
        log = log.sort_by([(STIME, "ascending"), (SEQ, "ascending")]).cast(schema.source)
        logs[f"{BASE}/{name}"] = log
    return logs


Compute = Callable[[Mapping[str, pa.Table], int, int, Interval], pa.Table]
"""The output of a task after one boundary and up to another one, from its inputs."""


def in_epochs(
    document: Document,
    data: Mapping[str, Sequence[Row]],
    boundaries: Sequence[int],
    computing: Callable[[Task], Compute],
) -> dict[str, pa.Table]:
    """Return the streams of its tasks up to the last boundary, by their last name, computed epoch
    after epoch."""
    logs, schemas = posted(document, data), schemas_of(document)
    for query in document.queries:
        for task in plan(query, schemas):
            compute, made = computing(task), task.output_schema.derived.empty_table()
            for after, upto in itertools.pairwise([BEGINNING, *boundaries]):
                interval = needs(task, after, upto)
                if interval is None:
                    continue
                given = {stream: logs[stream] for stream in task.inputs}
                if task.recalls:
                    given[task.output] = made
                table = compute(given, after, upto, interval)
                assert all(after < stime <= upto for stime in table[STIME].to_pylist())
                made = pa.concat_tables([made, table])
            logs[task.output] = made
    return {name.removeprefix(f"{BASE}/"): log for name, log in logs.items()}


def by_spark(
    spark: Spark,
    folder: Path,
    document: Document,
    data: Mapping[str, Sequence[Row]],
    boundaries: Sequence[int],
) -> dict[str, pa.Table]:
    """`in_epochs` with real Spark; each log has a file for each epoch."""

    def computing(task: Task) -> Compute:
        program = Program(task)

        def compute(
            given: Mapping[str, pa.Table], after: int, upto: int, interval: Interval
        ) -> pa.Table:
            files = {name: _written(log, folder, name, boundaries) for name, log in given.items()}
            job = partial(program.run, files=files, after=after, upto=upto, interval=interval)
            return spark.run(job).table

        return compute

    return in_epochs(document, data, boundaries, computing)


def by_interpreted_tasks(
    document: Document, data: Mapping[str, Sequence[Row]], boundaries: Sequence[int]
) -> dict[str, pa.Table]:
    """`in_epochs` with the interpreter."""

    def computing(task: Task) -> Compute:
        def compute(
            given: Mapping[str, pa.Table], after: int, upto: int, interval: Interval
        ) -> pa.Table:
            inputs = {name: _plain(log) for name, log in given.items()}
            rows = run_task(task, inputs, after, upto, interval)
            return pa.Table.from_pylist(rows, schema=task.output_schema.derived)

        return compute

    return in_epochs(document, data, boundaries, computing)


def _written(log: pa.Table, folder: Path, name: str, boundaries: Sequence[int]) -> list[Path]:
    paths = []
    for number, (after, upto) in enumerate(itertools.pairwise([BEGINNING, *boundaries])):
        part = log.filter(pc.and_(pc.greater(log[STIME], after), pc.less_equal(log[STIME], upto)))
        if part.num_rows:
            path = folder / f"{abs(hash(name))}_{number}.parquet"
            write_rows(part, path)
            paths.append(path)
    return paths


def by_interpreter(
    document: Document, data: Mapping[str, Sequence[Row]]
) -> dict[str, list[tuple[Any, ...]]]:
    """Return all its streams, by their last name: sorted rows, `stime` first, moments as
    microseconds."""
    schemas = schemas_of(document)
    streams = {name: _plain(log) for name, log in posted(document, data).items()}
    for query in document.queries:
        streams |= run_query(query, streams, schemas)
    return {
        name.removeprefix(f"{BASE}/"): in_order(
            (row[STIME], *(row[field.name] for field in schemas[name].fields)) for row in rows
        )
        for name, rows in streams.items()
    }


def answers(data: Mapping[str, Sequence[Row]], statements: Mapping[str, str]) -> dict[str, Any]:
    """Return DuckDB's answers to the same query in other words, by stream."""
    with duckdb.connect() as database:
        for name, rows in data.items():
            database.register(f"posted_{name}", pa.Table.from_pylist(list(rows)))
            database.execute(f"CREATE TABLE {name} AS SELECT * FROM posted_{name}")
        return {name: in_order(database.sql(text).fetchall()) for name, text in statements.items()}


def _plain(log: pa.Table) -> list[Row]:
    for number, field in enumerate(log.schema):
        if pa.types.is_timestamp(field.type):
            log = log.set_column(number, field.name, log.column(number).cast(pa.int64()))
    rows: list[Row] = log.to_pylist()
    return rows


def rows_of(log: pa.Table) -> list[tuple[Any, ...]]:
    """Return sorted rows, moments as microseconds."""
    columns = [
        column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column
        for column in log.columns
    ]
    return in_order(zip(*(column.to_pylist() for column in columns), strict=True))


def in_order(rows: Any) -> list[tuple[Any, ...]]:
    return sorted(map(tuple, rows), key=lambda row: [(value is None, value) for value in row])
