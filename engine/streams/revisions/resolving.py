"""Finds the tuples that a post of revisions changes: for each key the newest. Vectorised.

A revision names a key. It finds the key's tuple with the greatest (stime, seq), as earlier
revisions have left them. The log gets the old tuple and, for a replacement, the new one: at its own
time if the schema names one, with the same number of arrival.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from medusa.engine.objects.schema import (
    BEGINNING,
    END,
    REVISED_SEQ,
    REVISED_STIME,
    REVISION_KIND,
    SEQ,
    STIME,
    Schema,
)
from medusa.engine.streams.ipc import decode
from medusa.engine.streams.log.epochs import read_group, read_groups, reading
from medusa.engine.streams.ordering import between
from medusa.engine.streams.revisions.columns import (
    SIGN,
    multiplied,
    net,
    request_schema,
    revisions_schema,
    signed,
    with_sign,
)
from medusa.engine.streams.revisions.corrections import Kind
from medusa.engine.streams.validate import check_sizes, times_of
from medusa.overlay.errors import InvalidInputError, NotRetainedError

REVISIONS_AT_ONCE: Final = 4096
"""The most revisions in one post: each may be searched in all retained tuples, while posts wait."""

MOST_OF_A_KEY: Final = 16
"""The most revisions of one key in one post: each is searched after the one before was applied."""

_ROW: Final = "row "
_AT: Final = "at "
"""The number of a revision in its post, and of a tuple in a table; no field's name has a blank."""


@dataclass(frozen=True, slots=True)
class Resolved:
    """The result of a post of revisions.

    Attributes:
        rows: the columns of the log except its first two, in the order of the post.
        position: their place in the stream's time, microseconds; BEGINNING without rows.
        missed: the numbers of the revisions, from 0, whose key no present tuple has.
    """

    rows: pa.Table
    position: int
    missed: tuple[int, ...]


class Retained(Protocol):
    """The tuples among which revisions are searched for."""

    @property
    def start(self) -> int:
        """The boundary after which this peer has the tuples and their revisions, microseconds."""

    def newest_first(self, wanted: pa.Table) -> Iterator[tuple[int, pa.Table]]:
        """The tuples with these keys (`wanted` has the key's columns), piece by piece: (stime above
        which all have been returned, tuples)."""

    def revisions(self) -> Sequence[pa.Table]:
        """All revisions so far, in the order of the log."""


def read_request(body: bytes | bytearray | memoryview, schema: Schema) -> pa.Table:
    """Read and check a post of revisions, as of `request_schema`.

    Raises:
        InvalidInputError: it does not decode, or does not fit the schema; the message names field
            and row.
    """
    if not len(body):
        return request_schema(schema).payload.empty_table()
    request = decode(body, request_schema(schema).payload).combine_chunks()
    if request.num_rows > REVISIONS_AT_ONCE:
        raise InvalidInputError(
            f"{request.num_rows} revisions in one post: at most {REVISIONS_AT_ONCE} are allowed"
        )
    check_request(request, schema)
    return request


def check_request(request: pa.Table, schema: Schema) -> None:
    """Check posted revisions, any number of them.

    Raises:
        InvalidInputError: names field and row.
    """
    kinds = request.column(REVISION_KIND)
    known = pc.is_in(kinds, pa.array([str(Kind.DELETION), str(Kind.REPLACEMENT)]))
    if (row := pc.index(known, False).as_py()) >= 0:
        raise InvalidInputError(
            f"row {row + 1}: {kinds[row].as_py()[:40]!r} is neither {Kind.DELETION} nor "
            f"{Kind.REPLACEMENT}: what is new is posted as a tuple"
        )
    replaces = pc.equal(kinds, str(Kind.REPLACEMENT))
    for field in schema.fields:
        if not field.nullable:
            absent = pc.and_(replaces, pc.is_null(request.column(field.name)))
            if (row := pc.index(absent, True).as_py()) >= 0:
                raise InvalidInputError(
                    f"field {field.name} is null in row {row + 1}; it may not be"
                )
    check_sizes(request, schema)
    if schema.time is not None:
        _check_times(request, replaces, schema)


def _check_times(request: pa.Table, replaces: pa.ChunkedArray, schema: Schema) -> None:
    """Check the times of replacements; deletions count as 0, so that rows keep their numbers."""
    at = request.schema.get_field_index(schema.time)
    field = request.schema.field(at)
    column = pc.if_else(replaces, request.column(at), pa.scalar(0).cast(field.type))
    times_of(request.set_column(at, field, column), schema)


def replaced_times(request: pa.Table, schema: Schema) -> pa.Array | None:
    """The stimes of tuples in posted revisions, microseconds; null where a revision has none. None:
    all are null."""
    if schema.time is None or not request.num_rows:
        return None
    replaces = pc.equal(request.column(REVISION_KIND), str(Kind.REPLACEMENT)).combine_chunks()
    nothing = pa.nulls(request.num_rows, pa.int64())
    return pc.replace_with_mask(nothing, replaces, times_of(request.filter(replaces), schema))


def resolve(search: Search, *, place: Callable[[int], int], history_us: int) -> Resolved:
    """The result of revisions, from the tuples that were looked up; in memory. Tuples behind the
    history at the least possible position count as dropped, because each peer runs retention at a
    different time. Args: place: returns the position of revisions from their latest stime.
    history_us: tuples so far behind that position count as dropped.

    Raises:
        NotRetainedError: other peers may have a tuple to revise that this peer lacks.
    """
    state = max(place(BEGINNING) - history_us, BEGINNING)
    rows = search.found(state)
    reach = max(place(_latest(rows)) - history_us, BEGINNING)
    if rows.num_rows and pc.min(rows.column(STIME)).as_py() <= reach:
        rows = search.found(reach)
    hit = pc.unique(rows.column(_ROW))
    unhit = pc.invert(pc.is_in(search.request.column(_ROW), hit))
    missed = tuple(search.request.filter(unhit).column(_ROW).to_pylist())
    if search.start > state:
        _check_here(rows, missed, search.start)
    rows = rows.take(pc.sort_indices(rows, [(_ROW, "ascending"), (SIGN, "ascending")]))
    position = place(_latest(rows)) if rows.num_rows else BEGINNING
    return Resolved(_logged(rows, search.schema), position, missed)


def _latest(rows: pa.Table) -> int:
    return pc.max(rows.column(STIME)).as_py() if rows.num_rows else BEGINNING


def _check_here(rows: pa.Table, missed: Sequence[int], start: int) -> None:
    """Refuse revisions whose tuple may be older than `start`. A tuple found beyond `start` is the
    newest of its key at every peer; a peer with more of the stream may find others.

    Raises: NotRetainedError: there are such rows; the message names the first.
    """
    early = rows.filter(pc.and_(pc.less(rows.column(SIGN), 0), pc.less_equal(rows[STIME], start)))
    unsure = {*missed, *early.column(_ROW).to_pylist()}
    if unsure:
        raise NotRetainedError(
            f"row {min(unsure) + 1}: the tuple may be of before boundary {start}, and this peer "
            "has the stream, with its revisions, from there on: nothing of the post was taken; "
            "leave the row out, or post again when another peer is leader"
        )


class Search:
    """The tuples that one post may change, read from files. Blocking, and the slow part of a
    revision. Attributes: request: the revisions, with the numbers of their rows. start: see
    `Retained`.
    """

    def __init__(self, request: pa.Table, schema: Schema, retained: Retained) -> None:
        """Args:
            request: the result of `read_request`.

        Raises:
            InvalidInputError: too many of one key.
        """
        self.start = retained.start
        self.schema = schema
        self.request = request.append_column(_ROW, pa.arange(0, request.num_rows))
        self._key = list(schema.key)
        self._rounds = _rounds(self.request, self._key)
        self._shape = _signed_shape(schema)
        wanted = self.request.select(self._key)
        self._known = [
            of_keys(signed(table), wanted).select(self._shape.names).cast(self._shape)
            for table in retained.revisions()
        ]
        for reached, tuples in retained.newest_first(wanted) if request.num_rows else ():
            self._known.append(with_sign(tuples, 1).select(self._shape.names).cast(self._shape))
            if tuples.num_rows and self._suffices(reached):
                break

    def found(self, after: int) -> pa.Table:
        """The deleted and inserted tuples, signed, each with the number of its revision. Args:
        after: only tuples of a greater stime can be revised, or be a result.
        """
        known = net([self._shape.empty_table(), *self._known])
        known = known.filter(pc.greater(known.column(STIME), after))
        made: list[pa.Table] = [self._numbered_shape.empty_table()]
        for asked in self._rounds:
            rows = self._made(asked, multiplied(known, 1), after)
            made.append(rows)
            known = net([known, rows.select(self._shape.names)])
        return pa.concat_tables(made)

    @property
    def _numbered_shape(self) -> pa.Schema:
        return self._shape.append(pa.field(_ROW, pa.int64()))

    def _suffices(self, reached: int) -> bool:
        """Whether no older tuples need to be read."""
        live = multiplied(net(self._known), 1)
        live = live.filter(pc.greater(live.column(STIME), reached))
        counted = live.group_by(self._key).aggregate([([], "count_all")])
        enough = pc.greater_equal(counted.column("count_all"), len(self._rounds))
        return bool(pc.sum(enough).as_py() == self._rounds[0].num_rows)

    def _made(self, asked: pa.Table, live: pa.Table, after: int) -> pa.Table:
        """The result of revisions of different keys, given the present tuples."""
        live = live.take(pc.sort_indices(live, [(STIME, "ascending"), (SEQ, "ascending")]))
        numbered = live.select(self._key).append_column(_AT, pa.arange(0, live.num_rows))
        newest = numbered.group_by(self._key).aggregate([(_AT, "max")])
        pairs = asked.select([*self._key, _ROW]).join(newest, self._key, join_type="inner")
        rows, at = pairs.column(_ROW), pairs.column(f"{_AT}_max")
        gone = with_sign(live.take(at), -1).append_column(_ROW, rows)
        replaces = pc.equal(self.request.column(REVISION_KIND).take(rows), str(Kind.REPLACEMENT))
        come = self._replacements(gone.filter(replaces))
        late = come.filter(pc.less_equal(come.column(STIME), after)).column(_ROW)
        parts = [part.select(self._numbered_shape.names) for part in (gone, come)]
        both = pa.concat_tables([part.cast(self._numbered_shape) for part in parts])
        return both.filter(pc.invert(pc.is_in(both.column(_ROW), late.combine_chunks())))

    def _replacements(self, gone: pa.Table) -> pa.Table:
        """The tuples that replace these."""
        new = self.request.take(gone.column(_ROW))
        times = times_of(new, self.schema) if self.schema.time else gone.column(STIME)
        columns = {STIME: times, SEQ: gone.column(SEQ)}
        columns |= {each.name: new.column(each.name) for each in self.schema.fields}
        return with_sign(pa.table(columns), 1).append_column(_ROW, gone.column(_ROW))


def _rounds(request: pa.Table, key: list[str]) -> list[pa.Table]:
    """The revisions in rounds: the first of each key, the second, and so on.

    Raises:
        InvalidInputError: too many of one key.
    """
    rounds: list[pa.Table] = []
    left = request
    while left.num_rows or not rounds:
        if len(rounds) == MOST_OF_A_KEY:
            raise InvalidInputError(
                f"more than {MOST_OF_A_KEY} revisions of one key in one post: send several"
            )
        first = left.group_by(key).aggregate([(_ROW, "min")]).column(f"{_ROW}_min")
        chosen = pc.is_in(left.column(_ROW), first.combine_chunks())
        rounds.append(left.filter(chosen))
        left = left.filter(pc.invert(chosen))
    return rounds


def _signed_shape(schema: Schema) -> pa.Schema:
    """The schema of the log's tuples with their sign, all nullable."""
    fields = [pa.field(each.name, each.type) for each in schema.source]
    return pa.schema([*fields, pa.field(SIGN, pa.int64())])


def of_keys(table: pa.Table, wanted: pa.Table) -> pa.Table:
    """The rows of a table that have one of these keys, in their order."""
    key = wanted.column_names
    if len(key) == 1:
        values = wanted.column(0).combine_chunks()
        return table.filter(pc.is_in(table.column(key[0]), values, skip_nulls=True))
    numbered = table.select(key).append_column(_AT, pa.arange(0, table.num_rows))
    found = numbered.join(wanted.group_by(key).aggregate([]), key, join_type="left semi")
    return table.take(found.column(_AT).combine_chunks().sort())


def _logged(rows: pa.Table, schema: Schema) -> pa.Table:
    """Signed rows in the log's form."""
    comes = pc.greater(rows.column(SIGN), 0)
    kinds = pc.if_else(comes, str(Kind.INSERTION), str(Kind.DELETION))
    columns = {
        REVISED_STIME: rows.column(STIME),
        REVISED_SEQ: rows.column(SEQ),
        REVISION_KIND: kinds,
        **{each.name: rows.column(each.name) for each in schema.fields},
    }
    return pa.table(columns).cast(revisions_schema(schema, source=True).payload)


class LogLookup:
    """Finds tuples by their key in a log's files, newest first. Blocking.

    Args:
        files: the files of a source stream's log, oldest first; they stay while the lookup is used.
    """

    def __init__(self, files: Sequence[Path], schema: Schema) -> None:
        self._files = files
        self._schema = schema

    def newest_first(self, wanted: pa.Table, upto: int) -> Iterator[tuple[int, pa.Table]]:
        """The tuples with these keys and stime <= upto, by row groups: (stime above which all have
        been returned, tuples). If the key has the time, only rows of those times are read.

        Raises:
            As `medusa.engine.streams.log.epochs.reading`.
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
            # other tuples of its least stime may be in the group before
            yield ends.min, of_keys(between(rows, low - 1, high), wanted)


def read_rows(files: Sequence[Path], schema: pa.Schema, after: int, upto: int) -> list[pa.Table]:
    """The rows of a log's files with after < stime <= upto.

    Raises:
        As `medusa.engine.streams.log.epochs.reading`.
    """
    return [rows for path in files for rows in read_groups(path, schema, after, upto)]
