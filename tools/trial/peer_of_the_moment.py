"""Runs trials: a peer in a folder of its own, from the first schema to the last answer."""

from __future__ import annotations

import logging
import re
import tempfile
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import Final

import pyarrow as pa
import trio

from medusa.engine.functions.allowed import NO_FUNCTIONS, FunctionsConfig
from medusa.engine.language.document import Document
from medusa.engine.objects.query import Query, QueryStatus
from medusa.engine.spark.config import Profile
from medusa.engine.streams.revisions.columns import folded, revisions_name
from medusa.overlay.concurrency import one_error
from medusa.overlay.errors import MedusaError, NotFoundError, UnavailableError
from medusa.overlay.gossip.config import Preset
from medusa.tools.client.async_client import AsyncMedusaClient, open_medusa
from medusa.tools.client.posting import Poster
from medusa.tools.daemon.peer import open_peer
from medusa.tools.home.config import Config, load_config
from medusa.tools.home.folder import Home
from medusa.tools.home.founding import make_peer
from medusa.tools.rows.columns import unfilled_in_words
from medusa.tools.rows.formats import Reading
from medusa.tools.rows.post_speed import cut, stime_of
from medusa.tools.rows.row_process import Rows, open_rows
from medusa.tools.trial.engines import Engine
from medusa.tools.trial.trial import Trial

EPOCH_S: Final = 0.05
"""The shortest epoch, seconds: a person waits for the answers, and the peer computes nothing
else."""

LOOK_S: Final = 0.2
"""Seconds between two checks whether a task has failed."""

NO_NAMES: Final[Mapping[str, str]] = MappingProxyType({})

_LOG: Final = re.compile(r"; see \S+$")
"""The end of a task's reason that names a log file. It is cut off: the temporary peer and its files
are gone when a person reads the reason."""

Take = Callable[[str, pa.Table], None]
"""A function that takes a stream's next tuples; its first call gets an empty table."""


@dataclass
class Posted:
    """The rows that were read of the files of a trial, by stream.

    Attributes:
        rows: the number of rows. late: the number of rows that were late, behind the stream's
            slack; only of streams with such rows. unfilled: the fields that no column filled; only
            of streams with such fields.
    """

    rows: dict[str, int] = field(default_factory=dict)
    late: dict[str, int] = field(default_factory=dict)
    unfilled: dict[str, list[str]] = field(default_factory=dict)

    def remarks(self, trial: Trial, answers: Mapping[str, int]) -> list[str]:
        """Remarks about the files, and about answers without rows.

        Args: answers: for each stream, the number of its rows.
        """
        told = []
        for stream, file in trial.files.items():
            if not self.rows.get(stream):
                told.append(f"{file}: it has no rows")
            elif stream in self.unfilled:
                told.append(f"{file}: {unfilled_in_words(self.unfilled[stream])}")
        read = sum(self.rows.values())
        for stream, rows in answers.items():
            if read and not rows:
                told.append(f"{trial.as_given(stream)}: no row, of {read:,} rows that were read")
        return told


async def run_trial(
    trial: Trial,
    take: Take,
    speed: float | None = None,
    functions: FunctionsConfig = NO_FUNCTIONS,
    engine: Engine = Engine.SPARK,
) -> Posted:
    """Create everything at a temporary peer, post the files, and pass on each answer as it comes.
    Args: speed: a multiple of the recorded speed; None: as fast as possible. functions: the
    functions of users that its queries may call. engine: the engine that computes them.

    Raises:
        MedusaError: it cannot be created or computed, or a row does not fit.
    """
    async with open_peer_of_the_moment(trial.participant, functions, engine=engine) as client:
        return await run_at(client, trial, trial.outputs, take, speed)


async def run_at(
    client: AsyncMedusaClient,
    trial: Trial,
    streams: Iterable[str],
    take: Take,
    speed: float | None = None,
) -> Posted:
    """Run a trial at a running peer. Each stream first passes on an empty table. Args: streams: the
    streams to take, of `trial.made`.
    """
    with _as_in_the_document(trial):
        await create(client, trial.document)
        async with trio.open_nursery() as both:
            corrected = any(each.lateness_us for each in trial.document.streams)
            queries = trial.document.queries
            both.start_soon(partial(follow, client, queries, streams, take, corrected=corrected))
            posted = await post_files(client, trial.files, speed, trial.names)
    return posted


async def forget(client: AsyncMedusaClient, trial: Trial) -> None:
    """Stop the trial's queries, so that the peer computes nothing more for them."""
    for query in trial.document.queries:
        with suppress(NotFoundError):  # the query may not have been created
            await client.stop_query(query.name)


@contextmanager
def _as_in_the_document(trial: Trial) -> Iterator[None]:
    """Turn an exception group of `MedusaError` into its first error, whose message has the streams'
    names as the trial's document writes them."""
    try:
        with one_error():
            yield
    except MedusaError as error:
        raise MedusaError.from_wire(error.code, trial.as_given(str(error))) from None


@asynccontextmanager
async def open_peer_of_the_moment(
    participant: str,
    functions: FunctionsConfig = NO_FUNCTIONS,
    profile: Profile = "edge",
    engine: Engine = Engine.SPARK,
) -> AsyncIterator[AsyncMedusaClient]:
    """Start a peer of a federation of its own; none of its files stay. Yields a client of it. Args:
    functions: the functions that it allows. profile: the profile of Spark: see
    `medusa.engine.spark.config.SparkConfig`. engine: the engine of its tasks.
    """
    # py4j logs a job that was under way as Spark ended; without a handler Python prints that
    logging.getLogger().addHandler(logging.NullHandler())
    with tempfile.TemporaryDirectory(prefix="medusa-try-") as folder:
        home = Home(Path(folder) / "peer")
        await trio.to_thread.run_sync(make_peer, home, participant, "trial")
        config = _settings(load_config(home, listen=("127.0.0.1", 0)), profile)
        config = replace(config, functions=functions)
        async with (
            open_peer(home, config, engine.execution),
            open_medusa(str(home.folder)) as client,
        ):
            yield client


def _settings(config: Config, profile: Profile) -> Config:
    return replace(
        config,
        spark=replace(config.spark, profile=profile),
        engine=replace(config.engine, epoch_s=EPOCH_S),
        overlay=replace(config.overlay, preset=Preset.LOCAL),
    )


async def create(client: AsyncMedusaClient, document: Document) -> None:
    """Create everything that a document defines, and start its queries.

    Raises:
        MedusaError: the peer refuses a definition.
    """
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


async def follow(
    client: AsyncMedusaClient,
    queries: Iterable[Query],
    outputs: Iterable[str],
    take: Take,
    *,
    corrected: bool = False,
) -> None:
    """Pass on the tuples of the outputs as they come, until these streams have ended. Args:
    corrected: whether to pass on the tuples of streams with revisions at the end, with the
    revisions applied.

    Raises:
        UnavailableError: a task of the queries has failed: its answers would never come.
    """
    async with trio.open_nursery() as nursery:
        nursery.start_soon(watch, client, tuple(queries))
        async with trio.open_nursery() as answers:
            for stream in outputs:
                following = _follow_corrected if corrected else _follow
                answers.start_soon(following, client, stream, take)
        nursery.cancel_scope.cancel()


async def post_files(
    client: AsyncMedusaClient,
    files: Mapping[str, Path],
    speed: float | None = None,
    names: Mapping[str, str] = NO_NAMES,
) -> Posted:
    """Post each stream's file and end the stream.

    Args:
        speed: a multiple of the recorded speed; None: as fast as possible.
        names: the field of each column that has another name than its field.

    Raises:
        MedusaError: a row does not fit.
    """
    posted = Posted()
    start = _Start(len(files))

    async def post(stream: str, file: Path) -> None:
        poster = await client.poster(stream)
        schema = poster.schema
        mapped = {column: field for column, field in names.items() if schema.field(field)}
        reading = Reading(schema, None, ignore_extra=True, names=mapped)
        with open_rows(file, reading) as rows:
            posted.rows[stream] = await _post(poster, rows, speed, start)
        if poster.late:
            posted.late[stream] = poster.late
        if rows.unfilled:
            posted.unfilled[stream] = rows.unfilled

    async with trio.open_nursery() as nursery:
        for stream, file in files.items():
            nursery.start_soon(post, stream, file)
    return posted


async def _follow_corrected(client: AsyncMedusaClient, stream: str, take: Take) -> None:
    if not (await client.stream_entry(stream)).is_revised:
        await _follow(client, stream, take)
        return
    tables: dict[str, list[pa.Table]] = {stream: [], revisions_name(stream): []}
    for name in tables:
        await _follow(client, name, lambda of, table: tables[of].append(table))
    stable, revisions = map(pa.concat_tables, tables.values())
    take(stream, stable.schema.empty_table())
    take(stream, folded(stable, [revisions]))


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
    """The common start of files that are posted at the speed of their times.

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


async def _post(poster: Poster, rows: Rows, speed: float | None, start: _Start) -> int:
    """Post a file's rows and end its stream; returns their number."""
    count = 0
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
        count += piece.table.num_rows
    await poster.post(None, end=True)
    await poster.flush()
    return count


async def watch(client: AsyncMedusaClient, queries: Sequence[Query]) -> None:
    """Run for ever. Raises: UnavailableError: a task of the queries has failed."""
    while True:
        for query in queries:
            for task in (await client.lookup_object(query.name, "query")).tasks:
                if task.reason:
                    reason = _LOG.sub("", task.reason)
                    raise UnavailableError(f"{task.name}: {reason}")
        await trio.sleep(LOOK_S)
