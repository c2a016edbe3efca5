"""A peer whose Spark is a standalone cluster gives exact answers, also while machines fail and
return."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from computing_elsewhere import Run, expected, odd_windows, settle
from engine_peers import Town, executor_of, make_stream, until
from pyspark.sql import SparkSession
from spark_cluster import QUICK, SECRET, Cluster, Daemon, open_cluster

from medusa.engine.spark.config import SparkConfig
from medusa.engine.spark.executor import SparkExecutor
from medusa.engine.spark.session import Spark, SparkLostError
from medusa.overlay.files import write_secret

pytestmark = [pytest.mark.spark, pytest.mark.process, pytest.mark.usefixtures("spark_stopped")]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with open_cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


def settings(cluster: Cluster) -> str:
    return (
        f'[spark]\nmaster = "{cluster.url}"\n'
        f'[spark.options]\n"spark.executor.extraJavaOptions" = "{QUICK}"\n'
    )


def spark_of(run: Run) -> Spark:
    executor = executor_of(run.place)
    assert isinstance(executor, SparkExecutor)
    assert isinstance(executor._spark, Spark)
    return executor._spark


def ports_of(process: psutil.Process) -> set[int]:
    return {each.laddr.port for each in process.net_connections() if each.status == "LISTEN"}


def computing(spark: Spark, cluster: Cluster) -> Daemon | None:
    """Return the worker whose executor has a task now."""
    tracker = spark.run(lambda session: session.sparkContext._jsc.sc().statusTracker())
    busy = {each.port() for each in tracker.getExecutorInfos() if each.numRunningTasks()}
    for worker in cluster.workers:
        if any(busy & ports_of(each) for each in worker.executors()):
            return worker
    return None


def executors(cluster: Cluster) -> list[psutil.Process]:
    return [each for worker in cluster.workers for each in worker.executors()]


@pytest.fixture
def driver(cluster: Cluster, tmp_path: Path) -> Iterator[Spark]:
    """Give a Spark that has the cluster as its master."""
    secret = tmp_path / "spark.secret"
    write_secret(secret, f"{SECRET}\n".encode())
    options = {"spark.executor.extraJavaOptions": QUICK}
    spark = Spark(SparkConfig(cluster.url, options=options, secret_file=secret), tmp_path)
    spark.start()
    yield spark
    spark.stop()


def count(session: SparkSession) -> int:
    return session.range(100).count()


def test_a_peer_proves_the_secret_and_shows_it_to_nobody(driver: Spark, cluster: Cluster) -> None:
    assert driver.run(count) == 100
    assert driver.run(lambda each: each.sparkContext.getConf().get("spark.authenticate")) == "true"
    daemons = [psutil.Process(each.process.pid) for each in (cluster.master, *cluster.workers)]
    for process in (psutil.Process(driver.pid), *executors(cluster), *daemons):
        assert not any(SECRET in each for each in process.cmdline())
        listens = [each for each in process.net_connections() if each.status == "LISTEN"]
        # towards a master on the loopback there is no need for another interface
        assert all(each.laddr.ip.endswith("127.0.0.1") for each in listens)
    assert "Starting Spark master" in cluster.master.output.read_text()
    assert "RestServer" not in cluster.master.output.read_text(), "anybody might submit programs"


def test_an_application_that_is_ended_is_a_lost_spark(driver: Spark) -> None:
    driver.run(lambda session: session.sparkContext._jsc.stop())
    with pytest.raises(SparkLostError, match="the cluster ended the application"):
        driver.run(count)
    assert not driver.alive
    driver.restart()
    assert driver.run(count) == 100


async def test_without_the_secret_the_peer_says_what_to_write_where(
    town: Town, cluster: Cluster
) -> None:
    mit = await settle(town, settings(cluster))
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
    run = await Run.begin(town, settings(cluster), SECRET)
    await run.post()
    await run.computed()
    await until(lambda: len(executors(cluster)) == 2)
    for each in executors(cluster):
        each.send_signal(signal.SIGSTOP)  # a job that begins now does not come to its end
    await run.post()
    lost: list[Daemon] = []

    def is_computing() -> bool:
        lost.extend(filter(None, [computing(spark_of(run), cluster)]))
        return bool(lost)

    await until(is_computing)
    lost[0].kill()
    for each in executors(cluster):
        each.send_signal(signal.SIGCONT)
    await run.computed()
    await run.noted(f"lost executors of {cluster.url}: 1 of 2")
    lost[0].start()
    await run.noted(f"runs with executors of {cluster.url}: 2")
    await run.post()
    await run.computed()
    assert await run.answers() == expected(range(run.posted))


async def test_without_its_master_it_goes_on_and_without_workers_it_says_what_it_waits_for(
    town: Town, cluster: Cluster
) -> None:
    run = await Run.begin(town, settings(cluster), SECRET)
    await run.post()
    await run.computed()
    before = spark_of(run).pid
    cluster.master.kill()
    await run.post()
    await run.computed()
    for worker in cluster.workers:
        worker.kill()
    await run.post()
    waits = f"waits for an executor of {cluster.url}: none of its workers runs"
    await until(lambda: run.task_says("failing", waits), "what it waits for")
    cluster.restart()  # it has forgotten the peer's application
    await run.noted("starts Spark anew")
    await run.computed()
    assert spark_of(run).pid != before
    await until(lambda: run.task_says("waiting", ""))
    assert await run.answers() == expected(range(run.posted))
