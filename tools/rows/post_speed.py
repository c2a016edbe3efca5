"""Cuts rows into pieces, to post them at the speed of their own time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from medusa.engine.objects.schema import Schema
from medusa.engine.streams.validate import times_of
from medusa.overlay.errors import InvalidInputError

SLICE_S: Final = 0.25
"""Seconds of real time that one post covers with --speed N: short enough to look steady."""


@dataclass(frozen=True)
class Piece:
    """Rows to post together, no earlier than `due`, seconds after the first piece."""

    table: pa.Table
    due: float = 0.0


def cut(
    batches: Iterator[pa.Table], schema: Schema, speed: float | None, origin: int | None = None
) -> Iterator[Piece]:
    """Cut batches into pieces to post; the same file and speed always give the same pieces.

    Args:
        origin: the stime that is due at once, microseconds; None: that of the first row.

    Raises:
        InvalidInputError: a speed is given, and the schema has no time field.
    """
    if speed is None:
        return (Piece(table) for table in batches)
    if schema.time is None:
        raise InvalidInputError(
            f"--speed {speed:g}: schema {schema.name} has no time field to go by; use --speed max"
        )
    return _cut_by_time(batches, schema, speed, origin)


def stime_of(table: pa.Table, schema: Schema) -> int | None:
    """The stime of a table's first row, microseconds; None if it has none."""
    if schema.time is None or not table.num_rows:
        return None
    found: int = times_of(table.slice(0, 1), schema)[0].as_py()
    return found


def _cut_by_time(
    batches: Iterator[pa.Table], schema: Schema, speed: float, origin: int | None
) -> Iterator[Piece]:
    width_us = max(1, int(SLICE_S * speed * 1e6))
    first = origin
    reached = 0
    for table in batches:
        if not table.num_rows:
            continue
        stime = times_of(table, schema)
        if first is None:
            first = stime[0].as_py()
        # a late row is posted with the rows around it: a slice never has a lower number than the
        # one before
        slices = pc.divide(pc.subtract(stime, first), width_us)
        slices = pc.cumulative_max(pc.max_element_wise(slices, reached))
        starts = [0, *_changes(slices)]
        for start, stop in zip(starts, [*starts[1:], len(table)], strict=True):
            reached = slices[start].as_py()
            yield Piece(table.slice(start, stop - start), reached * SLICE_S)


def _changes(values: pa.Array) -> list[int]:
    """The offsets at which a value differs from the one before."""
    differs = pc.not_equal(values.slice(1), values.slice(0, len(values) - 1))
    return [offset + 1 for offset in pc.indices_nonzero(differs).to_pylist()]
