"""A document's streams, computed task by task by real Spark, or box by box by the interpreter."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from engine.language.check import check_query
from engine.language.document import Document
from engine.objects.schema import BEGINNING, SEQ, STIME, Schema
from engine.spark.program import Program
from engine.spark.session import Spark
from engine.streams.validate import times_of
from engine.tasks.plan import plan
from engine.tasks.windows import needs
from testnet.simulation.interpreter import run_query

BASE = "medusa://mit.edu"

Row = dict[str, Any]


def schemas_of(document: Document) -> dict[str, Schema]:
    """Of all streams that it defines or makes."""
    defined = {schema.name: schema for schema in document.schemas}
    known = {stream.name: defined[stream.schema] for stream in document.streams}
    for query in document.queries:
        known |= check_query(query, known)
    return known


def posted(document: Document, data: Mapping[str, Sequence[Row]]) -> dict[str, pa.Table]:
    """The logs of its sources; rows with `stime` in microseconds if their schema has no time."""
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


def by_spark(
    spark: Spark,
    folder: Path,
    document: Document,
    data: Mapping[str, Sequence[Row]],
    boundaries: Sequence[int],
) -> dict[str, pa.Table]:
    """The streams of its tasks up to the last boundary, by their last name, epoch after epoch."""
    logs, schemas = posted(document, data), schemas_of(document)
    for query in document.queries:
        for task in plan(query, schemas):
            files = {
                stream: _written(logs[stream], folder, stream, boundaries) for stream in task.inputs
            }
            program, made = Program(task), task.output_schema.derived.empty_table()
            for after, upto in itertools.pairwise([BEGINNING, *boundaries]):
                interval = needs(task, after, upto)
                if interval is None:
                    continue
                if task.recalls:
                    files[task.output] = _written(made, folder, task.output, boundaries)
                job = partial(program.run, files=files, after=after, upto=upto, interval=interval)
                table = spark.run(job).table
                made = pa.concat_tables([made, table])
            logs[task.output] = made
    return {name.removeprefix(f"{BASE}/"): log for name, log in logs.items()}


def _written(log: pa.Table, folder: Path, name: str, boundaries: Sequence[int]) -> list[Path]:
    paths = []
    for number, (after, upto) in enumerate(itertools.pairwise([BEGINNING, *boundaries])):
        part = log.filter(pc.and_(pc.greater(log[STIME], after), pc.less_equal(log[STIME], upto)))
        if part.num_rows:
            path = folder / f"{abs(hash(name))}_{number}.parquet"
            pq.write_table(part, path)
            paths.append(path)
    return paths


def by_interpreter(
    document: Document, data: Mapping[str, Sequence[Row]]
) -> dict[str, list[tuple[Any, ...]]]:
    """All its streams, by their last name: sorted rows, `stime` first, moments as microseconds."""
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
    """What DuckDB gives for other words, stream by stream."""
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
    """Sorted rows, moments as microseconds."""
    columns = [
        column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column
        for column in log.columns
    ]
    return in_order(zip(*(column.to_pylist() for column in columns), strict=True))


def in_order(rows: Any) -> list[tuple[Any, ...]]:
    return sorted(map(tuple, rows), key=lambda row: [(value is None, value) for value in row])
