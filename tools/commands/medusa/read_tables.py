"""The work of `medusa table`, and of `medusa post --as-table`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from medusa.engine.objects.schema import BEGINNING, DELETED, END, Schema
from medusa.engine.streams.validate import times_of
from medusa.overlay.errors import InvalidInputError, NotFoundError
from medusa.tools.client.async_client import AsyncMedusaClient, open_medusa
from medusa.tools.client.interrupt import run_interruptible
from medusa.tools.client.posting import Poster
from medusa.tools.client.tables import changed_rows, read_table
from medusa.tools.client.times import parse_time
from medusa.tools.commands.command_line import warn
from medusa.tools.commands.medusa.late_rows import all_late
from medusa.tools.commands.medusa.post_file import Options, reading_for
from medusa.tools.rows.columns import few_names, unfilled_in_words
from medusa.tools.rows.format_names import Format
from medusa.tools.rows.row_output import open_writer
from medusa.tools.rows.row_process import open_rows


def scan(home: str | None, name: str, at: str | None, kind: str) -> None:
    """Write the rows of a table to standard output."""
    rows, _ = _read(home, name, at)
    _write(rows, kind)


def get(home: str | None, name: str, key: Sequence[str], at: str | None, kind: str) -> None:
    """Write the rows that have these values.

    Raises:
        InvalidInputError: an argument is not FIELD=VALUE, of a field of the table. NotFoundError:
            no row has these values.
    """
    rows, schema = _read(home, name, at)
    for each in key:
        field, sign, text = each.partition("=")
        found = schema.field(field)
        if not sign or found is None:
            known = ", ".join(field.name for field in schema.fields)
            raise InvalidInputError(f"{each[:80]!a}: say FIELD=VALUE, of the fields {known[:200]}")
        try:
            value = pa.scalar(text).cast(found.type.arrow)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            raise InvalidInputError(f"{field}: {text[:80]!a} is no {found.type}") from None
        rows = rows.filter(pc.equal(rows.column(field), value))
    if not rows.num_rows:
        raise NotFoundError(f"{name} has no row with {', '.join(key)[:200]}")
    _write(rows, kind)


@dataclass(frozen=True)
class PostedTable:
    """The outcome for the rows of a file. Attributes: rows: the number of rows of the file. posted:
    the number of rows that change the table. late: the number of posted rows that were late.
    waiting: rows of the table that wait for a later one, and so were not compared.
    """

    rows: int
    posted: int
    late: int = 0
    waiting: int = 0


def post_as_table(home: str | None, name: str, file: str, options: Options) -> PostedTable:
    """See `posted_as_table`."""

    async def main() -> PostedTable:
        async with open_medusa(home, patience_s=options.patience_s, also=options.also) as client:
            return await posted_as_table(client, name, file, options)

    return run_interruptible(main)


async def posted_as_table(
    client: AsyncMedusaClient, name: str, file: str, options: Options
) -> PostedTable:
    """Make a table have the rows of a file, and no others.

    Args:
        options: how the file is read.

    Raises:
        InvalidInputError: the stream is no table, or a row does not fit; or all of them are late.
    """
    poster = await client.poster(name)
    with open_rows(Path(file), reading_for(poster.schema, options)) as rows:
        parts = [*rows.batches(), poster.schema.payload.empty_table()]
        unfilled = [field for field in rows.unfilled if field != DELETED]
        if rows.dropped and not options.quiet:
            warn(f"{few_names(rows.dropped)}: no field of the schema, not posted")
        if unfilled and not options.quiet:
            warn(f"{file}: {unfilled_in_words(unfilled)}")
    wanted = pa.concat_tables(parts)
    waiting = await _let_out(poster, wanted)
    now = await read_table(client, name, reach=poster.boundary)
    changes = changed_rows(now, wanted, poster.schema)
    if changes.num_rows:
        await poster.post(changes)
        await poster.flush()
    if poster.late and poster.late == changes.num_rows:
        raise all_late(poster, changes.num_rows)
    return PostedTable(wanted.num_rows, changes.num_rows, poster.late, waiting)


async def _let_out(poster: Poster, wanted: pa.Table) -> int:
    """Have the stream emit the rows that wait for a later one, so that they are compared with the
    file. All rows of the file that can still enter the table are later.

    Returns: how many rows still wait.
    """
    await poster.post(None, boundary=BEGINNING)
    await poster.flush()  # the answer has the stream's boundary
    if poster.schema.time is None or not wanted.num_rows:
        return poster.waiting or 0
    times = times_of(wanted, poster.schema)
    coming = pc.min(times.filter(pc.greater(times, poster.boundary))).as_py()
    if coming is not None:
        await poster.post(None, boundary=coming - 1)
        await poster.flush()
    return poster.waiting or 0


def _read(home: str | None, name: str, at: str | None) -> tuple[pa.Table, Schema]:
    boundary = END if at is None else parse_time(at)

    async def main() -> tuple[pa.Table, Schema]:
        async with open_medusa(home) as client:
            rows = await read_table(client, name, boundary)
            return rows, (await client.stream_entry(name)).schema

    return run_interruptible(main)


def _write(rows: pa.Table, kind: str) -> None:
    writer = open_writer(sys.stdout.buffer, Format(kind), rows.schema)
    writer.write(rows)
    writer.finish()
