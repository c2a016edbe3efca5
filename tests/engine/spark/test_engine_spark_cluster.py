"""A peer whose Spark is a standalone cluster gives exact answers, also while machines fail and
return."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from computing_elsewhere import Run, expected, odd_windows, settle
from engine_peers import Cluster, executor_of, make_stream, until
from pyspark.sql import SparkSession
from spark_cluster import QUICK, SECRET, Daemon, SparkCluster, open_spark_cluster

from medusa.engine.spark.config import SparkConfig
from medusa.engine.spark.executor import SparkExecutor
from medusa.engine.spark.session import Spark, SparkLostError
from medusa.overlay.files import write_secret

pytestmark = [pytest.mark.spark, pytest.mark.process, pytest.mark.usefixtures("spark_stopped")]


@pytest.fixture(scope="module")
def spark_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    with open_spark_cluster(tmp_path_factory.mktemp("spark_cluster")) as spark_cluster:
        yield spark_cluster


def settings(spark_cluster: SparkCluster) -> str:
    return (
        f'[spark]\nmaster = "{spark_cluster.url}"\n'
        f'[spark.options]\n"spark.executor.extraJavaOptions" = "{QUICK}"\n'
    )


def spark_of(run: Run) -> Spark:
    executor = executor_of(run.place)
    assert isinstance(executor, SparkExecutor)
    assert isinstance(executor._spark, Spark)
    return executor._spark


def ports_of(process: psutil.Process) -> set[int]:
    return {each.laddr.port for each in process.net_connections() if each.status == "LISTEN"}


def computing(spark: Spark, spark_cluster: SparkCluster) -> Daemon | None:
    """Return the worker whose executor has a task now."""
    tracker = spark.run(lambda session: session.sparkContext._jsc.sc().statusTracker())
    busy = {each.port() for each in tracker.getExecutorInfos() if each.numRunningTasks()}
    for worker in spark_cluster.workers:
        if any(busy & ports_of(each) for each in worker.executors()):
            return worker
    return None


def executors(spark_cluster: SparkCluster) -> list[psutil.Process]:
    return [each for worker in spark_cluster.workers for each in worker.executors()]


@pytest.fixture
def driver(spark_cluster: SparkCluster, tmp_path: Path) -> Iterator[Spark]:
    """Give a Spark that has the spark_cluster as its master."""
    secret = tmp_path / "spark.secret"
    write_secret(secret, f"{SECRET}\n".encode())
    options = {"spark.executor.extraJavaOptions": QUICK}
    spark = Spark(SparkConfig(spark_cluster.url, options=options, secret_file=secret), tmp_path)
    spark.start()
    yield spark
    spark.stop()


def count(session: SparkSession) -> int:
    return session.range(100).count()


def test_a_peer_proves_the_secret_and_never_shows_it(
    driver: Spark, spark_cluster: SparkCluster
) -> None:
    assert driver.run(count) == 100
    assert driver.run(lambda each: each.sparkContext.getConf().get("spark.authenticate")) == "true"
    daemons = [
        psutil.Process(each.process.pid) for each in (spark_cluster.master, *spark_cluster.workers)
    ]
    for process in (psutil.Process(driver.pid), *executors(spark_cluster), *daemons):
        assert not any(SECRET in each for each in process.cmdline())
        listens = [each for each in process.net_connections() if each.status == "LISTEN"]
        # a master on the loopback needs no other interface
        assert all(each.laddr.ip.endswith("127.0.0.1") for each in listens)
    assert "Starting Spark master" in spark_cluster.master.output.read_text()
    assert "RestServer" not in spark_cluster.master.output.read_text(), (
        "anybody might submit programs"
    )


def test_an_application_that_is_ended_is_a_lost_spark(driver: Spark) -> None:
    driver.run(lambda session: session.sparkContext._jsc.stop())
    with pytest.raises(SparkLostError, match="the cluster ended the application"):
        driver.run(count)
    assert not driver.alive
    driver.restart()
    assert driver.run(count) == 100


async def test_without_the_secret_the_peer_says_what_to_write_where(
    cluster: Cluster, spark_cluster: SparkCluster
) -> None:
    mit = await settle(cluster, settings(spark_cluster))
    await cluster.restart(mit)
    client = await cluster.client(mit)
    source = await make_stream(client, mit, "s")
    query = odd_windows(mit, source)
    await client.create_query(query)
    trouble = await client.start_query(query.name)
    assert f"{mit.home.spark_secret}: no such file: write the cluster's" in trouble


async def test_the_loss_of_a_worker_in_mid_job_changes_no_answer(
    cluster: Cluster, spark_cluster: SparkCluster
) -> None:
    run = await Run.begin(cluster, settings(spark_cluster), SECRET)
    await run.post()
    await run.computed()
    await until(lambda: len(executors(spark_cluster)) == 2)
    for each in executors(spark_cluster):
        each.send_signal(signal.SIGSTOP)  # a job that begins now does not end
    await run.post()
    lost: list[Daemon] = []

    def is_computing() -> bool:
        lost.extend(filter(None, [computing(spark_of(run), spark_cluster)]))
        return bool(lost)

    await until(is_computing)
    lost[0].kill()
    for each in executors(spark_cluster):
        each.send_signal(signal.SIGCONT)
    await run.computed()
    await run.noted(f"lost executors of {spark_cluster.url}: 1 of 2")
    lost[0].start()
    await run.noted(f"runs with executors of {spark_cluster.url}: 2")
    await run.post()
    await run.computed()
    assert await run.answers() == expected(range(run.posted))


async def test_a_task_goes_on_without_a_master_and_waits_without_workers(
    cluster: Cluster, spark_cluster: SparkCluster
) -> None:
    run = await Run.begin(cluster, settings(spark_cluster), SECRET)
    await run.post()
    await run.computed()
    before = spark_of(run).pid
    spark_cluster.master.kill()
    await run.post()
    await run.computed()
    for worker in spark_cluster.workers:
        worker.kill()
    await run.post()
    waits = f"waits for an executor of {spark_cluster.url}: none of its workers runs"
    await until(lambda: run.task_says("failing", waits), "what it waits for")
    spark_cluster.restart()  # the cluster has forgotten the peer's application
    await run.noted("starts Spark anew")
    await run.computed()
    assert spark_of(run).pid != before
    await until(lambda: run.task_says("waiting", ""))
    assert await run.answers() == expected(range(run.posted))
