"""Right answers by DuckDB, over whole tables."""

from __future__ import annotations

from collections.abc import Mapping

import duckdb
import pyarrow as pa


def answer_of(
    sql: str,
    tables: Mapping[str, pa.Table],
    defined: str = "",
    parameters: Mapping[str, int] | None = None,
) -> pa.Table:
    """The answer to a statement.

    Args:
        tables: the tables, by name. defined: statements that define further ones.
    """
    with duckdb.connect() as database:
        for name, table in tables.items():
            database.register(name, _in_zone(table, None))
        if defined:
            database.execute(defined)
        answer = database.sql(sql, params=dict(parameters or {})).to_arrow_table()
    return _in_zone(answer, "UTC")


def in_order(answer: pa.Table) -> pa.Table:
    """Sorted by the columns from left to right."""
    return answer.sort_by([(name, "ascending") for name in answer.column_names])


def _in_zone(table: pa.Table, zone: str | None) -> pa.Table:
    """Times with or without a zone: DuckDB would show those with one in the zone of the machine."""
    fields = [
        field.with_type(pa.timestamp("us", zone)) if pa.types.is_timestamp(field.type) else field
        for field in table.schema
    ]
    return table.cast(pa.schema(fields))
