from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from engine.objects.schema import BEGINNING, END, STIME, Schema
from engine.streams.epochs import read_group, read_groups, reading
from engine.streams.ordering import between
from engine.streams.revisions.resolving import of_keys
from engine.streams.validate import times_of
from overlay.errors import InvalidInputError


class LogLookup:
    """Finds tuples by their key in a log's files, newest first. Blocking.

    Args:
        files: of a source stream's log, oldest first; they stay while it is used.
    """

    def __init__(self, files: Sequence[Path], schema: Schema) -> None:
        self._files = files
        self._schema = schema

    def newest_first(self, wanted: pa.Table, upto: int) -> Iterator[tuple[int, pa.Table]]:
        """The tuples with these keys and stime <= upto, by row groups: (stime above which all were
        given, tuples). If the key has the time, only rows of those times are read.

        Raises:
            As `engine.streams.epochs.reading`.
        """
        low, high = self._times(wanted)
        for path in reversed(self._files):
            with reading(path) as file:
                yield from self._in_file(file, wanted, low, min(high, upto))

    def _times(self, wanted: pa.Table) -> tuple[int, int]:
        if self._schema.time not in wanted.column_names or not wanted.num_rows:
            return BEGINNING, END
        try:
            ends = pc.min_max(times_of(wanted, self._schema))
        except InvalidInputError:  # no tuple has such a time
            return END, BEGINNING
        return ends["min"].as_py(), ends["max"].as_py()

    def _in_file(
        self, file: pq.ParquetFile, wanted: pa.Table, low: int, high: int
    ) -> Iterator[tuple[int, pa.Table]]:
        for group in reversed(range(file.num_row_groups)):
            ends = file.metadata.row_group(group).column(0).statistics
            if ends.max < low or ends.min > high:
                continue
            keys = [STIME, *wanted.column_names]
            # Most groups have no such key: their other columns are not read.
            head = read_group(file, group, keys)
            if not of_keys(head, wanted).num_rows:
                continue
            rows = read_group(file, group)
            # others of its least stime may be in the group before
            yield ends.min, of_keys(between(rows, low - 1, high), wanted)


def read_rows(files: Sequence[Path], schema: pa.Schema, after: int, upto: int) -> list[pa.Table]:
    """The rows of a log's files with after < stime <= upto.

    Raises:
        As `engine.streams.epochs.reading`.
    """
    return [rows for path in files for rows in read_groups(path, schema, after, upto)]
