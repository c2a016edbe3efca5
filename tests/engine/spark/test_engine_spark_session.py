import os
import select
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest
import trio
from deadline import DEADLINE_S
from epoch_files import write
from epoch_networks import SOURCES
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from medusa.engine.language.check import check_query
from medusa.engine.objects.query import Filter, Query
from medusa.engine.objects.schema import END
from medusa.engine.operators.shared.step import Interval
from medusa.engine.spark.config import SparkConfig
from medusa.engine.spark.executor import SparkExecutor
from medusa.engine.spark.program import Program
from medusa.engine.spark.session import Spark, SparkLostError
from medusa.engine.tasks.plan import plan
from medusa.overlay.errors import BusyError, InternalError, InvalidInputError, UnavailableError
from medusa.overlay.events import Events

pytestmark = pytest.mark.spark


def total(session: SparkSession) -> int:
    rows = session.range(100).agg(F.sum("id").alias("total")).toArrow()
    return int(rows["total"][0].as_py())


def endless(session: SparkSession) -> None:
    """Start a job that runs for many minutes unless the JVM dies."""
    session.range(10**14).agg(F.max(F.hash("id"))).toArrow()


def wait_until_running(spark: Spark) -> None:
    """Wait until a job is under way."""
    tracker = spark.run(lambda session: session.sparkContext.statusTracker())
    deadline = time.monotonic() + DEADLINE_S
    while not spark.run(lambda _session: tracker.getActiveStageIds()):
        assert time.monotonic() < deadline, "the job did not begin"


def test_a_job_runs_and_its_times_are_utc(spark: Spark) -> None:
    assert spark.run(total) == 4950
    assert spark.run(lambda session: session.conf.get("spark.sql.session.timeZone")) == "UTC"


def test_many_threads_run_jobs_at_once(spark: Spark) -> None:
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda _: spark.run(total), range(32))) == [4950] * 32


def test_a_refusal_of_spark_is_an_internal_error_and_spark_lives_on(spark: Spark) -> None:
    with pytest.raises(InternalError, match="Spark failed"):
        spark.run(lambda session: session.read.parquet("file:///nowhere").toArrow())
    assert spark.run(total) == 4950


def test_a_fault_of_the_job_itself_is_not_disguised(spark: Spark) -> None:
    def job(_session: SparkSession) -> None:
        raise KeyError("ours")

    with pytest.raises(KeyError):
        spark.run(job)


def test_a_spark_killed_in_mid_job_is_noticed_and_restarted(
    spark: Spark, capfd: pytest.CaptureFixture[str]
) -> None:
    caught: list[BaseException] = []

    def work() -> None:
        try:
            spark.run(endless)
        except SparkLostError as error:
            caught.append(error)

    worker = threading.Thread(target=work, daemon=True)
    worker.start()
    wait_until_running(spark)
    first = spark.pid
    assert first is not None
    os.kill(first, signal.SIGKILL)
    worker.join(DEADLINE_S)
    assert [type(error) for error in caught] == [SparkLostError]
    assert not spark.alive
    with pytest.raises(SparkLostError):
        spark.run(total)
    spark.restart()
    assert spark.pid != first
    assert spark.run(total) == 4950
    second = spark.pid
    spark.restart()
    assert spark.pid == second, "another thread had already restarted it"
    assert capfd.readouterr() == ("", "")


async def test_a_late_error_of_the_jvm_before_says_nothing_of_the_next(
    spark: Spark, nursery: trio.Nursery, tmp_path: Path
) -> None:
    events = Events()
    executor = SparkExecutor(lambda: spark, events, tmp_path, nursery)
    assert await executor.run(total) == 4950

    def late(_session: SparkSession) -> None:
        raise SparkLostError("the one before died")

    with pytest.raises(SparkLostError):
        await executor.run(late)
    assert executor.state == "running"
    assert not [event for event in events.recent() if "lost" in event.text]


def test_a_program_goes_on_with_the_next_jvm(spark: Spark, tmp_path: Path) -> None:
    query = Query("q", (Filter("f", "s0", ("t",), ("k > 1",)),))
    (task,) = plan(query, check_query(query, SOURCES))
    rows = [{"stime": n, "seq": n, "k": n, "b": 0, "y": 0.0} for n in range(5)]
    table = pa.Table.from_pylist(rows, schema=SOURCES["s0"].source)
    run = ({"s0": write(table, tmp_path, "s0", [2, END])}, 1, 3, Interval(1, 3))
    program = Program(task)
    before = spark.run(lambda session: program.run(session, *run))
    assert before.table["k"].to_pylist() == [2, 3]
    assert before.cpu_s > 0
    assert spark.pid is not None
    os.kill(spark.pid, signal.SIGKILL)
    with pytest.raises(SparkLostError):
        spark.run(lambda session: program.run(session, *run))
    spark.restart()
    assert spark.run(lambda session: program.run(session, *run)).table.equals(before.table)


def test_stopping_ends_a_job_under_way(spark: Spark) -> None:
    with ThreadPoolExecutor(1) as pool:
        job = pool.submit(spark.run, endless)
        wait_until_running(spark)
        spark.stop()
        with pytest.raises(SparkLostError):
            job.result(DEADLINE_S)
    assert not spark.alive
    spark.start()
    assert spark.run(total) == 4950


def test_a_process_refuses_a_second_spark_until_the_first_is_stopped(
    shared_spark: Spark, tmp_path: Path
) -> None:
    shared_spark.stop()
    both = (shared_spark, Spark(SparkConfig(), tmp_path))
    with ThreadPoolExecutor(2) as pool:
        errors = [job.exception(DEADLINE_S) for job in [pool.submit(s.start) for s in both]]
    try:
        assert sorted(type(error).__name__ for error in errors) == ["BusyError", "NoneType"]
        first, second = sorted(both, key=lambda spark: not spark.alive)
        with pytest.raises(SparkLostError):
            second.run(total)
        second.stop()
        assert first.run(total) == 4950, "it goes on, whatever becomes of the second"
        first.stop()
        second.start()
        with pytest.raises(BusyError, match="this process has another Spark"):
            first.start()
        first.stop()
        assert second.run(total) == 4950
    finally:
        both[1].stop()


PEER = """
import sys
from pathlib import Path
from medusa.engine.spark.config import SparkConfig
from medusa.engine.spark.session import Spark
spark = Spark(SparkConfig(), Path(sys.argv[1]))
spark.start()
assert spark.run(lambda session: session.range(3).count()) == 3
try:
    spark.run(lambda session: session.read.parquet("file:///nowhere").count())
except Exception as error:
    assert type(error).__name__ == "InternalError", error
sys.stdout.write(f"{spark.pid}\\n")
sys.stdout.flush()
sys.stdin.read()
"""


def test_the_jvm_dies_with_a_killed_python_and_prints_nothing(tmp_path: Path) -> None:
    peer = subprocess.Popen(
        [sys.executable, "-c", PEER, str(tmp_path / "with space")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert peer.stdin
    assert peer.stdout
    assert peer.stderr
    jvm = int(peer.stdout.readline())
    watch = os.pidfd_open(jvm)
    try:
        peer.kill()
        peer.wait()
        assert select.select([watch], [], [], DEADLINE_S)[0], "the JVM outlived its Python process"
    finally:
        os.close(watch)
    assert peer.stdout.read() == b""
    assert peer.stderr.read() == b""
    for stream in (peer.stdin, peer.stdout, peer.stderr):
        stream.close()


def test_a_connection_that_the_jvm_breaks_prints_nothing(
    spark: Spark, capsys: pytest.CaptureFixture[str]
) -> None:
    server = spark.run(lambda session: session.sparkContext._accumulatorServer)
    for broken in (EOFError(), ConnectionResetError()):
        try:
            raise broken
        except type(broken):
            server.handle_error(None, ("127.0.0.1", 9))
    assert capsys.readouterr() == ("", "")
    try:
        raise ValueError("another fault")
    except ValueError:
        server.handle_error(None, ("127.0.0.1", 9))
    assert "another fault" in capsys.readouterr().err


@pytest.mark.usefixtures("spark_stopped")
def test_a_jvm_that_cannot_start_is_an_error_that_names_its_output(tmp_path: Path) -> None:
    broken = Spark(SparkConfig(options={"spark.driver.memory": "1m"}), tmp_path)
    with pytest.raises(UnavailableError, match=r"spark\.out"):
        broken.start()
    assert not broken.alive


def test_settings_of_the_user_win() -> None:
    config = SparkConfig(options={"spark.driver.memory": "3g", "spark.app.name": "mine"})
    assert config.settings()["spark.driver.memory"] == "3g"
    assert config.settings()["spark.app.name"] == "mine"


def test_settings_that_make_no_sense_are_refused() -> None:
    with pytest.raises(InvalidInputError, match=r"begin with 'spark\.'"):
        SparkConfig(options={"driver.memory": "3g"})
    with pytest.raises(InvalidInputError, match="edge, throughput"):
        SparkConfig(profile="fast")  # type: ignore[arg-type]
