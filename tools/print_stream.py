"""`medusa subscribe`: a stream on standard output."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import IO

import pyarrow as pa
import pyarrow.compute as pc
import trio

from engine.schema import END, STIME
from overlay.errors import InvalidInputError
from tools.async_client import open_medusa
from tools.row_output import open_writer
from tools.rows import Format
from tools.subscription import Subscription


@dataclass(frozen=True)
class Options:
    """after, until: boundaries, microseconds. also: homes. See the command's help for the rest."""

    kind: str
    after: int
    until: int
    subscriber: str
    patience_s: float
    also: tuple[str, ...] = ()


def print_stream(home: str | None, stream: str, options: Options) -> None:
    """Write the stream until it ends or passes `until`.

    Raises:
        InvalidInputError: `until` is not later than `after`: there is nothing between them.
    """
    if options.until <= options.after:
        raise InvalidInputError(f"{stream}: --until must be later than --from")

    async def main() -> None:
        async with (
            open_medusa(home, patience_s=options.patience_s, also=options.also) as client,
            client.subscribe(stream, options.after, options.subscriber) as subscription,
        ):
            await copy(subscription, sys.stdout.buffer, options)

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


def upto(table: pa.Table, until: int) -> pa.Table:
    return table.filter(pc.less_equal(table.column(STIME), until))
