"""Parses lines of separated values into Arrow, each column as text; faults name their row."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.csv as pv

from medusa.overlay.errors import InvalidInputError
from medusa.tools.rows.row_input import end_of_first_line

MAX_COLUMNS: Final = 4096
"""Columns of a file: far more than any schema's fields. Each takes memory before its name is
known."""

_OTHER_COUNT: Final = re.compile(r"Row #(\d+): Expected \d+ columns, got (\d+)")
_NOT_UTF_8: Final = re.compile(r"CSV column #(\d+): Row #(\d+): .*invalid UTF8")


Choose = Callable[[Sequence[str]], Sequence[str]]
"""A function that chooses the columns of a file to read."""


@dataclass(frozen=True)
class Dialect:
    """The syntax of a file of separated values.

    Attributes:
        separator: between values. quoted: whether values may stand in quotation marks.
        null: the text that stands for a missing value. what: the names of the columns, for
            messages.
    """

    separator: str = ","
    quoted: bool = True
    null: str = ""
    what: str = "the first line"


@dataclass
class Lines:
    """Parses blocks of whole lines.

    Attributes:
        names: the names of the columns, in order. wanted: the columns that are read.
        rows: number of rows parsed so far.
    """

    names: Sequence[str]
    dialect: Dialect
    wanted: Sequence[str] = ()
    rows: int = 0

    def table(self, block: bytes) -> pa.Table:
        """
        Raises:
            InvalidInputError: naming the row, and the field where there is one.
        """
        try:
            table = pv.read_csv(
                io.BytesIO(block),
                read_options=pv.ReadOptions(
                    column_names=self.names, block_size=len(block) + 1, use_threads=False
                ),
                parse_options=pv.ParseOptions(
                    delimiter=self.dialect.separator,
                    quote_char='"' if self.dialect.quoted else False,
                    newlines_in_values=self.dialect.quoted,
                ),
                convert_options=pv.ConvertOptions(
                    column_types=dict.fromkeys(self.names, pa.string()),
                    include_columns=list(self.wanted or self.names),
                    null_values=[self.dialect.null],
                    strings_can_be_null=True,
                    quoted_strings_can_be_null=False,
                ),
            )
        except pa.ArrowInvalid as error:
            raise InvalidInputError(self._in_words(error)) from None
        self.rows += table.num_rows
        return table

    def _in_words(self, error: pa.ArrowInvalid) -> str:
        if match := _OTHER_COUNT.search(str(error)):
            return (
                f"row {self.rows + int(match[1])}: {match[2]} values, and {self.dialect.what} "
                f"names {len(self.names)}"
            )
        if match := _NOT_UTF_8.search(str(error)):
            name = self.names[int(match[1])]
            return f"row {self.rows + int(match[2])}, field {name!r}: it is not UTF-8"
        return " ".join(str(error).split())


def csv_tables(blocks: Iterator[bytes], choose: Choose) -> Iterator[pa.Table]:
    """Parse CSV whose first line names the columns. The first table is empty, and has all names;
    the others have the chosen columns.

    Raises:
        InvalidInputError: names the row, and the field if there is one.
    """
    first = next(blocks, b"")
    if not first.strip():
        raise InvalidInputError("it is empty: its first line has to name the columns")
    end = end_of_first_line(first) or len(first)
    header, rest = first[:end], first[end:]
    check_columns(header.count(b",") + 1)
    try:
        first_line = pv.read_csv(
            io.BytesIO(header),
            read_options=pv.ReadOptions(use_threads=False),
            parse_options=pv.ParseOptions(newlines_in_values=True),
        )
    except (pa.ArrowException, UnicodeDecodeError) as error:
        raise InvalidInputError(f"its first line: {' '.join(str(error).split())}") from None
    if first_line.num_rows:  # Arrow ends lines at CR, too; the blocks of lines do not
        raise InvalidInputError("its lines end with CR alone: write LF, as `tr '\\r' '\\n'` does")
    names = first_line.column_names
    lines = Lines(names, Dialect(), choose(names))
    yield names_alone(names)
    if rest.strip():
        yield lines.table(rest)
    for block in blocks:
        if block.strip():
            yield lines.table(block)


def names_alone(names: Sequence[str]) -> pa.Table:
    """A table without rows, for the names of its columns."""
    return pa.table([pa.array([], pa.string()) for _ in names], names=list(names))


def check_columns(count: int) -> None:
    """
    Raises:
        InvalidInputError: there are too many.
    """
    if count > MAX_COLUMNS:
        raise InvalidInputError(f"its first line names more than {MAX_COLUMNS} columns")
