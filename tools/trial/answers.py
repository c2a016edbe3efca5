"""The answers of a trial: on the screen, or as Parquet files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pyarrow as pa
from rich.console import Console
from rich.table import Table
from rich.text import Text

from medusa.engine.objects.schema import STIME
from medusa.overlay.errors import InvalidInputError
from medusa.overlay.files import storing
from medusa.overlay.plain import plain
from medusa.tools.rows.format_names import Format
from medusa.tools.rows.row_output import RowWriter, open_writer, readable

SHOWN_ROWS: Final = 20
"""Rows of an answer on the screen."""

_ANY_WIDTH: Final = 100_000
"""Columns of a screen that is as wide as a table could want."""


@dataclass
class Answers:
    """Collects the answers of a trial; the first rows are for the screen.

    Attributes:
        rows: for each stream, the number of its rows. beginnings: for each stream, its first rows.
            whole: whether to keep all rows, instead of the first ones only.
    """

    whole: bool = False
    rows: dict[str, int] = field(default_factory=dict)
    beginnings: dict[str, pa.Table] = field(default_factory=dict)

    def take(self, stream: str, table: pa.Table) -> None:
        """Add a stream's next tuples."""
        before = self.beginnings.get(stream)
        self.rows[stream] = self.rows.get(stream, 0) + table.num_rows
        more = table if self.whole else table.slice(0, SHOWN_ROWS)
        both = more if before is None else pa.concat_tables([before, more])
        self.beginnings[stream] = both if self.whole else both.slice(0, SHOWN_ROWS)

    def show(self, streams: Mapping[str, str], console: Console) -> None:
        """Print each answer under its title: as a table, or row by row if that is too wide."""
        for stream, title in streams.items():
            console.print(Text(self._title(stream, title), style="bold"), soft_wrap=True)
            table = self._table(stream)
            wide = console.measure(table, options=console.options.update(width=_ANY_WIDTH))
            console.print(self._records(stream) if wide.maximum > console.width else table)

    def _title(self, stream: str, title: str) -> str:
        rows = self.rows.get(stream, 0)
        first = f", the first {SHOWN_ROWS}" if rows > SHOWN_ROWS else ""
        return f"{plain(title)}: {rows:,} row{'' if rows == 1 else 's'}{first}"

    def _table(self, stream: str) -> Table:
        made = Table()
        beginning = self.beginnings.get(stream)
        if beginning is None:
            return made
        beginning = with_moments(beginning)
        for name, kind in zip(beginning.column_names, beginning.schema.types, strict=True):
            number = pa.types.is_integer(kind) or pa.types.is_floating(kind)
            made.add_column(Text(plain(name)), justify="right" if number else "left")
        for row in _texts(beginning):
            made.add_row(*row)
        return made

    def _records(self, stream: str) -> Table:
        """A line for each value, and an empty one between rows."""
        made = Table(box=None, show_header=False, pad_edge=False)
        made.add_column(style="bold", no_wrap=True)
        made.add_column(overflow="fold")
        beginning = with_moments(self.beginnings[stream])
        for row in _texts(beginning):
            for name, value in zip(beginning.column_names, row, strict=True):
                made.add_row(Text(plain(name)), value)
            made.add_row()
        return made


def _texts(table: pa.Table) -> Iterator[tuple[Text, ...]]:
    """The rows, for the screen."""
    columns = [column.to_pylist() for column in readable(table).columns]
    for row in zip(*columns, strict=True):
        yield tuple(Text("" if value is None else plain(str(value))) for value in row)


def with_moments(table: pa.Table) -> pa.Table:
    """The table with stime, which is microseconds, as a timestamp."""
    index = table.schema.get_field_index(STIME)
    if index < 0 or not pa.types.is_integer(table.schema.types[index]):
        return table
    moments = table.column(index).cast(pa.timestamp("us", "UTC"))
    return table.set_column(index, STIME, moments)


class Files:
    """Writes answers as `FOLDER/<last part of the stream's name>.parquet`, even answers without
    rows.

    Raises:
        InvalidInputError: two streams would have the same file, or there can be no such folder.
    """

    def __init__(self, folder: Path, streams: Sequence[str], stack: ExitStack) -> None:
        names = [f"{stream.rpartition('/')[2]}.parquet" for stream in streams]
        for name in names:
            if names.count(name) > 1:
                raise InvalidInputError(f"--out: two answers would be {name}: name them otherwise")
        with storing(folder):
            folder.mkdir(parents=True, exist_ok=True)
        self.paths: Mapping[str, Path] = {
            stream: folder / name for stream, name in zip(streams, names, strict=True)
        }
        self._stack = stack
        self._writers: dict[str, RowWriter] = {}

    def take(self, stream: str, table: pa.Table) -> None:
        """Write a stream's next tuples."""
        with storing(self.paths[stream]):
            if stream not in self._writers:
                file = self._stack.enter_context(self.paths[stream].open("wb"))
                writer = open_writer(file, Format.PARQUET, table.schema)
                self._writers[stream] = writer
                self._stack.callback(writer.finish)
            if table.num_rows:
                self._writers[stream].write(table)
