"""The columns of revisions in posts, in logs, and after several revisions were combined."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import structs

from medusa.engine.objects.definitions import REVISIONS, StreamDefinition, StreamEntry
from medusa.engine.objects.schema import (
    REVISED_SEQ,
    REVISED_STIME,
    REVISION_KIND,
    SEQ,
    STIME,
    Field,
    FieldType,
    Schema,
)
from medusa.engine.streams.ordering import repeated
from medusa.engine.streams.revisions.corrections import Kind

SIGN: Final = "sign "
"""The column with a tuple's sign: deleted (-1) or inserted (1); no field's name has a blank."""


def revisions_name(stream: str) -> str:
    return f"{stream}/{REVISIONS}"


def revisions_entry(entry: StreamEntry) -> StreamEntry:
    """The entry of a stream's revisions, which are kept as long as the stream."""
    stream = entry.stream
    definition = StreamDefinition(
        name=revisions_name(stream.name),
        schema=stream.schema,
        history_us=stream.history_us,
        readers=stream.readers,
        declassify=stream.declassify,
        label=stream.label,
        leader=stream.leader,
        query=stream.query,
        edition=stream.edition,
    )
    return StreamEntry(definition, revisions_schema(entry.schema, source=not stream.query))


def revisions_schema(schema: Schema, *, source: bool) -> Schema:
    """The schema of a stream's logged revisions: stime of the deleted or inserted tuple, its number
    of arrival (source streams), DELETION or INSERTION, and the tuple."""
    head = [Field(REVISED_STIME, FieldType.LONG)]
    if source:
        head.append(Field(REVISED_SEQ, FieldType.LONG))
    head.append(Field(REVISION_KIND, FieldType.STRING))
    return Schema(schema.name, (*head, *schema.fields))


def request_schema(schema: Schema) -> Schema:
    """The schema of posted revisions: DELETION or REPLACEMENT, and the tuple; a deletion needs only
    the key."""
    fields = (
        field if field.name in schema.key else structs.replace(field, nullable=True)
        for field in schema.fields
    )
    return Schema(schema.name, (Field(REVISION_KIND, FieldType.STRING), *fields))


def signed(revisions: pa.Table) -> pa.Table:
    """Logged revisions as tuples with a sign. Vectorised."""
    comes = pc.equal(revisions.column(REVISION_KIND), str(Kind.INSERTION))
    sign = pc.if_else(comes, pa.scalar(1, pa.int64()), pa.scalar(-1, pa.int64()))
    columns = {STIME: revisions.column(REVISED_STIME)}
    if REVISED_SEQ in revisions.column_names:
        columns[SEQ] = revisions.column(REVISED_SEQ)
    about = (STIME, SEQ, REVISED_STIME, REVISED_SEQ, REVISION_KIND)
    columns |= {n: revisions.column(n) for n in revisions.column_names if n not in about}
    return pa.table({**columns, SIGN: sign})


def with_sign(table: pa.Table, sign: int) -> pa.Table:
    """The same tuples with that sign."""
    return table.append_column(SIGN, pa.repeat(pa.scalar(sign, pa.int64()), table.num_rows))


def net(tables: Sequence[pa.Table]) -> pa.Table:
    """The sum of inserted and deleted tuples, without those that cancel out. Nulls are equal to
    nulls, and NaN to NaN. The result has no order."""
    table = pa.concat_tables(tables)
    names = [name for name in table.column_names if name != SIGN]
    sums = table.group_by(names).aggregate([(SIGN, "sum")]).rename_columns([*names, SIGN])
    return sums.filter(pc.not_equal(sums.column(SIGN), 0)).select(table.column_names)


def multiplied(table: pa.Table, sign: int) -> pa.Table:
    """The tuples of one sign in a `net` result, each as often as it counts, without the sign."""
    return repeated(table.drop_columns([SIGN]), pc.multiply(table.column(SIGN), sign))


def folded(stable: pa.Table, revisions: Sequence[pa.Table]) -> pa.Table:
    """A stream's tuples with these revisions, in canonical order.

    Args:
        stable: the tuples of its log. revisions: all revisions of these tuples, from the log of
            revisions.
    """
    parts = [signed(table).select([*stable.column_names, SIGN]) for table in revisions]
    if not any(part.num_rows for part in parts):
        return stable
    both = [with_sign(stable, 1), *parts]
    found = multiplied(net([part.cast(_plain(stable.schema)) for part in both]), 1)
    keys = [(name, "ascending") for name in stable.column_names]
    return found.take(pc.sort_indices(found, sort_keys=keys)).cast(stable.schema)


def _plain(schema: pa.Schema) -> pa.Schema:
    """The table with the sign column, and all fields nullable: tables of either origin can be
    concatenated."""
    fields = [pa.field(each.name, each.type) for each in schema]
    return pa.schema([*fields, pa.field(SIGN, pa.int64())])
