"""Compares the rows of an answer with those that are expected, whatever their order."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from medusa.engine.objects.schema import Field, Schema
from medusa.overlay.errors import InvalidInputError
from medusa.overlay.files import storing
from medusa.tools.rows.format_names import Format, format_of
from medusa.tools.rows.formats import Reading
from medusa.tools.rows.row_output import open_writer, readable
from medusa.tools.rows.row_process import open_rows
from medusa.tools.trial.answers import with_moments
from medusa.tools.trial.recordings import arrow_schema_of, field_type_of

TOLERANCE: Final = 1e-9
"""The relative tolerance of floating-point numbers: the last bits of a sum depend on the order of
addition."""

Row = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Differences:
    """The differences between an answer and the expected rows.

    Attributes:
        columns: the compared columns. rows: the number of the answer's rows. expected: the number
            of expected rows. missing: expected rows that the answer lacks. unexpected: rows of the
            answer that were not expected.
    """

    columns: tuple[str, ...]
    rows: int
    expected: int
    missing: tuple[Row, ...]
    unexpected: tuple[Row, ...]

    @property
    def none(self) -> bool:
        return not self.missing and not self.unexpected


def read_expected(file: Path, answer: pa.Schema) -> pa.Table:
    """The expected rows of an answer, in the types that the answer has.

    Raises:
        InvalidInputError: it has another column, or a value of another type; names the file.
    """
    if not file.stat().st_size:
        return answer.empty_table()
    known = {each.name: each for each in answer}
    names = arrow_schema_of(file).names
    for name in names:
        if name not in known:
            raise InvalidInputError(
                f"{file}: the answer has no column {name[:80]!a}; it has {', '.join(known)[:200]}"
            )
    fields = tuple(Field(name, field_type_of(file, known[name]), nullable=True) for name in names)
    with open_rows(file, Reading(Schema("expected", fields))) as rows:
        tables = [table.select(names) for table in rows.batches()]
    made = pa.schema([known[name] for name in names])
    return pa.concat_tables(tables).cast(made) if tables else made.empty_table()


def compare(expected: pa.Table, answer: pa.Table) -> Differences:
    """Compare as multisets of rows, by the columns that are expected.

    Args:
        answer: its stime is a timestamp: see `medusa.tools.trial.answers.with_moments`.
    """
    names = expected.column_names
    floats = [n for n, kind in enumerate(expected.schema.types) if pa.types.is_floating(kind)]
    wanted, found = _rows(expected), _rows(answer.select(names))
    unmatched: dict[Row, list[Row]] = defaultdict(list)
    for row in sorted(found, key=_order):
        unmatched[_exact(row, floats)].append(row)
    missing = []
    for row in sorted(wanted, key=_order):
        alike = unmatched[_exact(row, floats)]
        at = next((n for n, each in enumerate(alike) if _near(row, each, floats)), None)
        if at is None:
            missing.append(row)
        else:
            del alike[at]
    left = [row for rows in unmatched.values() for row in rows]
    return Differences(
        tuple(names),
        len(found),
        len(wanted),
        tuple(missing),
        tuple(sorted(left, key=_order)),
    )


def _rows(table: pa.Table) -> list[Row]:
    """The rows' values; timestamps as texts, as Python has no years beyond 9999."""
    if not table.num_columns:
        return [()] * table.num_rows
    columns = (column.to_pylist() for column in readable(table).columns)
    return list(zip(*columns, strict=True))


def _exact(row: Row, floats: Sequence[int]) -> Row:
    """The row without its finite floats."""
    return tuple(
        None if n in floats and isinstance(value, float) and math.isfinite(value) else _key(value)
        for n, value in enumerate(row)
    )


def _key(value: object) -> tuple[str, object]:
    return ("nan", "") if isinstance(value, float) and math.isnan(value) else ("", value)


def _near(one: Row, other: Row, floats: Sequence[int]) -> bool:
    """Whether the floats of two rows are equal, apart from their last bits."""
    return all(
        not isinstance(one[n], float)
        or not math.isfinite(one[n])
        or math.isclose(one[n], other[n], rel_tol=TOLERANCE)
        for n in floats
    )


def _order(row: Row) -> tuple[tuple[int, Any], ...]:
    """A sort key of rows: nulls are first; NaN is after all numbers."""
    return tuple(
        (0, 0)
        if value is None
        else (2, 0)
        if isinstance(value, float) and math.isnan(value)
        else (1, value)
        for value in row
    )


def write_expected(file: Path, answer: pa.Table, columns: Sequence[str] | None) -> None:
    """Write an answer as the rows to be expected from now on, ordered by its columns.

    Args:
        columns: None: all of them.
    """
    table = with_moments(answer)
    table = table.select(columns if columns is not None else table.column_names)
    if table.num_columns:
        table = table.sort_by([(name, "ascending") for name in table.column_names])
    kind = format_of(file) or Format.CSV
    with storing(file):
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("wb") as opened:
            writer = open_writer(opened, kind, table.schema)
            writer.write(table)
            writer.finish()
