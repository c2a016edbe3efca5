"""`medusa subscribe`: a stream on standard output."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import IO, Final

import pyarrow as pa
import pyarrow.compute as pc
import trio

from engine.schema import END, STIME
from engine.streams.corrections import Change, Corrections, Kind
from overlay.errors import InvalidInputError
from tools.async_client import open_medusa
from tools.corrected_subscription import CorrectedSubscription
from tools.row_output import open_writer
from tools.rows import Format
from tools.subscription import Subscription

KIND: Final = "change"
"""The column that says what kind of change a row is part of; with underscores behind it where the
stream has one of that name."""


@dataclass(frozen=True)
class Options:
    """after, until: boundaries, microseconds. also: homes. corrections: how they are told; None:
    only what is stable is written. See the command's help for the rest."""

    kind: str
    after: int
    until: int
    subscriber: str
    patience_s: float
    also: tuple[str, ...] = ()
    corrections: str | None = None


def print_stream(home: str | None, stream: str, options: Options) -> None:
    """Write the stream until it ends or passes `until`.

    Raises:
        InvalidInputError: `until` is not later than `after`: there is nothing between them.
    """
    if options.until <= options.after:
        raise InvalidInputError(f"{stream}: --until must be later than --from")

    async def main() -> None:
        opening = open_medusa(home, patience_s=options.patience_s, also=options.also)
        async with opening as client:
            if options.corrections is None:
                plain = client.subscribe(stream, options.after, options.subscriber)
                async with plain:
                    await copy(plain, sys.stdout.buffer, options)
                return
            how = Corrections(options.corrections)
            async with client.follow(stream, how, options.after, options.subscriber) as corrected:
                await copy_changes(corrected, sys.stdout.buffer, options)

    trio.run(main)


async def copy(subscription: Subscription, file: IO[bytes], options: Options) -> None:
    """The epochs of a subscription to a file, flushed one by one; nothing if it is refused."""
    schema = await subscription.schema()
    epoch = await anext(subscription, None)
    writer = open_writer(file, Format(options.kind), schema)
    while epoch is not None:
        table = upto(epoch.table, options.until) if epoch.upto > options.until else epoch.table
        if table.num_rows:
            # In a thread: whoever reads the pipe may be slow, and the link is to be kept alive.
            await trio.to_thread.run_sync(writer.write, table, abandon_on_cancel=True)
        if epoch.upto >= options.until and options.until < END:
            break
        epoch = await anext(subscription, None)
    writer.finish()


async def copy_changes(
    subscription: CorrectedSubscription, file: IO[bytes], options: Options
) -> None:
    """The changes to a file, one by one: a row a tuple, which says what kind of change it is part
    of. UNDO and REC_DONE are rows of their own, whose stime is the boundary after which tentative
    tuples are gone, and up to which everything is final."""
    schema = marked_schema(await subscription.schema())
    writer = open_writer(file, Format(options.kind), schema)
    async for change in subscription:
        table = marked(change, schema)
        if change.upto > options.until:
            table = upto(table, options.until)
        if table.num_rows:
            await trio.to_thread.run_sync(writer.write, table, abandon_on_cancel=True)
        if change.boundary >= options.until and options.until < END:
            break
    writer.finish()


def marked_schema(schema: pa.Schema) -> pa.Schema:
    """With a first column for the kind of change; an UNDO leaves all others but stime empty."""
    name = KIND
    while name in schema.names:
        name += "_"
    fields = [pa.field(each.name, each.type) for each in schema]
    return pa.schema([pa.field(name, pa.string()), *fields])


def marked(change: Change, schema: pa.Schema) -> pa.Table:
    """The tuples of a change, or the one row that stands for it."""
    first = schema.names[0]
    if change.kind in {Kind.UNDO, Kind.REC_DONE}:
        at = change.after if change.kind is Kind.UNDO else change.upto
        row = {first: change.kind.value, STIME: at}
        return pa.Table.from_pylist([row], schema=schema)
    kinds = pa.repeat(pa.scalar(change.kind.value), change.table.num_rows)
    return change.table.add_column(0, first, kinds).cast(schema)


def upto(table: pa.Table, until: int) -> pa.Table:
    return table.filter(pc.less_equal(table.column(STIME), until))
