"""This peer's Spark: one JVM, started quietly, noticed when it dies, started again.

PySpark keeps its gateway and its context in class attributes, so a process has one Spark at a time.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, TypeVar

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from engine.spark.jvm import Jvm
from overlay.errors import InternalError, InvalidInputError, UnavailableError

T = TypeVar("T")

Profile = Literal["edge", "throughput"]

PROFILES: Final[Mapping[Profile, Mapping[str, str]]] = {
    # Measured, four peers on two cores: 0.16 cores each, not 0.37; 10 s to start, not 17.
    "edge": {
        "spark.driver.memory": "768m",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC "
        "-XX:MinHeapFreeRatio=10 -XX:MaxHeapFreeRatio=30",
    },
    # The optimising compiler: 2.5 times the rows per second once it is warm.
    "throughput": {"spark.driver.memory": "2g"},
}

SETTINGS: Final[Mapping[str, str]] = {
    "spark.app.name": "medusa",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "false",  # no data may make a job fail
    "spark.sql.caseSensitive": "true",
    "spark.sql.catalogImplementation": "in-memory",
    "spark.sql.adaptive.enabled": "false",  # re-planning costs more than small jobs do
    # Windows close over many small files: list them in the driver, pack them into few partitions.
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "100000",
    "spark.sql.files.openCostInBytes": "65536",
    "spark.sql.files.minPartitionNum": "1",
    "spark.sql.files.maxPartitionBytes": "16m",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",  # Arrow's calendar is proleptic
    "spark.sql.objectHashAggregate.sortBased.fallbackThreshold": "65536",
    "spark.executorEnv.PYTHONSAFEPATH": "1",
    "spark.ui.retainedJobs": "200",  # the status store is read for CPU times only
    "spark.ui.retainedStages": "400",
    "spark.sql.ui.retainedExecutions": "10",
    "spark.sql.ui.explainMode": "simple",  # Spark describes every plan, whether or not one looks
}
"""What every profile sets; the peer's `spark.*` options come after and win."""

_LOCAL: Final[Mapping[str, str]] = {
    # All in one JVM: nothing has to listen beyond the loopback.
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}


class SparkLostError(UnavailableError, code="spark_lost"):
    """The JVM is gone; the job's outcome is nothing. Restart and run it again."""


@dataclass(frozen=True)
class SparkConfig:
    """
    Attributes:
        master: any Spark master that runs DataFrames: local[*], spark://..., yarn, k8s://...
        profile: `edge` for many small peers and quick starts, `throughput` for few busy ones.
        options: `spark.*` settings; they win over ours.
    """

    master: str = "local[*]"
    profile: Profile = "edge"
    options: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.profile not in PROFILES:
            raise InvalidInputError(
                f"spark.profile must be one of {', '.join(PROFILES)}: {self.profile}"
            )
        for name in self.options:
            if not name.startswith("spark."):
                raise InvalidInputError(f"spark option {name!r} does not begin with 'spark.'")

    def settings(self) -> dict[str, str]:
        """All Spark settings, the later ones winning."""
        local = _LOCAL if self.master.startswith("local") else {}
        cores = str(os.cpu_count() or 1)
        ours = {**SETTINGS, "spark.sql.shuffle.partitions": cores, **local}
        return {**ours, **PROFILES[self.profile], "spark.master": self.master, **self.options}


_BREAKAGE: Final = (Py4JError, PySparkException, OSError, EOFError, pa.ArrowException)
"""What a job may raise when its JVM dies under it, or when Spark refuses it."""


class Spark:
    """The one Spark of this process. Every method blocks; `run` may be called from many threads.

    Args:
        folder: for the JVM's log, its output and its temporary files.
    """

    def __init__(self, config: SparkConfig, folder: Path) -> None:
        self._config = config
        self._folder = folder
        self._lock = threading.RLock()
        self._jvm: Jvm | None = None
        self._session: SparkSession | None = None

    @property
    def alive(self) -> bool:
        jvm = self._jvm
        return jvm is not None and self._session is not None and jvm.alive

    @property
    def pid(self) -> int | None:
        """The JVM's process id."""
        return None if self._jvm is None else self._jvm.pid

    def start(self) -> None:
        """Start the JVM and its session, a few seconds; nothing if it is alive.

        Raises:
            InvalidInputError: no Java.
            UnavailableError: the JVM did not start; the message names its log.
        """
        with self._lock:
            if self.alive:
                return
            self._clear()
            settings = self._config.settings()
            self._jvm = Jvm.launch(settings, self._folder)
            try:
                self._session = _open_session(self._jvm, settings)
            except _BREAKAGE as error:
                log = self._jvm.output
                self._clear()
                raise SparkLostError(f"Spark did not start: {error}; see {log}") from error

    def restart(self) -> None:
        """Start again after a loss; nothing where another thread has already done so."""
        self.start()

    def stop(self) -> None:
        """End the JVM; jobs under way raise `SparkLostError`."""
        with self._lock:
            session = self._session if self.alive else None
            if session is not None and not self._config.master.startswith("local"):
                with contextlib.suppress(*_BREAKAGE):  # a cluster wants to be told
                    session.stop()
            self._clear()

    def run(self, job: Callable[[SparkSession], T]) -> T:
        """What `job` gives for the session.

        Raises:
            SparkLostError: the JVM is gone, or went during the job.
            InternalError: Spark refused or failed the job.
        """
        jvm, session = self._jvm, self._session
        if jvm is None or session is None or not jvm.alive:
            raise SparkLostError("Spark is not running")
        try:
            return job(session)
        except _BREAKAGE as error:
            if jvm.dying(error):
                raise SparkLostError(f"Spark's JVM died; see {jvm.output}") from error
            raise InternalError(f"Spark failed: {_first_line(error)}; see {jvm.log}") from error

    def _clear(self) -> None:
        jvm, session = self._jvm, self._session
        self._jvm = self._session = None
        if jvm is not None:
            jvm.kill()
        _forget(session)


def _open_session(jvm: Jvm, settings: Mapping[str, str]) -> SparkSession:
    gateway = jvm.connect()
    conf = SparkConf(loadDefaults=False, _jvm=gateway.jvm)
    conf.setAll(list(settings.items()))
    context = SparkContext(conf=conf, gateway=gateway)
    return SparkSession(context)


def _forget(session: SparkSession | None) -> None:
    """Take a dead JVM out of PySpark's class attributes, where a new session would find it."""
    context = SparkContext._active_spark_context if session is None else session.sparkContext
    gateway = SparkContext._gateway
    if context is not None:
        context._jsc = None  # or stop() would talk to it
        context.stop()
    SparkContext._gateway = None
    SparkContext._jvm = None
    SparkSession._instantiatedSession = None
    SparkSession._activeSession = None
    if gateway is not None:
        with contextlib.suppress(Py4JError, OSError):
            gateway.shutdown()


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


# py4j logs broken connections: without a handler Python would print them on the terminal.
for _name in ("py4j", "pyspark"):
    logging.getLogger(_name).addHandler(logging.NullHandler())
    logging.getLogger(_name).propagate = False
