"""Runs a trial: a peer in a folder of its own, from the first schema to the last answer."""

from __future__ import annotations

import logging
import re
import tempfile
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Final

import pyarrow as pa
import trio

from engine.functions.allowed import NO_FUNCTIONS, FunctionsConfig
from engine.objects.query import QueryStatus
from overlay.concurrency import one_error
from overlay.errors import MedusaError, NotFoundError, UnavailableError
from overlay.gossip.config import Preset
from tools.client.async_client import AsyncMedusaClient, open_medusa
from tools.daemon.peer import open_peer
from tools.home.config import Config, load_config
from tools.home.folder import Home
from tools.home.founding import make_peer
from tools.rows.formats import Reading
from tools.rows.post_speed import cut, stime_of
from tools.rows.row_process import open_rows
from tools.trial.rehearsal import Trial

EPOCH_S: Final = 0.05
"""The shortest epoch, seconds: the answers are waited for, and nothing else is computed."""

LOOK_S: Final = 0.2
"""Seconds between two checks whether a task has failed."""

_LOG: Final = re.compile(r"; see \S+$")
"""Of a reason: a file of the peer, which is gone when the reason is read."""

Take = Callable[[str, pa.Table], None]
"""Takes a stream's next tuples; first an empty table."""


async def run_trial(
    trial: Trial,
    take: Take,
    speed: float | None = None,
    functions: FunctionsConfig = NO_FUNCTIONS,
) -> dict[str, int]:
    """Create everything at a peer of its own, post the files, give each answer out as it comes.

    Args:
        speed: times the recorded speed; None: as fast as possible.
        functions: those of users that its queries may call.

    Returns:
        by stream, the rows that came too late, behind the stream's slack.

    Raises:
        MedusaError: it cannot be created or computed, or a row does not fit.
    """
    async with open_peer_of_the_moment(trial.participant, functions) as client:
        return await run_at(client, trial, trial.outputs, take, speed)


async def run_at(
    client: AsyncMedusaClient,
    trial: Trial,
    streams: Iterable[str],
    take: Take,
    speed: float | None = None,
) -> dict[str, int]:
    """The same at a peer that runs. Each stream gives an empty table first.

    Args:
        streams: what to take: streams of `trial.made`.
    """
    late: dict[str, int] = {}

    async def post(stream: str, file: Path, start: _Start) -> None:
        if (rows := await _post(client, stream, file, speed, start)) > 0:
            late[stream] = rows

    with _as_in_the_document(trial):
        await _create(client, trial)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_watch, client, trial, nursery.cancel_scope)
            async with trio.open_nursery() as answers:
                for stream in streams:
                    answers.start_soon(_follow, client, stream, take)
                start = _Start(len(trial.files))
                for stream, file in trial.files.items():
                    answers.start_soon(post, stream, file, start)
            nursery.cancel_scope.cancel()
    return late


async def forget(client: AsyncMedusaClient, trial: Trial) -> None:
    """Stop the trial's queries, so that the peer computes nothing more for them."""
    for query in trial.document.queries:
        with suppress(NotFoundError):  # it could not be created
            await client.stop_query(query.name)


@contextmanager
def _as_in_the_document(trial: Trial) -> Iterator[None]:
    """One error of the tasks, with the document's names."""
    try:
        with one_error():
            yield
    except MedusaError as error:
        raise MedusaError.from_wire(error.code, trial.as_given(str(error))) from None


@asynccontextmanager
async def open_peer_of_the_moment(
    participant: str, functions: FunctionsConfig = NO_FUNCTIONS
) -> AsyncIterator[AsyncMedusaClient]:
    """A federation of one peer, in a folder that goes with it. functions: that it allows."""
    # py4j logs a job that was under way as Spark ended; without a handler Python prints that
    logging.getLogger().addHandler(logging.NullHandler())
    with tempfile.TemporaryDirectory(prefix="medusa-try-") as folder:
        home = Home(Path(folder) / "peer")
        await trio.to_thread.run_sync(make_peer, home, participant, "trial")
        config = _settings(load_config(home, listen=("127.0.0.1", 0)))
        config = replace(config, functions=functions)
        async with open_peer(home, config), open_medusa(str(home.folder)) as client:
            yield client


def _settings(config: Config) -> Config:
    return replace(
        config,
        engine=replace(config.engine, epoch_s=EPOCH_S),
        overlay=replace(config.overlay, preset=Preset.LOCAL),
    )


async def _create(client: AsyncMedusaClient, trial: Trial) -> None:
    document = trial.document
    for schema in document.schemas:
        await client.create_schema(schema)
    for stream in document.streams:
        await client.create_stream(stream)
    read, made = document.views_by_streams()
    for view in read:
        await client.create_view(view)
    for query in document.queries:
        await client.create_query(query)
        await client.set_query_status(query.name, QueryStatus.RUNNING)
    for view in made:
        await client.create_view(view)


async def _follow(client: AsyncMedusaClient, stream: str, take: Take) -> None:
    async with client.subscribe(stream) as subscription:
        take(stream, (await subscription.schema()).empty_table())
        async for epoch in subscription:
            if epoch.table.num_rows:
                take(stream, epoch.table)
            if subscription.ended:
                break


@dataclass
class _Start:
    """The start of files that are posted at the speed of their time: they have one clock.

    Attributes:
        waits: the number of files that have not been opened yet. first: their least stime so far.
    """

    waits: int
    first: int | None = None
    all_open: trio.Event = field(default_factory=trio.Event)

    async def together(self, first: int | None) -> int | None:
        """Wait until all files are open; returns the least stime in any of them."""
        known = [each for each in (self.first, first) if each is not None]
        self.first, self.waits = min(known, default=None), self.waits - 1
        if not self.waits:
            self.all_open.set()
        await self.all_open.wait()
        return self.first


async def _post(
    client: AsyncMedusaClient, stream: str, file: Path, speed: float | None, start: _Start
) -> int:
    """Post a file and end its stream; returns the number of late rows."""
    poster = await client.poster(stream)
    reading = Reading(poster.schema, None, ignore_extra=True)
    with open_rows(file, reading) as rows:
        batches = rows.batches()
        first = await trio.to_thread.run_sync(next, batches, None, abandon_on_cancel=True)
        tables = batches if first is None else chain([first], batches)
        since = None if first is None else stime_of(first, poster.schema)
        origin = await start.together(since)
        began = trio.current_time()
        pieces = cut(tables, poster.schema, speed, origin)
        while True:
            piece = await trio.to_thread.run_sync(next, pieces, None, abandon_on_cancel=True)
            if piece is None:
                break
            await trio.sleep_until(began + piece.due)
            await poster.post(piece.table)
    await poster.post(None, end=True)
    await poster.flush()
    return poster.late


async def _watch(client: AsyncMedusaClient, trial: Trial, scope: trio.CancelScope) -> None:
    """End the trial once a task fails: its answers would never come."""
    while True:
        for query in trial.document.queries:
            for task in (await client.lookup_object(query.name, "query")).tasks:
                if task.reason:
                    reason = _LOG.sub("", task.reason)
                    raise UnavailableError(f"{task.name}: {reason}")
        await trio.sleep(LOOK_S)
