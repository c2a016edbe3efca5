"""Runs a workload at a temporary peer: posts its rows, runs its scripts one after the other over
them, and compares each answer with the right one."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
import trio

from medusa.engine.language.document import Document
from medusa.engine.reading import read_draft
from medusa.engine.spark.config import Profile
from medusa.overlay.concurrency import one_error
from medusa.overlay.errors import MedusaError
from medusa.overlay.names import SCHEME
from medusa.testnet.kit.stages import Stages
from medusa.testnet.workload.comparison import difference, final_state
from medusa.testnet.workload.patience import (
    PATIENCE_S,
    StandstillError,
    lose_patience,
    patience_with,
)
from medusa.testnet.workload.workload import Outcome, Result, Right, Script, Workload
from medusa.tools.client.async_client import AsyncMedusaClient
from medusa.tools.trial.peer_of_the_moment import (
    create,
    follow,
    open_peer_of_the_moment,
    post_files,
)
from medusa.tools.trial.trial import Trial, trial_of

DELETE_S: Final = 5.0
"""Seconds for the deletion of a query; the peer may have stopped."""


async def run_workload(
    make: Callable[[], Workload],
    stages: Stages,
    patience_s: float = PATIENCE_S,
    profile: Profile = "edge",
) -> Result:
    """Run a workload's scripts and compare their answers.

    Args:
        make: generates the rows; it runs in a separate thread.
        stages: those of `medusa.testnet.workload.workload.STAGES`.
        patience_s: seconds that a script's tasks may all stand still, in addition to the time for
            the rows.
        profile: the profile of Spark: see `medusa.engine.spark.config.SparkConfig`.

    Raises:
        StandstillError: all tasks of a script stood still for longer. MedusaError: the peer or
            Spark does not start, or the rows cannot be posted.
    """
    with one_error(), tempfile.TemporaryDirectory(prefix="medusa-workload-") as name:
        with stages.stage("rows"):
            workload = await trio.to_thread.run_sync(make)
            files = await trio.to_thread.run_sync(write_rows, workload.tables, Path(name))
        patience_s = patience_with(workload.tables, patience_s)
        planned = [
            (each, plan_script(each, files, workload.participant)) for each in workload.scripts
        ]
        trials = [plan for _, plan in planned if isinstance(plan, Trial)]
        if not trials:
            refused = [each for script, plan in planned for each in _refused(script, str(plan))]
            return Result(workload.title, 0.0, tuple(refused))
        outcomes: list[Outcome] = []
        async with open_peer_of_the_moment(workload.participant, profile=profile) as client:
            with stages.stage("post"):
                posting_s = await _post(client, trials)
            with stages.stage("start"):
                await _start(client, trials[0], patience_s)
            with stages.stage("queries"):
                for script, plan in planned:
                    stages.say("queries", ", ".join(script.right))
                    outcomes += (
                        await _outcomes(client, script, plan, patience_s)
                        if isinstance(plan, Trial)
                        else _refused(script, plan)
                    )
                ran = [each for each in outcomes if each.exact is not None]
                stages.say("queries", f"{len(ran)} of {len(outcomes)}")
    return Result(workload.title, posting_s, tuple(outcomes))


def write_rows(tables: Mapping[str, pa.Table], folder: Path) -> dict[str, Path]:
    """Write each stream's rows as a file of the folder; returns the files by the streams' names."""
    files = {name: folder / f"{name.replace('/', '.')}.parquet" for name in tables}
    for name, table in tables.items():
        pq.write_table(table, files[name], compression="none")
    return files


def plan_script(script: Script, files: Mapping[str, Path], participant: str) -> Trial | str:
    """The script's trial over the files of the streams that it reads, or why it is refused."""
    base = f"{SCHEME}{participant}/"
    try:
        names = read_draft(script.text, base).reads | {f"{base}{each}" for each in script.declares}
        read = {f"{base}{name}": file for name, file in files.items() if f"{base}{name}" in names}
        return trial_of(script.text, read, None, participant)
    except MedusaError as error:
        return str(error)


def _refused(script: Script, why: str) -> list[Outcome]:
    return [Outcome(name, refused=why) for name in script.right]


async def _post(client: AsyncMedusaClient, trials: Sequence[Trial]) -> float:
    """Create the streams that the scripts read, and post their rows; returns the seconds."""
    schemas = {each.name: each for trial in trials for each in trial.document.schemas}
    streams = {each.name: each for trial in trials for each in trial.document.streams}
    await create(client, Document(tuple(schemas.values()), tuple(streams.values())))
    began = time.perf_counter()
    await post_files(client, {name: file for each in trials for name, file in each.files.items()})
    return time.perf_counter() - began


async def _start(client: AsyncMedusaClient, trial: Trial, patience_s: float) -> None:
    """Have Spark start and load the classes that jobs need, by a run that is not measured."""
    try:
        await _answers(client, trial, patience_s)
    except StandstillError:
        raise
    except MedusaError:
        pass  # the call fails again in the measured run


async def _outcomes(
    client: AsyncMedusaClient, script: Script, trial: Trial, patience_s: float
) -> list[Outcome]:
    """Run a script to the end of its answers, and compare them.

    Raises:
        StandstillError: its tasks stood still.
    """
    input_rows = sum(pq.read_metadata(file).num_rows for file in trial.files.values())
    began = time.perf_counter()
    try:
        answers = await _answers(client, trial, patience_s)
    except StandstillError:
        raise
    except MedusaError as error:
        return [Outcome(name, input_rows, failed=str(error)) for name in script.right]
    seconds = time.perf_counter() - began
    return [
        await trio.to_thread.run_sync(
            compared, Outcome(name, input_rows, seconds=seconds), answers[name], right
        )
        for name, right in script.right.items()
    ]


async def _answers(
    client: AsyncMedusaClient, trial: Trial, patience_s: float
) -> dict[str, pa.Table]:
    """Run a script's queries to the end, and delete them; returns the answers by their names.

    If an answer is an updated table, the answer is the table's final rows.

    Raises:
        StandstillError: the tasks of the queries stood still. MedusaError: a query cannot be
            created or computed.
    """
    tables: dict[str, list[pa.Table]] = {stream: [] for stream in trial.outputs}
    queries = trial.document.queries
    try:
        with one_error():
            await create(client, Document(queries=queries))
            async with trio.open_nursery() as nursery:
                nursery.start_soon(lose_patience, client, queries, patience_s)
                await follow(
                    client, queries, tables, lambda stream, table: tables[stream].append(table)
                )
                nursery.cancel_scope.cancel()
        keys = {each: (await client.stream_entry(each)).schema.key for each in tables}
    finally:
        for query in reversed(queries):
            # the query may be gone
            with trio.move_on_after(DELETE_S, shield=True), suppress(MedusaError):
                await client.delete_query(query.name)
    base = f"{SCHEME}{trial.participant}/"
    return {
        stream.removeprefix(base): final_or_all(pa.concat_tables(parts), keys[stream])
        for stream, parts in tables.items()
    }


def final_or_all(table: pa.Table, key: Sequence[str]) -> pa.Table:
    """The rows of a stream; for a table, which has a key, its final rows."""
    return final_state(table, key) if key else table


def compared(ran: Outcome, answer: pa.Table, right: Right) -> Outcome:
    """The outcome of a query that ran, its answer compared with the right one."""
    try:
        found = difference(answer, right())
    except ValueError as error:
        return replace(ran, rows=answer.num_rows, failed=str(error))
    return replace(
        ran,
        rows=answer.num_rows,
        missing=found.missing,
        extra=found.extra,
        exact=not (found.missing or found.extra),
        rows_per_s=ran.input_rows / ran.seconds,
    )
