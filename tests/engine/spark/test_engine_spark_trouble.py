"""If Spark cannot start, a query says why and what to do: at its start, in lookups, and in
lists."""

from __future__ import annotations

import subprocess
import sys
import threading
from functools import partial
from pathlib import Path

import pytest
import trio
from engine_peers import Cluster, Place, make_stream, until

from medusa.engine.objects.query import Filter, Query
from medusa.engine.spark import jvm
from medusa.engine.spark.config import SparkConfig
from medusa.engine.spark.java import find_java
from medusa.engine.spark.session import Spark, SparkLostError
from medusa.engine.streams.config import Timing
from medusa.overlay.errors import UnavailableError

pytestmark = pytest.mark.usefixtures("spark_stopped")

MEND = "install one, for example `apt-get install openjdk-17-jre-headless`"


@pytest.fixture
def no_java(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Set a wrong JAVA_HOME, and hide every other Java."""
    monkeypatch.setenv("JAVA_HOME", "/opt/no-such-java")
    search = partial(find_java, {"JAVA_HOME": "/opt/no-such-java"}, folders=())
    monkeypatch.setattr(jvm, "find_java", lambda _: search())


async def medusa(*arguments: str) -> tuple[int, str]:
    """Run the command; return its exit code and its output."""
    command = [sys.executable, "-m", "medusa.tools.commands.medusa.medusa_command", *arguments]
    done = await trio.run_process(
        command, capture_stdout=True, stderr=subprocess.STDOUT, check=False
    )
    return done.returncode, done.stdout.decode()


async def filtered(place: Place) -> str:
    """Create a query at that peer without starting it."""
    async with place.client() as client:
        stream = await make_stream(client, place, "s")
        name = place.name("q")
        box = Filter("f", stream, (place.name("out"),), ("value > 1",))
        await client.create_query(Query(name, (box,)))
    return name


async def test_start_and_lookup_say_why_spark_does_not_start(
    cluster: Cluster, no_java: None
) -> None:
    mit = await cluster.settle("mit.edu")
    query = await filtered(mit)
    home = str(mit.home.folder)
    async with mit.client() as client:
        trouble = await client.start_query(query)
        assert trouble.startswith("Spark does not start: no Java 17 or later found (")
        assert "/opt/no-such-java/bin/java is no Java" in trouble
        assert MEND in trouble
        (task,) = (await client.lookup_object(query)).tasks
        assert (task.state, task.reason) == ("failing", trouble)
        assert (await client.list_objects()).failing == {query: trouble}
        (status,) = (await client.status()).peers
        assert (status.spark, status.tasks[0].reason) == ("failed", trouble)
        assert [e.text for e in status.events if e.level == "error"] == [
            f"cannot compute yet: {trouble}"
        ]
    code, told = await medusa("query", "start", query, "--home", home)
    assert code == 1
    assert told == f"medusa: {query} is started and computes nothing yet: {trouble}\n"
    assert (
        f"{task.name} is failing: {trouble}" in (await medusa("lookup", query, "--home", home))[1]
    )
    assert f"failing: {trouble}" in (await medusa("list", "--home", home))[1]
    assert f"failing: {trouble}" in (await medusa("query", "list", "--home", home))[1]


@pytest.mark.cluster(timing=Timing(trouble_s=0.01))
async def test_a_failure_that_takes_long_is_waited_for(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = threading.Event()

    def start(_: Spark) -> None:
        told.wait()
        raise UnavailableError("no such master")

    monkeypatch.setattr(Spark, "start", start)
    mit = await cluster.settle("mit.edu")
    query, home = await filtered(mit), str(mit.home.folder)
    async with mit.client() as client:
        assert await client.start_query(query) == "", "nothing is known yet"
        (task,) = (await client.lookup_object(query)).tasks
        assert (task.state, task.reason) == ("starting", "")
    shown = (await medusa("query", "list", "--home", home))[1]
    assert shown.splitlines()[1].endswith("starting")
    command = [sys.executable, "-m", "medusa.tools.commands.medusa.medusa_command"]
    process = await trio.lowlevel.open_process(
        [*command, "query", "start", query, "--home", home],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    assert process.stdout is not None
    said = b""
    async for data in process.stdout:
        said += data
        if b"waits for Spark to start" in said:
            told.set()
    assert await process.wait() == 1
    assert b"computes nothing yet: Spark does not start: no such master" in said
    assert f"{query}: running".encode() not in said


async def test_the_peer_starts_spark_again_and_the_query_goes_on(
    cluster: Cluster, no_java: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    mit = await cluster.settle("mit.edu")
    query = await filtered(mit)
    client = await cluster.client(mit)
    assert await client.start_query(query)
    monkeypatch.setattr(Spark, "start", lambda _: None)  # a Java has been installed
    assert await client.start_query(query) == ""
    (task,) = (await client.lookup_object(query)).tasks
    assert (task.state, task.reason) == ("waiting", "")


async def test_a_query_at_another_peer_of_ours_is_asked_for_there(
    cluster: Cluster, no_java: None
) -> None:
    mit, second = await cluster.settle_all("mit.edu", "mit.edu")
    query = await filtered(second)
    client = await cluster.client(mit)
    trouble = await client.start_query(query)
    assert MEND in trouble
    await until(lambda: bool(mit.up.engine.overlay.living_siblings()))
    (task,) = (await client.lookup_object(query)).tasks
    assert task.reason == trouble
    assert (await client.list_objects()).failing == {query: trouble}


@pytest.mark.spark
def test_a_jvm_that_ends_at_once_says_why(tmp_path: Path) -> None:
    spark = Spark(SparkConfig(options={"spark.driver.memory": "plenty"}), tmp_path)
    with pytest.raises(UnavailableError) as caught:
        spark.start()
    assert "the JVM did not start: Invalid maximum heap size: -Xmxplenty" in str(caught.value)
    assert "mend [spark.options], or master in [spark], in medusa.toml" in str(caught.value)
    assert "start the peer again" in str(caught.value)
    assert str(tmp_path / "spark.out") in str(caught.value)
    assert "\n" not in str(caught.value)
    assert "A fatal exception" not in str(caught.value), "the cause alone"
    assert (tmp_path / "spark.out").stat().st_mode & 0o777 == 0o600


@pytest.mark.spark
def test_a_session_that_is_refused_says_why(tmp_path: Path) -> None:
    with pytest.raises(SparkLostError) as caught:
        Spark(SparkConfig(master="local[few]"), tmp_path).start()
    assert "Could not parse Master URL: 'local[few]'" in str(caught.value)
    assert "mend [spark.options], or master in [spark], in medusa.toml" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_jvm_that_no_process_is_free_for_is_no_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(jvm, "_new_scratch", refuse)
    with pytest.raises(SparkLostError, match="Resource temporarily unavailable"):
        Spark(SparkConfig(), tmp_path).start()
