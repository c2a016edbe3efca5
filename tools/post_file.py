"""`medusa post`: the rows of a file into a stream."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import trio
from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    TaskProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)

from engine.schema import Schema
from engine.streams.revisions.columns import request_schema
from overlay.errors import InvalidInputError, MedusaError
from tools.async_client import AsyncMedusaClient, open_medusa
from tools.file_position import Position, Trail, decode_position, producer_of
from tools.post_speed import cut
from tools.posting import Poster
from tools.row_process import Asked, Rows, open_rows, read_apart
from tools.rows import Format

STANDARD_INPUT = "-"


@dataclass(frozen=True)
class Options:
    """See the command's help. speed: seconds of stime per second; None: no waiting. also: homes.
    revisions: the rows revise tuples posted earlier."""

    kind: str | None = None
    speed: float | None = None
    end: bool = False
    producer: str | None = None
    again: bool = False
    all_or_nothing: bool = False
    ignore_extra: bool = False
    patience_s: float = 60.0
    also: tuple[str, ...] = ()
    revisions: bool = False


@dataclass(frozen=True)
class Done:
    """What the stream took. before: rows of the file that it had already. boundary: its boundary
    afterwards, microseconds. missed: the rows of the file, from 1, that revise nothing that is
    there."""

    rows: int
    before: int
    late: int
    boundary: int
    missed: tuple[int, ...] = ()


def post_file(home: str | None, stream: str, file: str, options: Options) -> Done:
    """Post the file; returns when all of it is stored.

    Raises:
        InvalidInputError: naming the row and the field that do not fit, and what is stored.
        MedusaError: posting has failed for good.
    """
    producer = options.producer
    if producer is None and file != STANDARD_INPUT:
        producer = producer_of(Path(file))

    async def main() -> Done:
        async with open_medusa(
            home, producer=producer, patience_s=options.patience_s, also=options.also
        ) as client:
            return await post_rows(client, stream, file, options)

    return trio.run(main)


async def post_rows(client: AsyncMedusaClient, stream: str, file: str, options: Options) -> Done:
    """Post the file through a client that is open, from where its producer is."""
    poster = await client.poster(stream)
    schema = poster.schema
    if options.revisions:
        poster.check_revisable()
        schema = request_schema(schema)
    if options.all_or_nothing:
        await trio.to_thread.run_sync(_check, file, schema, options)
    since = _since(await poster.resume(), poster, options)
    with _open(file, schema, options) as rows, _progress(rows) as show:
        trail = Trail(schema.payload)
        name = rows.asked.name
        rest = _named(name, trail.rest(rows.batches(), since))
        try:
            posting = _revise if options.revisions else _post
            missed = await posting(poster, rest, trail, options, show)
            await poster.flush()
        except MedusaError as error:
            with suppress(MedusaError):  # the home may be who refuses a row
                await poster.flush()
            raise type(error)(f"{error}; {_stored(poster, since, options, file)}") from None
    return Done(trail.rows - since.rows, since.rows, poster.late, poster.boundary, tuple(missed))


def _check(file: str, schema: Schema, options: Options) -> None:
    """Read all of the file, and post nothing.

    Raises:
        InvalidInputError: what cannot be posted of it; or it can be read once only.
    """
    if not Path(file).is_file():
        raise InvalidInputError("--all-or-nothing reads a file twice: give the name of one")
    with _open(file, schema, options) as rows:
        try:
            for _ in rows.batches():
                pass
        except InvalidInputError as error:
            raise InvalidInputError(f"{error}; --all-or-nothing: no row is posted") from None


def _since(offset: bytes | None, poster: Poster, options: Options) -> Position:
    """What of the file is stored.

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
    return Trail(poster.schema.payload).position


def _stored(poster: Poster, since: Position, options: Options, file: str) -> str:
    """For who reads an error: what of the file the stream has, and how to go on."""
    rows = since.rows if poster.stored is None else decode_position(poster.stored).rows
    stored = f"the first {rows:,} rows are stored" if rows else "no row is stored"
    if not rows or (file == STANDARD_INPUT and options.producer is None):
        return stored
    without = ", without --again," if options.again else ""
    return f"{stored}, and the same command{without} goes on after them"


def _named(name: str, tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """The tables; errors begin with the file's name."""
    try:
        yield from tables
    except InvalidInputError as error:
        raise InvalidInputError(f"{name}: {str(error).removeprefix(f'{name}: ')}") from None


async def _revise(
    poster: Poster,
    tables: Iterator[pa.Table],
    trail: Trail,
    options: Options,
    show: Callable[[int], None],
) -> list[int]:
    """Returns what was missed."""
    if options.speed is not None:
        raise InvalidInputError("--speed is for tuples: revisions have no time of their own")
    missed: list[int] = []
    while (table := await trio.to_thread.run_sync(next, tables, None)) is not None:
        first = trail.rows + 1
        missed += [first + row for row in await poster.revise(table, offset_after=trail.step)]
        show(trail.rows)
    if options.end:
        await poster.post(None, end=True, offset_after=lambda _: trail.offset)
    return missed


async def _post(
    poster: Poster,
    tables: Iterator[pa.Table],
    trail: Trail,
    options: Options,
    show: Callable[[int], None],
) -> list[int]:
    pieces = cut(tables, poster.schema, options.speed)
    started = trio.current_time()
    # Read in a thread: the next rows are parsed while these are on their way.
    while (piece := await trio.to_thread.run_sync(next, pieces, None)) is not None:
        await trio.sleep_until(started + piece.due)
        await poster.post(piece.table, offset_after=trail.step)
        show(trail.rows)
    if options.end:
        await poster.post(None, end=True, offset_after=lambda _: trail.offset)
    return []


def _open(file: str, schema: Schema, options: Options) -> AbstractContextManager[Rows]:
    kind = None if options.kind is None else Format(options.kind)
    if file != STANDARD_INPUT:
        return open_rows(Path(file), schema, kind, ignore_extra=options.ignore_extra)
    return _standard_input(schema, kind or Format.CSV, options)


@contextmanager
def _standard_input(schema: Schema, kind: Format, options: Options) -> Iterator[Rows]:
    if kind is Format.PARQUET:
        raise InvalidInputError("Parquet has its index at the end: post it from a file")
    asked = Asked("standard input", schema, kind, options.ignore_extra)
    with read_apart(sys.stdin.buffer, asked) as rows:
        yield rows


@contextmanager
def _progress(rows: Rows) -> Iterator[Callable[[int], None]]:
    """A bar on a terminal, nothing elsewhere; drawn when told, by no thread of its own."""
    if not sys.stderr.isatty():
        yield lambda posted: None
        return
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.fields[posted]:,} rows"),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        auto_refresh=False,
    ) as progress:
        task = progress.add_task(Path(rows.asked.name).name, total=rows.total, posted=0)

        def show(posted: int) -> None:
            progress.update(task, completed=rows.position, posted=posted, refresh=True)

        yield show
