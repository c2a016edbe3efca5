"""A program that runs queries in Flink's Table API, one after the other, in a cluster of its own in
this process. The cluster stays for all queries: to start one for each job would cost half a second.

    python -m medusa.testnet.nexmark.flink.process FOLDER

`FOLDER/work.json` has what `medusa.testnet.nexmark.flink.work.Work` says. Each line of the output
is a report as JSON: `{"start_s": ...}` first, then one for each query, as
`medusa.testnet.nexmark.flink.work` reads them. A query runs twice: first its rows are dropped, and
the time counts; then they are written, for the comparison.

Flink is in an environment of its own: the program imports only modules of Medusa that need no
package.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from pyflink.java_gateway import get_gateway
from pyflink.table import EnvironmentSettings, TableEnvironment, TableResult

from medusa.testnet.nexmark.flink.reasons import is_timeout, reason

RESULTS = "results"
"""The name of the table that gets a query's rows."""

_BINDING = ("jobmanager.bind-host", "taskmanager.bind-host")


def main(folder: Path) -> None:
    """Run the queries of a folder. Flink's own output goes to standard error."""
    lines = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    work = json.loads((folder / "work.json").read_text())
    began = time.perf_counter()
    tables = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    for name, value in {**work["settings"], **_cluster(work["cores"])}.items():
        tables.get_config().set(name, value)
    for statement in work["tables"]:
        tables.execute_sql(statement)
    queries = work["queries"]
    # the first query, which loads the classes that jobs need; it fails again below
    with suppress(Exception):
        first = next(iter(queries.values()))
        _end(_start(tables, first["text"], work["dropped"]), work["limit_s"])
    print(json.dumps({"start_s": time.perf_counter() - began}), file=lines, flush=True)
    for name, query in queries.items():
        report = {"query": name, **_report(tables, query, work["dropped"], work["limit_s"])}
        print(json.dumps(report), file=lines, flush=True)


def _cluster(cores: int) -> dict[str, str]:
    """Start a cluster with a slot for each core; returns the settings that send jobs to it."""
    java = get_gateway().jvm.org.apache.flink
    settings = java.configuration.Configuration()
    for name in ("rest.address", "rest.bind-address", *_BINDING):
        settings.setString(name, "localhost")  # anybody who reaches it may run programs
    settings.setString("rest.bind-port", "0")
    shape = java.runtime.minicluster.MiniClusterConfiguration.Builder()
    shape.setConfiguration(settings).setNumTaskManagers(1).setNumSlotsPerTaskManager(cores)
    cluster = java.runtime.minicluster.MiniCluster(shape.build())
    cluster.start()
    return {
        "execution.target": "remote",
        "rest.address": "localhost",
        "rest.port": str(cluster.getRestAddress().get().getPort()),
        "parallelism.default": str(cores),
    }


def _report(
    tables: TableEnvironment, query: Mapping[str, str], dropped: str, limit_s: float
) -> dict[str, str | float]:
    began = time.perf_counter()
    try:
        started = _start(tables, query["text"], dropped)
    except Exception as error:  # noqa: BLE001 - any error is reported
        return {"refused": reason(error)}
    try:
        job_s = _end(started, limit_s)
        seconds = time.perf_counter() - began
        _end(_start(tables, query["text"], query["written"]), limit_s)
    except Exception as error:  # noqa: BLE001 - any error is reported
        return {"failed": reason(error)}
    return {"seconds": seconds, "job_s": job_s}


def _start(tables: TableEnvironment, text: str, sink: str) -> TableResult:
    """Submit a query whose rows go into a sink.

    Raises:
        Exception: Flink refuses it.
    """
    tables.execute_sql(f"DROP TABLE IF EXISTS {RESULTS}")
    return tables.execute_sql(f"CREATE TABLE {RESULTS} WITH ({sink}) AS {text}")


def _end(started: TableResult, limit_s: float) -> float:
    """Wait for a job; returns its seconds by Flink's own count.

    Raises:
        Exception: it failed, or it did not end in time and is cancelled.
    """
    job = started.get_job_client()
    try:
        started.wait(int(1e3 * limit_s))
    except Exception as error:
        if not is_timeout(error):
            raise
        job.cancel()
        raise TimeoutError(f"it did not end within {limit_s:g} s") from None
    return float(job.get_job_execution_result().result().get_net_runtime()) / 1e3


if __name__ == "__main__":
    main(Path(sys.argv[1]))
