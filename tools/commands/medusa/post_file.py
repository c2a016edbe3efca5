"""`medusa post`: posts the rows of a file to a stream, from the position of the file's producer
on."""

from __future__ import annotations

import re
import sys
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import AbstractContextManager, aclosing, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Final

import pyarrow as pa
import trio

from medusa.engine.objects.definitions import Idle, StreamDefinition
from medusa.engine.objects.schema import END, Schema
from medusa.engine.streams.revisions.columns import request_schema
from medusa.overlay.errors import InvalidInputError, MedusaError, NotAuthorisedError
from medusa.overlay.names import ObjectName
from medusa.tools.client.async_client import AsyncMedusaClient, open_medusa
from medusa.tools.client.interrupt import run_interruptible
from medusa.tools.client.posting import Poster
from medusa.tools.commands.command_line import warn
from medusa.tools.commands.medusa.file_position import Position, Trail, decode_position, producer_of
from medusa.tools.commands.medusa.follow import follow
from medusa.tools.commands.medusa.late_rows import all_late
from medusa.tools.commands.medusa.post_progress import PostProgress, open_progress
from medusa.tools.commands.medusa.waiting_rows import lets_out
from medusa.tools.rows.columns import few_names, unfilled_in_words
from medusa.tools.rows.format_names import Format
from medusa.tools.rows.formats import Reading
from medusa.tools.rows.post_speed import Piece, cut
from medusa.tools.rows.row_process import ReadRequest, Rows, open_rows, read_apart

STANDARD_INPUT: Final = "-"

_ROW: Final = re.compile(r"\brow (\d+)\b")


@dataclass(frozen=True)
class Options:
    """The options of `medusa post`; see the command's help.

    Attributes:
        speed: seconds of stime per second; None: no waiting.
        names: the field of each column that has another name than its field.
        also: homes of other peers of ours.
        revisions: the rows revise tuples posted earlier.
        follow: the file grows.
        quiet: no progress is shown.
    """

    kind: str | None = None
    speed: float | None = None
    end: bool = False
    producer: str | None = None
    again: bool = False
    all_or_nothing: bool = False
    ignore_extra: bool = False
    names: Mapping[str, str] = field(default_factory=dict)
    patience_s: float = 60.0
    also: tuple[str, ...] = ()
    revisions: bool = False
    follow: bool = False
    quiet: bool = False


@dataclass(frozen=True)
class Done:
    """The outcome: the rows that the stream took.

    Attributes: before: rows of the file that the stream had already. boundary: the stream's
    boundary afterwards, microseconds.
        missed: the rows of the file, from 1, that revise no kept tuple. dropped: columns of the
        file that the schema does not have. unfilled: fields of the schema that no column of the
        file fills: they are null. inserted: late rows within the stream's lateness. waiting: rows
        of the stream that are later than its boundary, so that nobody reads them yet.
            None: an interrupted command does not know.
        let_out_by: how these rows become visible, in words. under_way: rows that were sent, or to
        be sent, when the command was interrupted: the same command posts those that the stream
        lacks.
    """

    rows: int
    before: int
    late: int
    boundary: int
    missed: tuple[int, ...] = ()
    dropped: tuple[str, ...] = ()
    inserted: int = 0
    unfilled: tuple[str, ...] = ()
    under_way: int = 0
    waiting: int | None = 0
    let_out_by: str = ""


def post_file(
    home: str | None,
    stream: str,
    file: str,
    options: Options,
    on_interrupt: Callable[[Done], None] = lambda _: None,
) -> Done:
    """Post the file; returns when all of it is stored.

    Args:
        on_interrupt: called with the outcome so far, if Ctrl-C or SIGTERM ends it.

    Raises:
        InvalidInputError: a row does not fit; names the row, the field, and the stored part.
        MedusaError: posting has failed for good.
    """
    producer = options.producer
    if producer is None and file != STANDARD_INPUT:
        producer = producer_of(Path(file))

    begun: list[Posting] = []

    async def main() -> Done:
        async with open_medusa(
            home, producer=producer, patience_s=options.patience_s, also=options.also
        ) as client:
            return await post_rows(client, stream, file, options, begun.append)

    try:
        return run_interruptible(main)
    except (KeyboardInterrupt, SystemExit):
        for posting in begun:
            on_interrupt(posting.so_far)
        raise


def end_stream(home: str | None, stream: str, options: Options) -> Done:
    """Say that no tuple follows in the stream.

    Raises:
        NotAuthorisedError: another participant owns the stream.
        MedusaError: posting has failed for good.
    """

    async def main() -> Done:
        async with open_medusa(home, patience_s=options.patience_s, also=options.also) as client:
            poster = await client.poster(stream)
            await poster.post(None, end=True)
            await poster.flush()
            if poster.boundary != END:
                owner = ObjectName.parse(stream).participant
                raise NotAuthorisedError(f"{stream}: only its owner, {owner}, ends it")
            return Done(0, 0, 0, poster.boundary)

    return run_interruptible(main)


async def post_rows(
    client: AsyncMedusaClient,
    stream: str,
    file: str,
    options: Options,
    on_begin: Callable[[Posting], None] = lambda _: None,
) -> Done:
    """Post the file through an open client, from its producer's position on; with `follow` it ends
    only with an error. on_begin: called with the posting."""
    poster = await client.poster(stream)
    schema = poster.schema
    definition = (await client.stream_entry(stream)).stream
    if options.revisions:
        poster.check_revisable()
        schema = request_schema(schema)
    async with open_progress(poster, quiet=options.quiet) as progress:
        posting = Posting(poster, reading_for(schema, options), options, progress, definition)
        if options.all_or_nothing:
            await trio.to_thread.run_sync(_check, file, posting.reading)
        posting.since = _since(await poster.resume(), poster, options)
        on_begin(posting)
        try:
            if options.follow:
                await follow(
                    Path(file), posting.reading, client.producer, posting.since, posting.post
                )
            else:
                with _open(file, posting.reading) as rows:
                    reached = await posting.post(rows, posting.since)
                if options.end:
                    await poster.post(None, end=True, offset_after=lambda _: reached.offset)
            await poster.flush()
        except MedusaError as error:
            with suppress(MedusaError):  # the refusal of a row may come from the leader itself
                await poster.flush()
            if posting.trail.differs:
                raise
            stored = _stored(poster, posting.since, file, options)
            raise type(error)(f"{_of_file(error, posting)}; {stored}") from None
    posting.check_late()
    await poster.leave()  # the answer tells how many rows wait then
    return posting.done


@dataclass
class Posting:
    """The posting of a file to a stream.

    Attributes:
        since: the part that was stored before. posted: rows that were queued.
        trail: the trail of the file that is read now. missed, dropped, unfilled: see `Done`.
    """

    poster: Poster
    reading: Reading
    options: Options
    progress: PostProgress
    stream: StreamDefinition
    since: Position = field(default_factory=Position)
    posted: int = 0
    missed: list[int] = field(default_factory=list)
    dropped: tuple[str, ...] = ()
    unfilled: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        self.trail = Trail(self.reading.schema.payload)
        self._late_told = 0

    @property
    def done(self) -> Done:
        return Done(
            self.posted,
            self.since.rows,
            self.poster.late,
            self.poster.boundary,
            tuple(self.missed),
            self.dropped,
            self.poster.inserted,
            self.unfilled,
            waiting=self.poster.waiting,
            let_out_by=lets_out(self.stream),
        )

    @property
    def so_far(self) -> Done:
        """The outcome so far, by the received answers."""
        answered = self.poster.rows + self.poster.late + self.poster.inserted
        rows = min(answered, self.posted)  # the answer to a repeated post has no rows
        return replace(self.done, rows=rows, under_way=self.posted - rows)

    async def post(self, rows: Rows, since: Position) -> Position:
        """Post the rows after a position; returns the position at the end."""
        trail = self.trail = Trail(self.reading.schema.payload)
        self.progress.opened(rows, since.rows)
        tables = _named(rows.asked.name, trail.rest(rows.batches(), since))
        started = trio.current_time()
        # read in a thread: the next rows are parsed while these are under way
        pieces = _in_thread(cut(tables, self.poster.schema, self.options.speed))
        async with aclosing(pieces):
            async for piece in pieces:
                await self._post_piece(piece, rows, trail, started)
        self._report_unfilled(rows)
        if not trail.rows and not rows.growing and not self.options.quiet:
            warn(f"{rows.asked.name}: it has no rows")
        return trail.position

    async def _post_piece(self, piece: Piece, rows: Rows, trail: Trail, started: float) -> None:
        if rows.caught_up is not None:
            if rows.goes_on():
                await self._caught_up(rows.caught_up)
            return
        await trio.sleep_until(started + piece.due)
        first = trail.rows + 1
        if self.options.revisions:
            missed = await self.poster.revise(piece.table, offset_after=trail.step)
            self.missed += [first + row for row in missed]
        else:
            await self.poster.post(piece.table, offset_after=trail.step)
        self.posted += piece.table.num_rows
        self.progress.seen = trail.rows
        self._report_dropped(rows)
        if rows.growing:
            self._report_unfilled(rows)

    async def _caught_up(self, at: float) -> None:
        """Note that all rows that a followed file had at the time `at` are posted. So no earlier
        row will follow, and the stream need not wait for its clock. at: seconds since the epoch.
        """
        if self.stream.idle is Idle.CLOCK and self.poster.schema.time is not None:
            await self.poster.post(None, boundary=int(at * 1e6) - self.stream.slack_us - 1)
        await self.poster.flush()
        self.check_late()
        if self.poster.late > self._late_told and not self.options.quiet:
            late = f"{self.poster.late:,} of {self.posted:,} rows were late"
            warn(f"{late}: they are in {self.poster.stream}/late")
        self._late_told = self.poster.late

    def check_late(self) -> None:
        """
        Raises:
            InvalidInputError: rows were posted, and not one of them was in time.
        """
        if self.poster.late and self.poster.late == self.posted:
            raise all_late(self.poster, self.posted, by_clock=self.stream.idle is Idle.CLOCK)

    def _report_dropped(self, rows: Rows) -> None:
        """Report each dropped column once."""
        new = [name for name in rows.dropped if name not in self.dropped]
        if new:
            self.dropped += tuple(new)
            if not self.options.quiet:
                warn(f"{few_names(new)}: no field of the schema, not posted")

    def _report_unfilled(self, rows: Rows) -> None:
        """Report the fields without columns once for each file; for a growing file, at its first
        rows."""
        if self.options.revisions:
            return  # a deletion has only the key
        if rows.unfilled and not self.unfilled and not self.options.quiet:
            warn(f"{rows.asked.name}: {unfilled_in_words(rows.unfilled)}")
        self.unfilled = tuple(rows.unfilled)


async def _in_thread(pieces: Iterator[Piece]) -> AsyncGenerator[Piece, None]:
    """Wait for each piece in a thread, which is abandoned when nobody waits any more."""
    take = partial(next, pieces, None)
    while (piece := await trio.to_thread.run_sync(take, abandon_on_cancel=True)) is not None:
        yield piece


def reading_for(schema: Schema, options: Options) -> Reading:
    """How a file is read, by the options.

    Raises:
        InvalidInputError: the schema has no field that the options name.
    """
    for column, name in options.names.items():
        if schema.field(name) is None:
            known = ", ".join(each.name for each in schema.fields)
            raise InvalidInputError(
                f"--map {column}={name}: {schema.name} has no field {name!r}; it has: {known}"
            )
    kind = None if options.kind is None else Format(options.kind)
    return Reading(schema, kind, options.ignore_extra, options.names)


def _check(file: str, reading: Reading) -> None:
    """Read all of the file, and post nothing.

    Raises:
        InvalidInputError: a row cannot be posted; or the file can be read only once.
    """
    if not Path(file).is_file():
        raise InvalidInputError("--all-or-nothing reads a file twice: give the name of one")
    with _open(file, reading) as rows:
        try:
            for _ in rows.batches():
                pass
        except InvalidInputError as error:
            raise InvalidInputError(f"{error}; --all-or-nothing: no row is posted") from None


def _since(offset: bytes | None, poster: Poster, options: Options) -> Position:
    """The rows of the file that are stored.

    Raises:
        InvalidInputError: a client of another kind has posted as this producer.
    """
    if offset and not options.again:
        return decode_position(offset)
    if offset == b"" and options.producer is not None:
        raise InvalidInputError(
            f"--producer {options.producer}: somebody has posted to {poster.stream} under that "
            "name, and no file: give another name"
        )
    return Position()


def _stored(poster: Poster, since: Position, file: str, options: Options) -> str:
    """A sentence for the reader of an error: the stored part of the file, and how to continue."""
    rows = since.rows if poster.stored is None else decode_position(poster.stored).rows
    stored = f"the first {rows:,} rows are stored" if rows else "no row is stored"
    if not rows or (file == STANDARD_INPUT and options.producer is None):
        return stored
    without = ", without --again," if options.again else ""
    return f"{stored}, and the same command{without} goes on after them"


def _of_file(error: MedusaError, posting: Posting) -> str:
    """The error, with rows counted in the file: the leader counts from the first row of a post."""
    poster = posting.poster
    if not poster.failure_told:
        return str(error)
    before = posting.since.rows
    if poster.refused_after is not None:
        before = decode_position(poster.refused_after).rows
    return _ROW.sub(lambda match: f"row {int(match[1]) + before}", str(error), count=1)


def _named(name: str, tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """The tables; errors begin with the file's name."""
    try:
        yield from tables
    except InvalidInputError as error:
        raise InvalidInputError(f"{name}: {str(error).removeprefix(f'{name}: ')}") from None


def _open(file: str, reading: Reading) -> AbstractContextManager[Rows]:
    if file != STANDARD_INPUT:
        return open_rows(Path(file), reading)
    return read_apart(sys.stdin.buffer, ReadRequest("standard input", reading))
