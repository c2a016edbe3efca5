"""The canonical order of the tuples of a derived stream, which is the same at each peer that makes
them."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from medusa.engine.objects.schema import STIME


def without_negative_zeros(table: pa.Table) -> pa.Table:
    """The table with 0.0 for -0.0."""
    for number, field in enumerate(table.schema):
        if pa.types.is_floating(field.type):
            plain = pc.add(table.column(number), pa.scalar(0.0, field.type))
            table = table.set_column(number, field, plain)
    return table


def is_strict(table: pa.Table) -> bool:
    """Whether each stime is greater than the one before: then the order is canonical."""
    stime = table.column(STIME).combine_chunks()
    return len(stime) < 2 or bool(pc.all(pc.less(stime[:-1], stime[1:])).as_py())


def canonical(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The rows in the schema's types, sorted by stime, then payload; NaN follows numbers, nulls are
    last."""
    table = without_negative_zeros(table.cast(schema))
    if is_strict(table):
        return table
    keys = [(name, "ascending") for name in table.column_names]
    return table.take(pc.sort_indices(table, sort_keys=keys))
