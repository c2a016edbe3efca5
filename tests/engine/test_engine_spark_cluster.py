"""A peer whose Spark is a standalone cluster: exact answers, also as its machines go and return."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pyarrow as pa
import pytest
import trio
from deadline import DEADLINE_S
from engine_peers import Place, Town, begin, make_stream, rows, until
from spark_cluster import QUICK, SECRET, Cluster, Daemon, open_cluster

from engine.objects.query import Aggregate, AggregateFunction, Filter, Function, Query
from engine.spark.config import SparkConfig
from engine.spark.session import Spark
from engine.spark.workforce import Patience
from overlay.files import write_secret
from tools.client.async_client import AsyncMedusaClient

pytestmark = [pytest.mark.spark, pytest.mark.process, pytest.mark.usefixtures("spark_stopped")]

SIZE, ADVANCE = 10, 5
"""Microseconds of a window, and between the beginnings of two."""

BATCH = 100
"""Rows of a post, one a microsecond."""

IMPATIENT = Patience(tell_s=0.5, anew_s=6.0)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with open_cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


def value(stime: int) -> int:
    return stime * 7919 % 1000


def expected(stimes: range) -> list[tuple[int, int, int]]:
    """(window start, rows, sum) of the odd values, computed without the engine."""
    found = []
    for start in range(stimes.start - SIZE + ADVANCE, stimes.stop, ADVANCE):
        inside = range(max(start, stimes.start), min(start + SIZE, stimes.stop))
        odd = [value(stime) for stime in inside if value(stime) % 2]
        if odd:
            found.append((start, len(odd), sum(odd)))
    return found


def odd_windows(place: Place, source: str) -> Query:
    functions = (
        AggregateFunction(Function.COUNT, None, "rows"),
        AggregateFunction(Function.SUM, "value", "sum"),
    )
    odd = Filter("odd", source, (place.name("odd"),), ("value % 2 = 1",))
    windows = Aggregate(
        "windows", place.name("odd"), place.name("out"), SIZE, ADVANCE, (), functions
    )
    return Query(place.name("q"), (odd, windows))


@dataclass
class Run:
    """A peer with a query that runs on a cluster."""

    place: Place
    client: AsyncMedusaClient
    source: str
    posted: int = 0

    @staticmethod
    async def begin(town: Town, cluster: Cluster) -> Run:
        mit = await settle(town, cluster)
        write_secret(mit.home.spark_secret, SECRET.encode())
        await town.restart(mit)
        client = await town.client(mit)
        source = await make_stream(client, mit, "s")
        await begin(client, odd_windows(mit, source))
        return Run(mit, client, source)

    @property
    def spark(self) -> Spark:
        spark = self.place.up.engine.executor._spark  # type: ignore[attr-defined]
        assert isinstance(spark, Spark)
        return spark

    async def post(self) -> None:
        """A batch; not waited for."""
        stimes = range(self.posted, self.posted + BATCH)
        table = rows([(stime, value(stime)) for stime in stimes])
        await self.client.post_event(self.source, table, boundary=stimes[-1])
        self.posted += BATCH

    async def computed(self) -> None:
        """Wait until all that was posted is answered."""
        out = self.place.state("out").log
        await until(lambda: out.boundary >= self.posted - 1 - SIZE, "the answers")

    async def answers(self) -> list[tuple[int, int, int]]:
        """(window start, rows, sum) of all of them, in the order in which they come."""
        await self.client.post_event(self.source, None, end=True)
        found: list[tuple[int, int, int]] = []
        with trio.fail_after(DEADLINE_S):
            async for epoch in self.client.subscribe(self.place.name("out")):
                columns = [epoch.table.column(each) for each in ("window_start", "rows", "sum")]
                found += zip(*(each.cast(pa.int64()).to_pylist() for each in columns), strict=True)
        return found

    async def task_says(self, state: str, reason: str) -> bool:
        """Whether its task is in that state, for a reason that begins so."""
        (task,) = (await self.client.lookup_object(self.place.name("q"))).tasks
        return task.state == state and task.reason.startswith(reason)

    def events(self) -> list[str]:
        return [each.text for each in self.place.up.engine.overlay.events.recent()]

    async def noted(self, text: str) -> None:
        await until(lambda: any(text in each for each in self.events()), text)


async def settle(town: Town, cluster: Cluster) -> Place:
    """mit.edu, whose next start has the cluster as its master; it has no secret yet."""
    mit = await town.settle("mit.edu")
    mit.spark_patience = IMPATIENT
    mit.home.config.write_text(
        f'[spark]\nmaster = "{cluster.url}"\n'
        f'[spark.options]\n"spark.executor.extraJavaOptions" = "{QUICK}"\n'
    )
    return mit


def ports_of(process: psutil.Process) -> set[int]:
    return {each.laddr.port for each in process.net_connections() if each.status == "LISTEN"}


def computing(spark: Spark, cluster: Cluster) -> Daemon | None:
    """The worker whose executor has a task now."""
    tracker = spark.run(lambda session: session.sparkContext._jsc.sc().statusTracker())
    busy = {each.port() for each in tracker.getExecutorInfos() if each.numRunningTasks()}
    for worker in cluster.workers:
        if any(busy & ports_of(each) for each in worker.executors()):
            return worker
    return None


def executors(cluster: Cluster) -> list[psutil.Process]:
    return [each for worker in cluster.workers for each in worker.executors()]


def test_a_peer_proves_the_secret_and_shows_it_to_nobody(cluster: Cluster, tmp_path: Path) -> None:
    secret = tmp_path / "spark.secret"
    write_secret(secret, f"{SECRET}\n".encode())
    config = SparkConfig(
        cluster.url, options={"spark.executor.extraJavaOptions": QUICK}, secret_file=secret
    )
    spark = Spark(config, tmp_path)
    spark.start()
    try:
        assert spark.run(lambda session: session.range(100).count()) == 100
        assert spark.run(lambda s: s.sparkContext.getConf().get("spark.authenticate")) == "true"
        for process in (psutil.Process(spark.pid), *executors(cluster)):
            assert not any(SECRET in each for each in process.cmdline())
            listens = [each for each in process.net_connections() if each.status == "LISTEN"]
            # towards a master on the loopback there is no need for another interface
            assert all(each.laddr.ip.endswith("127.0.0.1") for each in listens)
    finally:
        spark.stop()


async def test_without_the_secret_the_peer_says_what_to_write_where(
    town: Town, cluster: Cluster
) -> None:
    mit = await settle(town, cluster)
    await town.restart(mit)
    client = await town.client(mit)
    source = await make_stream(client, mit, "s")
    query = odd_windows(mit, source)
    await client.create_query(query)
    trouble = await client.start_query(query.name)
    assert f"{mit.home.spark_secret}: no such file: write the cluster's" in trouble


async def test_the_loss_of_a_worker_in_mid_job_changes_no_answer(
    town: Town, cluster: Cluster
) -> None:
    run = await Run.begin(town, cluster)
    await run.post()
    await run.computed()
    await until(lambda: len(executors(cluster)) == 2)
    for each in executors(cluster):
        each.send_signal(signal.SIGSTOP)  # a job that begins now does not come to its end
    await run.post()
    lost: list[Daemon] = []

    def is_computing() -> bool:
        lost.extend(filter(None, [computing(run.spark, cluster)]))
        return bool(lost)

    await until(is_computing)
    lost[0].kill()
    for each in executors(cluster):
        each.send_signal(signal.SIGCONT)
    await run.computed()
    await run.noted(f"lost 1 of 2 executors of {cluster.url}")
    lost[0].start()
    await run.noted(f"has 2 executors of {cluster.url}")
    await run.post()
    await run.computed()
    assert await run.answers() == expected(range(run.posted))


async def test_without_its_master_it_goes_on_and_without_workers_it_says_what_it_waits_for(
    town: Town, cluster: Cluster
) -> None:
    run = await Run.begin(town, cluster)
    await run.post()
    await run.computed()
    before = run.spark.pid
    cluster.master.kill()
    await run.post()
    await run.computed()
    for worker in cluster.workers:
        worker.kill()
    await run.post()
    waits = f"waits for an executor of {cluster.url}: none of its workers runs, or"
    await until(lambda: run.task_says("failing", waits), "what it waits for")
    cluster.restart()  # it has forgotten the peer's application
    await run.noted("registers Spark anew")
    await run.computed()
    assert run.spark.pid != before
    await until(lambda: run.task_says("waiting", ""))
    assert await run.answers() == expected(range(run.posted))
