"""`medusa subscribe`: writes a stream's tuples, or its changes, to standard output."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import IO, Final

import pyarrow as pa
import pyarrow.compute as pc
import trio

from medusa.engine.objects.schema import END, STIME
from medusa.engine.streams.revisions.corrections import Change, Corrections, Kind
from medusa.overlay.errors import InvalidInputError, MedusaError
from medusa.tools.client.async_client import open_medusa
from medusa.tools.client.calls import ClientCalls
from medusa.tools.client.corrected_subscription import CorrectedSubscription
from medusa.tools.client.interrupt import run_interruptible
from medusa.tools.client.link import open_background
from medusa.tools.client.subscription import Subscription
from medusa.tools.commands.command_line import warn
from medusa.tools.monitor.waiting_words import WAIT_S, cause_now, in_words
from medusa.tools.rows.format_names import Format
from medusa.tools.rows.row_output import RowWriter, open_writer

KIND: Final = "change"
"""The name of the column with the kind of change; underscores are appended if the stream has a
column of that name."""


@dataclass(frozen=True)
class Options:
    """The options of `medusa subscribe`; see the command's help.

    Attributes:
        after, until: boundaries, microseconds.
        also: homes of other peers of ours.
        corrections: their form; None: only stable tuples are written.
        limit: rows; None: all.
    """

    kind: str
    after: int
    until: int
    subscriber: str
    patience_s: float
    also: tuple[str, ...] = ()
    corrections: str | None = None
    limit: int | None = None


def print_stream(home: str | None, stream: str, options: Options) -> None:
    """Write the stream until it ends or passes `until`.

    Raises:
        InvalidInputError: `until` is not later than `after`.
    """
    if options.until <= options.after:
        raise InvalidInputError(f"{stream}: --until must be later than --from")

    async def main() -> None:
        opening = open_medusa(home, patience_s=options.patience_s, also=options.also)
        async with opening as client, open_background() as background:
            if sys.stderr.isatty():
                background.start_soon(report_waits, client, stream)
            if options.corrections is None:
                plain = client.subscribe(stream, options.after, options.subscriber)
                async with plain:
                    await copy(plain, sys.stdout.buffer, options)
                return
            how = Corrections(options.corrections)
            async with client.follow(stream, how, options.after, options.subscriber) as corrected:
                await copy_changes(corrected, sys.stdout.buffer, options)

    run_interruptible(main)


async def report_waits(client: ClientCalls, stream: str) -> None:
    """Write to standard error why the stream stands still, each time that the reason changes."""
    told: tuple[object, ...] = ()
    pause = WAIT_S
    while True:
        await trio.sleep(pause)
        with suppress(MedusaError):  # the subscription itself reports a broken link
            snapshot = await client.status()
            tasks = [task for peer in snapshot.peers for task in peer.tasks if not task.owner]
            cause = cause_now(stream, tasks)
            if cause is not None and told != (told := (cause.stream, cause.at, cause.until)):
                warn(f"{stream}: {in_words(cause)}")
        pause = LOOK_S


LOOK_S: Final = 30.0
"""Seconds between two checks why a stream stands still, after the first: each asks all peers."""


async def copy(subscription: Subscription, file: IO[bytes], options: Options) -> None:
    """Write the epochs of a subscription to a file, flushed one by one; nothing if it is
    refused."""
    schema = await subscription.schema()
    epoch = await anext(subscription, None)
    with _open_output(file, schema, options) as output:
        while epoch is not None:
            table = upto(epoch.table, options.until) if epoch.upto > options.until else epoch.table
            await output.write(table)
            if output.is_full or (epoch.upto >= options.until and options.until < END):
                break
            epoch = await anext(subscription, None)


async def copy_changes(
    subscription: CorrectedSubscription, file: IO[bytes], options: Options
) -> None:
    """Write the changes to a file, one by one. Each tuple is a row with the kind of its change.
    UNDO and REC_DONE are rows of their own, whose stime is the boundary after which tentative
    tuples are dropped, and up to which all tuples are final."""
    schema = marked_schema(await subscription.schema())
    with _open_output(file, schema, options) as output:
        async for change in subscription:
            table = marked(change, schema)
            if change.upto > options.until:
                table = upto(table, options.until)
            await output.write(table)
            if output.is_full or (change.boundary >= options.until and options.until < END):
                break


class _Output:
    """Passes rows to a writer, up to the limit."""

    def __init__(self, writer: RowWriter, limit: int | None) -> None:
        self._writer = writer
        self._left = limit

    @property
    def is_full(self) -> bool:
        return self._left == 0

    async def write(self, table: pa.Table) -> None:
        if self._left is not None:
            table = table.slice(0, self._left)
            self._left -= table.num_rows
        if table.num_rows:
            # written in a thread: the reader of the pipe may be slow, and the link must be kept
            # alive
            await trio.to_thread.run_sync(self._writer.write, table, abandon_on_cancel=True)


@contextmanager
def _open_output(file: IO[bytes], schema: pa.Schema, options: Options) -> Iterator[_Output]:
    """Open the output. It is complete when the block ends, also by Ctrl-C or an error."""
    writer = open_writer(file, Format(options.kind), schema)
    try:
        yield _Output(writer, options.limit)
    finally:
        writer.finish()


def marked_schema(schema: pa.Schema) -> pa.Schema:
    """The schema with a first column for the kind of change; an UNDO has only that column and
    stime."""
    name = KIND
    while name in schema.names:
        name += "_"
    fields = [pa.field(each.name, each.type) for each in schema]
    return pa.schema([pa.field(name, pa.string()), *fields])


def marked(change: Change, schema: pa.Schema) -> pa.Table:
    """The rows of a change: its tuples, or one row for an UNDO or REC_DONE."""
    first = schema.names[0]
    if change.kind in {Kind.UNDO, Kind.REC_DONE}:
        at = change.after if change.kind is Kind.UNDO else change.upto
        row = {first: change.kind.value, STIME: at}
        return pa.Table.from_pylist([row], schema=schema)
    kinds = pa.repeat(pa.scalar(change.kind.value), change.table.num_rows)
    return change.table.add_column(0, first, kinds).cast(schema)


def upto(table: pa.Table, until: int) -> pa.Table:
    return table.filter(pc.less_equal(table.column(STIME), until))
