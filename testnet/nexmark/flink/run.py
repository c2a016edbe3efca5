"""Runs Nexmark's queries in Flink, beside Medusa's run, and compares the answers.

In Flink, the seconds of a query are counted from its submission to the end of its job: its plan,
reading CSV, computing. Before that Java and a cluster start, and a first run is made that does not
count. In Medusa, the seconds are counted from the creation of the query to the end of its answer:
its plan, reading its streams, computing, keeping the answer as a stream, delivering it.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

import trio

from medusa.engine.spark.java import find_java
from medusa.overlay.errors import InvalidInputError, UnavailableError
from medusa.testnet.kit.environments import FLINK, interpreter
from medusa.testnet.nexmark.flink import texts
from medusa.testnet.nexmark.flink.answers import read_answer, right_answer
from medusa.testnet.nexmark.flink.work import Limits, Ran, Text, Work, run_work
from medusa.testnet.nexmark.generate import Events, generate
from medusa.testnet.nexmark.oracle import QUERIES, reads
from medusa.testnet.nexmark.workload import Options, tables_of
from medusa.testnet.workload.run import compared
from medusa.testnet.workload.workload import Beside, Outcome

SYSTEM: Final = "Flink"
PROGRAM: Final = ("-m", "medusa.testnet.nexmark.flink.process")
ROOT: Final = Path(__file__).parents[4]


async def run_flink(
    options: Options,
    say: Callable[[str], None],
    environment: Mapping[str, str] = os.environ,
    limits: Limits = Limits(),  # noqa: B008 - it is frozen
) -> Beside:
    """Run the queries of the options in Flink; if Flink is not installed, it is skipped. Args: say:
    called with the name of the next query.
    """
    try:
        program, around = await trio.to_thread.run_sync(find_flink, environment)
    except (UnavailableError, InvalidInputError) as error:
        return Beside(SYSTEM, skipped=str(error))
    queries = options.queries or tuple(QUERIES)
    with tempfile.TemporaryDirectory(prefix="medusa-flink-") as name:
        folder = Path(name)
        events = await trio.to_thread.run_sync(_write, options, folder)
        work = _work(queries, folder, limits)
        try:
            ran = await run_work(program, around, folder, work, say=say, limits=limits)
        except UnavailableError as error:
            return Beside(SYSTEM, skipped=f"flink does not start: {error}")
        rows = {table: data.num_rows for table, data in tables_of(events).items()}
        outcomes = [
            await trio.to_thread.run_sync(
                judged, each, sum(rows[table] for table in reads(each.query)), folder, events
            )
            for each in ran
        ]
    return Beside(SYSTEM, tuple(outcomes))


def find_flink(environment: Mapping[str, str]) -> tuple[list[str | Path], dict[str, str]]:
    """The program that runs Flink, without its folder, and its environment.

    Raises:
        UnavailableError: there is no Flink here. InvalidInputError: there is no Java.
    """
    python = interpreter(FLINK, environment)
    if python is None:
        raise UnavailableError(FLINK.missing)
    around = {
        **environment,
        "PYTHONPATH": str(ROOT),
        "JAVA_HOME": str(find_java(environment)),
        # no worker for functions in Python, which would listen on all addresses
        "_python_worker_execution_mode": "process",
    }
    return [python, *PROGRAM], around


def _write(options: Options, folder: Path) -> Events:
    events = generate(options.seed, options.events, options.rate)
    texts.write_tables(tables_of(events), folder)
    return events


def _work(queries: tuple[str, ...], folder: Path, limits: Limits) -> Work:
    return Work(
        dict(texts.SETTINGS),
        os.cpu_count() or 1,  # as many tasks at a time as Spark runs at a peer
        [texts.table_text(name, folder) for name in texts.TABLES],
        {query: Text(texts.query_text(query), texts.written(folder / query)) for query in queries},
        texts.DROPPED,
        limits.query,
    )


def judged(ran: Ran, input_rows: int, folder: Path, events: Events) -> Outcome:
    """A query's report, its answer compared with the right one.

    Args:
        folder: the folder with the answer, which is in a subfolder with the query's name.
    """
    outcome = Outcome(ran.query, input_rows, refused=ran.refused, failed=ran.failed)
    if ran.refused or ran.failed:
        return outcome
    right = right_answer(ran.query, events)
    try:
        answer = read_answer(folder / ran.query, right.schema)
    except ValueError as error:
        return replace(outcome, failed=str(error))
    timed = replace(outcome, seconds=ran.seconds, job_s=ran.job_s)
    return compared(timed, answer, lambda: right)
