"""A standalone Spark cluster on this machine: Spark's own processes, of the installed PySpark."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import psutil
from deadline import DEADLINE_S
from pyspark.find_spark_home import _find_spark_home

from medusa.engine.spark.java import find_java

HOST: Final = "127.0.0.1"

SECRET: Final = "of the tests' cluster"

PAGE: Final = Path(__file__).parents[3] / "docs/cluster.md"

QUICK: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Options of JVMs that only live for a test."""

_POLL_S: Final = 0.05


@dataclass
class Daemon:
    """A server of Spark; it can be killed, and started again."""

    kind: str
    folder: Path
    arguments: tuple[str, ...]
    secret: str
    process: subprocess.Popen[bytes] = field(init=False)

    def __post_init__(self) -> None:
        self.start()

    @property
    def output(self) -> Path:
        return self.folder / "output"

    def start(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        defaults = self.folder / "spark-defaults.conf"
        defaults.write_text(_defaults(self.secret))
        program = Path(_find_spark_home(), "bin", "spark-class")
        environment = {
            **os.environ,
            "JAVA_HOME": str(find_java(os.environ)),
            "SPARK_CONF_DIR": str(self.folder),
            "SPARK_DAEMON_JAVA_OPTS": QUICK,
            "SPARK_DAEMON_MEMORY": "768m",
            "SPARK_LOCAL_DIRS": str(self.folder / "local"),
            "SPARK_LOCAL_IP": HOST,
            "SPARK_WORKER_DIR": str(self.folder / "work"),
        }
        with self.output.open("wb") as sink:
            self.process = subprocess.Popen(
                [program, f"org.apache.spark.{self.kind}", *self.arguments],
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
                env=environment,
                start_new_session=True,
            )

    def said(self, pattern: str) -> str:
        """Wait until the log of the server contains the pattern; return the first group."""
        deadline = time.monotonic() + DEADLINE_S
        while not (found := re.search(pattern, self.output.read_text(errors="replace"))):
            assert self.process.poll() is None, self.output.read_text(errors="replace")
            assert time.monotonic() < deadline, f"{self.kind} did not say {pattern}"
            time.sleep(_POLL_S)
        return found[1]

    def executors(self) -> list[psutil.Process]:
        """Return the JVMs that the server has started."""
        if self.process.poll() is not None:
            return []
        return [each for each in psutil.Process(self.process.pid).children() if _is_java(each)]

    def kill(self) -> None:
        """Kill the server at once, with all processes that it has started."""
        ended = self.executors()
        self.process.kill()
        self.process.wait()
        for each in ended:
            each.kill()
        psutil.wait_procs(ended)


def _is_java(process: psutil.Process) -> bool:
    with suppress(psutil.Error):
        return process.name() == "java" and process.status() != psutil.STATUS_ZOMBIE
    return False


def _defaults(secret: str) -> str:
    """Return the settings that docs/cluster.md puts into spark-defaults.conf."""
    found = re.search(r"^```properties\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert found
    return re.sub(r"\bSECRET$", secret, found[1], flags=re.MULTILINE)


@dataclass
class SparkCluster:
    """A master, and workers of a core each."""

    url: str
    master: Daemon
    workers: list[Daemon]

    def restart(self) -> None:
        """Start master and workers again, at the address that the master had."""
        self.master.start()
        self.master.said("(Starting Spark master at)")
        for worker in self.workers:
            worker.start()


@contextmanager
def open_spark_cluster(
    folder: Path, workers: int = 2, secret: str = SECRET
) -> Iterator[SparkCluster]:
    """Start a cluster, and kill all of it at the end of the block."""
    daemons: list[Daemon] = []

    def start(kind: str, name: str, *arguments: str) -> Daemon:
        daemons.append(Daemon(kind, folder / name, arguments, secret))
        return daemons[-1]

    try:
        where = ("--host", HOST, "--port", "0", "--webui-port", "0")
        master = start("deploy.master.Master", "master", *where)
        url = master.said(r"Starting Spark master at (spark://\S+)")
        port = url.rpartition(":")[2]
        master.arguments = ("--host", HOST, "--port", port, "--webui-port", "0")
        size = ("--cores", "1", "--memory", "1g")
        each = [
            start("deploy.worker.Worker", f"worker{n}", *where, *size, url) for n in range(workers)
        ]
        for worker in each:
            worker.said(r"(Successfully registered with master)")
        yield SparkCluster(url, master, each)
    finally:
        for daemon in daemons:
            daemon.kill()


@contextmanager
def open_connect_server(folder: Path, port: int = 0) -> Iterator[Daemon]:
    """Start a Spark Connect server, and kill it at the end of the block."""
    server = Daemon("deploy.SparkSubmit", folder, _connect_arguments(port), SECRET)
    try:
        yield server
    finally:
        server.kill()


def port_of(server: Daemon) -> int:
    """Return the port of a started Connect server; the server keeps it."""
    port = int(server.said(r"Spark Connect server started at: \S+:(\d+)"))
    server.arguments = _connect_arguments(port)
    return port


def _connect_arguments(port: int) -> tuple[str, ...]:
    settings = {
        "spark.master": "local[2]",
        "spark.driver.extraJavaOptions": QUICK,
        "spark.connect.grpc.binding.address": HOST,
        "spark.connect.grpc.binding.port": str(port),
        "spark.connect.authenticate.token": SECRET,
        "spark.ui.enabled": "false",
    }
    options = [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
    return (
        *options,
        "--class",
        "org.apache.spark.sql.connect.service.SparkConnectServer",
        "spark-internal",
    )
