"""Reads a table as of a boundary, and computes the changes that make it equal to a file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from medusa.engine.objects.schema import BEGINNING, DELETED, END, SEQ, STIME, FieldType, Schema
from medusa.engine.streams.log.folding import newest
from medusa.engine.streams.ordering import between
from medusa.overlay.errors import InvalidInputError, UnavailableError

if TYPE_CHECKING:
    from medusa.tools.client.async_client import AsyncMedusaClient

_OLD: Final = " before"
"""Ends the names of the columns of the table's present rows; no field's name has a blank."""


REACH_S: Final = 30.0
"""Seconds until a table's log has what its leader has acknowledged: many epochs."""


async def read_table(
    client: AsyncMedusaClient, stream: str, at: int = END, reach: int = BEGINNING
) -> pa.Table:
    """The rows of a table as it is at a boundary, microseconds; by default as far as it has come.

    Args:
        reach: a boundary that its leader has reported; wait for it.

    Raises:
        InvalidInputError: the stream is no table.
        NotFoundError: there is no such stream.
        UnavailableError: its log does not come to the boundary.
    """
    entry = await client.stream_entry(stream)
    if not entry.stream.table:
        raise InvalidInputError(f"{stream} is a stream, and no table: read it by subscribe")
    found: pa.Table | None = None
    after = BEGINNING
    while after < at:
        epoch = await client.receive_events(stream, after, REACH_S if after < reach else 0.0)
        if epoch is None:
            break
        rows = between(epoch.table, BEGINNING, at)
        both = rows if found is None else pa.concat_tables([found, rows])
        found, after = newest(both, entry.schema.key), epoch.upto
    if after < min(at, reach):
        raise UnavailableError(f"{stream}: what was posted last cannot be read yet; try again")
    if found is None:
        return entry.schema.derived.empty_table()
    if entry.schema.deletes:
        found = found.filter(pc.invert(pc.fill_null(found.column(DELETED), fill_value=False)))
    return found.drop_columns([SEQ]) if SEQ in found.column_names else found


def changed_rows(now: pa.Table, wanted: pa.Table, schema: Schema) -> pa.Table:
    """The rows to post so that a table has the wanted ones and no others: rows that are new or
    differ in more than their time, and deletions of the rows that are not wanted.

    Args:
        now: rows of the table. wanted: rows of the schema's payload.

    Raises:
        InvalidInputError: two of the wanted rows have the same key; or rows would have to be
            deleted, and the schema has no field for that.
    """
    key = list(schema.key)
    counts = wanted.group_by(key).aggregate([([], "count_all")])
    if counts.num_rows < wanted.num_rows:
        twice = counts.filter(pc.greater(counts.column("count_all"), 1)).slice(0, 1).to_pylist()[0]
        shown = ", ".join(f"{name} {twice[name]!a}" for name in key)
        raise InvalidInputError(f"two rows have the same key: {shown}")
    old = now.select(schema.payload.names).cast(schema.payload)
    gone = old.join(wanted.select(key), key, join_type="left anti")
    if gone.num_rows and not schema.deletes:
        raise InvalidInputError(
            f"{gone.num_rows:,} rows of the table are not in the file, and its schema has no "
            f"boolean field {DELETED!r} to delete them by"
        )
    new = wanted.join(old.select(key), key, join_type="left anti")
    parts = [new, _different(old, wanted, schema), _deleted(gone, schema, now, wanted)]
    found = pa.concat_tables([each.select(schema.payload.names) for each in parts])
    return found if schema.time is None else found.sort_by(schema.time)


def _different(old: pa.Table, wanted: pa.Table, schema: Schema) -> pa.Table:
    """The wanted rows whose key is in the table with other values; the time is not compared."""
    ignored = {*schema.key, schema.time, DELETED}
    compared = [name for name in schema.payload.names if name not in ignored]
    both = wanted.join(old, list(schema.key), join_type="inner", right_suffix=_OLD)
    differs = pa.repeat(pa.scalar(value=False), both.num_rows)
    for name in compared:
        one, other = both.column(name), both.column(f"{name}{_OLD}")
        values = pc.fill_null(pc.not_equal(one, other), fill_value=False)
        differs = pc.or_(differs, pc.or_(values, pc.xor(pc.is_null(one), pc.is_null(other))))
    return both.filter(differs)


def _deleted(gone: pa.Table, schema: Schema, now: pa.Table, wanted: pa.Table) -> pa.Table:
    """Rows that delete these, with the latest time of all rows."""
    if not gone.num_rows:
        return gone
    flags = pa.repeat(pa.scalar(value=True), gone.num_rows)
    number = gone.schema.get_field_index(DELETED)
    gone = gone.set_column(number, gone.schema.field(number), flags)
    if schema.time is None:
        return gone
    latest = _latest(schema, now, wanted)
    times = pa.repeat(latest, gone.num_rows)
    number = gone.schema.get_field_index(schema.time)
    return gone.set_column(number, gone.schema.field(number), times)


def _latest(schema: Schema, now: pa.Table, wanted: pa.Table) -> pa.Scalar:
    """The greatest time of the wanted rows; without rows, one later than the table's."""
    assert schema.time is not None, "a table with times"
    if wanted.num_rows:
        return pc.max(wanted.column(schema.time))
    field = schema.field(schema.time)
    assert field is not None, "checked with the schema"
    at = pc.max(now.column(STIME)).as_py() + 1
    if field.type is FieldType.INT:
        return pa.scalar(-(-at // 1_000_000), field.type.arrow)
    if field.type in {FieldType.SINGLE, FieldType.DOUBLE}:
        return pa.scalar(at / 1e6, field.type.arrow)
    return pa.scalar(at, pa.int64()).cast(field.type.arrow)
