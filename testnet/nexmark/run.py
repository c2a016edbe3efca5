"""Nexmark at a peer of the moment: its events are posted, its queries run one after the other over
them, and each answer is compared with the oracle's."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
import trio

from engine.language.document import Document
from engine.language.reading import read_draft
from overlay.concurrency import one_error
from overlay.errors import MedusaError
from overlay.names import SCHEME
from testnet.kit.stages import Stages
from testnet.nexmark.comparison import difference, final_state
from testnet.nexmark.generate import EVENTS_PER_S, START_US, Events, generate
from testnet.nexmark.oracle import QUERIES, expected, side_input
from testnet.nexmark.scripts import script
from tools.client.async_client import AsyncMedusaClient
from tools.trial.peer_of_the_moment import create, follow, open_peer_of_the_moment, post_files
from tools.trial.rehearsal import SELF, Trial, trial_of

BASE: Final = f"{SCHEME}{SELF}/"

_DELETE_S: Final = 10.0
"""Seconds that the deletion of a query may take."""

STAGES: Final = {
    "events": "events are generated",
    "post": "the events are posted to a peer",
    "start": "Spark starts",
    "queries": "the queries run",
}


@dataclass(frozen=True)
class Options:
    """What is run. rate: events in a second of event time. queries: in order; empty: all."""

    events: int
    seed: int
    rate: int = EVENTS_PER_S
    queries: tuple[str, ...] = ()


@dataclass(frozen=True)
class Outcome:
    """How a query went.

    Attributes:
        rows: of its answer; of an updating query, of the table in the end.
        input_rows: that it read.
        missing: rows of the right answer that ours lacks. extra: rows of ours that are not right.
        exact: whether neither is there; None: it did not run.
        seconds: from its creation to the end of its answer; the events are in the streams by then.
        rows_per_s: of the input.
        refused: why it cannot be run. failed: why its run ended without an answer.
    """

    query: str
    input_rows: int = 0
    rows: int = 0
    missing: int = 0
    extra: int = 0
    exact: bool | None = None
    seconds: float = 0.0
    rows_per_s: float = 0.0
    refused: str = ""
    failed: str = ""


@dataclass(frozen=True)
class Result:
    """All outcomes. posting_s: seconds in which the events were posted and acknowledged."""

    events: int
    seed: int
    posting_s: float
    outcomes: tuple[Outcome, ...]

    @property
    def good(self) -> bool:
        """Whether each answer is the right one."""
        return all(each.exact is not False for each in self.outcomes)

    @property
    def failed(self) -> bool:
        """Whether a query that can be run gave no answer."""
        return any(each.failed for each in self.outcomes)


async def run_nexmark(options: Options, stages: Stages) -> Result:
    """Run the queries and compare their answers.

    Raises:
        MedusaError: the peer or Spark does not start, or the events cannot be posted.
    """
    with one_error(), tempfile.TemporaryDirectory(prefix="medusa-nexmark-") as name:
        with stages.stage("events"):
            events, files = await trio.to_thread.run_sync(_write, options, Path(name))
        planned = {query: _plan(query, files) for query in options.queries or tuple(QUERIES)}
        trials = [each for each in planned.values() if isinstance(each, Trial)]
        if not trials:
            refused = tuple(Outcome(query, refused=str(why)) for query, why in planned.items())
            return Result(options.events, options.seed, 0.0, refused)
        outcomes = []
        async with open_peer_of_the_moment(SELF) as client:
            with stages.stage("post"):
                posting_s = await _post(client, trials)
            with stages.stage("start"), suppress(MedusaError):  # it fails again where it counts
                await _answer(client, trials[0])
            with stages.stage("queries"):
                for query, plan in planned.items():
                    stages.say("queries", query)
                    outcomes.append(
                        await _outcome(client, query, plan, events)
                        if isinstance(plan, Trial)
                        else Outcome(query, refused=plan)
                    )
                ran = [each for each in outcomes if each.exact is not None]
                stages.say("queries", f"{len(ran)} of {len(outcomes)}")
    return Result(options.events, options.seed, posting_s, tuple(outcomes))


def _write(options: Options, folder: Path) -> tuple[Events, dict[str, Path]]:
    """Make the events, and write each stream's file; returns the files by the streams' names."""
    events = generate(options.seed, options.events, options.rate)
    side = side_input()
    before = pa.array([START_US - 1] * side.num_rows, pa.timestamp("us", "UTC"))
    tables = {
        "person": events.person,
        "auction": events.auction,
        "bid": events.bid,
        "side_input": side.append_column("dateTime", before),
    }
    files = {name: folder / f"{name}.parquet" for name in tables}
    for name, table in tables.items():
        pq.write_table(table, files[name], compression="none")
    return events, files


def _plan(query: str, files: Mapping[str, Path]) -> Trial | str:
    """The query's trial, or why the query is refused."""
    text = script(query)
    try:
        draft = read_draft(text, BASE)
        wanted = {f"{BASE}{name}": file for name, file in files.items()}
        declared = {f"{BASE}side_input"} if "side_input" in text else set()
        read = {name: file for name, file in wanted.items() if name in draft.reads | declared}
        return trial_of(text, read, None)
    except MedusaError as error:
        return str(error)


async def _post(client: AsyncMedusaClient, trials: Sequence[Trial]) -> float:
    """Create the streams that the queries read, and post their events; returns the seconds."""
    schemas = {each.name: each for trial in trials for each in trial.document.schemas}
    streams = {each.name: each for trial in trials for each in trial.document.streams}
    await create(client, Document(tuple(schemas.values()), tuple(streams.values())))
    began = time.perf_counter()
    await post_files(client, {name: file for each in trials for name, file in each.files.items()})
    return time.perf_counter() - began


async def _outcome(client: AsyncMedusaClient, query: str, trial: Trial, events: Events) -> Outcome:
    """Run a query to its end, and compare its answer."""
    input_rows = sum(pq.read_metadata(file).num_rows for file in trial.files.values())
    began = time.perf_counter()
    try:
        answer = await _answer(client, trial)
    except MedusaError as error:
        return Outcome(query, input_rows, failed=str(error))
    seconds = time.perf_counter() - began
    return await trio.to_thread.run_sync(_judged, query, input_rows, seconds, answer, events)


async def _answer(client: AsyncMedusaClient, trial: Trial) -> pa.Table:
    """Run a query to its end, and delete it; of a table that is updated, the rows in the end.

    Raises:
        MedusaError: it cannot be created or computed.
    """
    tables: list[pa.Table] = []
    queries = trial.document.queries
    (output,) = trial.outputs
    try:
        with one_error():
            await create(client, Document(queries=queries))
            await follow(client, queries, (output,), lambda _, table: tables.append(table))
        schema = (await client.stream_entry(output)).schema
    finally:
        for each in queries:
            # it may not be there, and when the peer has failed nobody answers
            with trio.move_on_after(_DELETE_S, shield=True), suppress(MedusaError):
                await client.delete_query(each.name)
    whole = pa.concat_tables(tables or [schema.derived.empty_table()])
    return final_state(whole, schema.key) if schema.key else whole


def _judged(
    query: str, input_rows: int, seconds: float, answer: pa.Table, events: Events
) -> Outcome:
    try:
        found = difference(answer, expected(query, events))
    except ValueError as error:
        return Outcome(query, input_rows, answer.num_rows, failed=str(error))
    return Outcome(
        query,
        input_rows,
        answer.num_rows,
        found.missing,
        found.extra,
        exact=not (found.missing or found.extra),
        seconds=seconds,
        rows_per_s=input_rows / seconds,
    )
