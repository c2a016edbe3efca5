"""`medusa post`: the rows of a file into a stream."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import trio
from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    TaskProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)

from engine.schema import FieldType, Schema
from engine.streams.revisions.columns import request_schema
from overlay.errors import InvalidInputError, MedusaError
from tools.async_client import AsyncMedusaClient, open_medusa
from tools.posting import Poster
from tools.row_process import Asked, Rows, open_rows, read_apart
from tools.rows import Format

SLICE_S: Final = 0.25
"""Real time that one post covers with --speed N: short enough to look steady."""


@dataclass(frozen=True)
class Options:
    """See the command's help. speed: seconds of stime per second; None: no waiting. also: homes.
    revisions: the rows revise tuples posted earlier."""

    kind: str | None = None
    speed: float | None = None
    end: bool = False
    producer: str | None = None
    ignore_extra: bool = False
    patience_s: float = 60.0
    also: tuple[str, ...] = ()
    revisions: bool = False


@dataclass(frozen=True)
class Done:
    """What the stream took. boundary: its boundary afterwards, microseconds. missed: the rows of
    the file, from 1, that revise nothing that is there."""

    rows: int
    late: int
    duplicates: int
    boundary: int
    missed: tuple[int, ...] = ()


@dataclass(frozen=True)
class Piece:
    """Rows to post together, no earlier than `due`, seconds after the first."""

    table: pa.Table
    due: float = 0.0


def post_file(home: str | None, stream: str, file: str, options: Options) -> Done:
    """Post the file; returns when all of it is stored."""

    async def main() -> Done:
        async with open_medusa(
            home, producer=options.producer, patience_s=options.patience_s, also=options.also
        ) as client:
            return await post_rows(client, stream, file, options)

    return trio.run(main)


async def post_rows(client: AsyncMedusaClient, stream: str, file: str, options: Options) -> Done:
    """Post the file through a client that is open."""
    poster = await client.poster(stream)
    schema = poster.schema
    if options.revisions:
        poster.check_revisable()
        schema = request_schema(schema)
    missed: list[int] = []
    with _open(file, schema, options) as rows, _progress(rows) as show:
        try:
            if options.revisions:
                missed = await _revise(poster, rows, options, show)
            else:
                await _post(poster, rows, options, show)
            await poster.flush()
        except InvalidInputError as error:
            with suppress(MedusaError):  # the home may be who refuses a row
                await poster.flush()
            name = rows.asked.name
            said = str(error).removeprefix(f"{name}: ")
            posted = f"the first {poster.rows:,} rows are" if poster.rows else "no row is"
            raise InvalidInputError(f"{name}: {said}; {posted} posted") from None
    return Done(poster.rows, poster.late, poster.duplicates, poster.boundary, tuple(missed))


async def _revise(
    poster: Poster, rows: Rows, options: Options, show: Callable[[int], None]
) -> list[int]:
    """Returns what was missed."""
    if options.speed is not None:
        raise InvalidInputError("--speed is for tuples: revisions have no time of their own")
    missed: list[int] = []
    pieces, first = rows.batches(), 1
    while (table := await trio.to_thread.run_sync(next, pieces, None)) is not None:
        missed += [first + row for row in await poster.revise(table)]
        first += table.num_rows
        show(poster.rows)
    if options.end:
        await poster.post(None, end=True)
        await poster.flush()
    return missed


async def _post(poster: Poster, rows: Rows, options: Options, show: Callable[[int], None]) -> None:
    pieces = cut(rows.batches(), poster.schema, options.speed)
    started = trio.current_time()
    # Read in a thread: the next rows are parsed while these are on their way.
    while (piece := await trio.to_thread.run_sync(next, pieces, None)) is not None:
        await trio.sleep_until(started + piece.due)
        await poster.post(piece.table)
        show(poster.rows)
    if options.end:
        await poster.post(None, end=True)


def cut(batches: Iterator[pa.Table], schema: Schema, speed: float | None) -> Iterator[Piece]:
    """Batches as pieces to post; the same file and speed always give the same pieces.

    Raises:
        InvalidInputError: a speed is asked for, and the schema has no time field.
    """
    if speed is None:
        return (Piece(table) for table in batches)
    field = schema.field(schema.time) if schema.time is not None else None
    if field is None:
        raise InvalidInputError(
            f"--speed {speed:g}: schema {schema.name} has no time field to go by; use --speed max"
        )
    return _cut_by_time(batches, field.name, field.type, speed)


def _cut_by_time(
    batches: Iterator[pa.Table], field: str, kind: FieldType, speed: float
) -> Iterator[Piece]:
    width_us = max(1, int(SLICE_S * speed * 1e6))
    first: int | None = None
    reached = 0
    for table in batches:
        if not table.num_rows:
            continue
        stime = _stime(table.column(field), kind)
        if first is None:
            first = stime[0].as_py()
        # A late row goes with those it came with: slices only ever go forward.
        slices = pc.divide(pc.subtract(stime, first), width_us)
        slices = pc.cumulative_max(pc.max_element_wise(slices, reached))
        starts = [0, *_changes(slices)]
        for start, stop in zip(starts, [*starts[1:], len(table)], strict=True):
            reached = slices[start].as_py()
            yield Piece(table.slice(start, stop - start), reached * SLICE_S)


def _stime(column: pa.ChunkedArray, kind: FieldType) -> pa.Array:
    if kind in {FieldType.SINGLE, FieldType.DOUBLE}:
        column = pc.floor(pc.multiply(column.cast(pa.float64()), 1e6))
    return column.cast(pa.int64()).combine_chunks()


def _changes(values: pa.Array) -> list[int]:
    """The offsets where a value differs from the one before."""
    differs = pc.not_equal(values.slice(1), values.slice(0, len(values) - 1))
    return [offset + 1 for offset in pc.indices_nonzero(differs).to_pylist()]


def _open(file: str, schema: Schema, options: Options) -> AbstractContextManager[Rows]:
    kind = None if options.kind is None else Format(options.kind)
    if file != "-":
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
