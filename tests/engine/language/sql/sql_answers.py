"""A stream of rows, with a script's answer and DuckDB's answer over it."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import duckdb
import pyarrow as pa
from boxes_of_scripts import check_typed
from field_texts import fields_of

from medusa.engine.language.check import check_query
from medusa.engine.language.sql.script import Script
from medusa.engine.objects.schema import STIME, Schema
from medusa.engine.reference.interpreter import run_query

BASE = "medusa://t.edu"
S = f"{BASE}/s"
FIELDS = fields_of("ts timestamp, k string?, x long?")
SCHEMA = Schema(S, FIELDS, "ts")
MINUTE = 60_000_000


def rows(seed: int, span_us: int, count: int = 80) -> list[dict[str, Any]]:
    """Draw the rows of the source stream, in order, with ties."""
    rng = random.Random(seed)
    times = sorted(rng.randrange(-span_us, span_us) // 1_000_000 * 1_000_000 for _ in range(count))
    return [
        {
            STIME: at,
            "ts": at,
            "k": rng.choice([None, "a", "b", "c"]),
            "x": rng.choice([None, *range(-3, 9)]),
            "seq": number,
        }
        for number, at in enumerate(times)
    ]


def made(text: str, data: Sequence[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """Return the rows of a SELECT's network, sorted."""
    document = Script(text, BASE).complete({S: SCHEMA}, {})
    check_typed(document, {S: SCHEMA})
    (query,) = document.queries
    schemas = check_query(query, {S: SCHEMA})
    answers = run_query(query, {S: list(data)}, schemas)[f"{BASE}/answer"]
    names = [field.name for field in schemas[f"{BASE}/answer"].fields]
    return _sorted(tuple(row[name] for name in names) for row in answers)


def oracle(text: str, data: Sequence[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """Return DuckDB's rows, sorted; moments are microseconds."""
    with duckdb.connect() as database:
        table = pa.Table.from_pylist(list(data))
        database.register("s", table)
        return _sorted(database.sql(text).fetchall())


def _sorted(found: Any) -> list[tuple[Any, ...]]:
    return sorted(found, key=lambda row: [(value is None, value) for value in row])
