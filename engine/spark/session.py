"""Spark in one JVM: started without output, and again when it has died.

PySpark keeps its gateway and its context in class attributes, so a process has one Spark at a time:
a second one is refused until the first has stopped.
"""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from socketserver import BaseServer
from typing import Any, Final, TypeVar

import pyarrow as pa
from py4j.java_gateway import JavaGateway
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from medusa.engine.spark.config import MEND, SparkConfig
from medusa.engine.spark.jvm import Jvm
from medusa.overlay.errors import BusyError, InternalError, UnavailableError

T = TypeVar("T")


class SparkLostError(UnavailableError, code="spark_lost"):
    """The JVM is gone, and the job has no result. Restart it and run the job again."""


BREAKAGE: Final = (Py4JError, PySparkException, OSError, EOFError, pa.ArrowException)
"""Errors that a job raises if its JVM dies, or if Spark refuses it."""

_STOPPED: Final = "stopped SparkContext"
"""A part of the message for an application that no master accepted."""

_ANSWERS: Final = (
    "see whether it runs, and has the secret, and the settings of spark.network.crypto, of this "
    "peer; it is tried again"
)

_CHANGING: Final = threading.RLock()
"""Held by the thread that starts, ends or stops a Spark: PySpark's class attributes change then."""


class Spark:
    """A Spark with its JVM. From `start` to `stop` it is the only one of its process. Every method
    blocks; `run` may be called from many threads.

    Args:
        folder: the folder for the JVM's log, its output and its temporary files.
    """

    def __init__(self, config: SparkConfig, folder: Path) -> None:
        self._config = config
        self._folder = folder
        self._jvm: Jvm | None = None
        self._gateway: JavaGateway | None = None
        self._session: SparkSession | None = None
        self._given_up = threading.Event()

    @property
    def alive(self) -> bool:
        jvm = self._jvm
        return jvm is not None and self._session is not None and jvm.alive

    @property
    def shares(self) -> bool:
        """Whether small jobs read their rows from files of this machine; see
        `medusa.engine.spark.prepared`."""
        return self._config.local

    @property
    def pid(self) -> int | None:
        """The JVM's process id."""
        return None if self._jvm is None else self._jvm.pid

    def start(self) -> None:
        """Start the JVM and its session, which takes a few seconds; do nothing if it is alive.

        Raises:
            BusyError: another Spark of this process has not been stopped.
            InvalidInputError: there is no Java.
            UnavailableError: the JVM did not start; the message names its log.
            StoppedError: starts were given up.
        """
        with _CHANGING:
            if self.alive:
                return
            self._clear()
            if SparkContext._gateway is not None:
                text = (
                    "this process has another Spark: stop it first, as PySpark takes one at a time"
                )
                raise BusyError(text)
            settings = self._config.settings()
            master = settings["spark.master"]
            try:
                self._jvm = Jvm.launch(settings, self._folder, self._given_up)
            except OSError as error:  # too many processes, or no room for its files
                raise SparkLostError(f"the JVM did not start: {error}") from error
            try:
                if self._given_up.is_set():  # the start was given up before there was a JVM to kill
                    self._jvm.kill()
                self._gateway = self._jvm.connect()
                self._session = _open_session(self._gateway, settings)
            except BREAKAGE as error:
                said, mend = first_line(error), MEND
                if _STOPPED in said:
                    said, mend = f"{master} does not answer", _ANSWERS
                text = f"{said}; {mend}; more is in {self._jvm.log}"
                self._clear()
                raise SparkLostError(text) from error
            if self._jvm.archive is not None:
                self._jvm.archive.make_apart()

    def executors(self) -> int:
        """How many executors the cluster has given to this Spark.

        Raises:
            MedusaError: it is not running.
        """
        return self.run(_executors)

    def give_up(self) -> None:
        """Kill the JVM: jobs under way raise `SparkLostError`, and the next `start` starts a new
        one."""
        jvm = self._jvm
        if jvm is not None:
            jvm.kill()

    def give_up_start(self) -> None:
        """Start no more: a start that is under way fails at once."""
        self._given_up.set()
        jvm = self._jvm
        if jvm is not None and self._session is None:
            jvm.kill()

    def restart(self) -> None:
        """Start again after a loss, unless another thread has already done so."""
        self.start()

    def end(self, limit_s: float) -> None:
        """Let the JVM end by itself; no job may be under way.

        Raises:
            subprocess.TimeoutExpired: it took longer, seconds.
        """
        with _CHANGING:
            if self._jvm is not None:
                self._jvm.end(limit_s)

    def stop(self) -> None:
        """End the JVM; jobs under way raise `SparkLostError`."""
        with _CHANGING:
            session = self._session if self.alive else None
            if session is not None and not self._config.local:
                # This releases the cluster. The session itself stays until the JVM is gone:
                # otherwise py4j would release its objects meanwhile, and log that it cannot.
                with contextlib.suppress(*BREAKAGE):
                    session.sparkContext._jsc.stop()
            self._clear()

    def run(self, job: Callable[[SparkSession], T]) -> T:
        """Run `job` on the session.

        Raises:
            SparkLostError: the JVM is gone, or went during the job.
            InternalError: Spark refused or failed the job.
        """
        jvm, session = self._jvm, self._session
        if jvm is None or session is None or not jvm.alive:
            raise SparkLostError("Spark is not running")
        try:
            return job(session)
        except BREAKAGE as error:
            if jvm.dying(error):
                raise SparkLostError(f"Spark's JVM died; see {jvm.output}") from error
            if not self._config.local and _is_stopped(session):
                jvm.kill()
                raise SparkLostError(f"the cluster ended the application; see {jvm.log}") from error
            raise InternalError(f"Spark failed: {first_line(error)}; see {jvm.log}") from error

    def _clear(self) -> None:
        jvm, gateway = self._jvm, self._gateway
        self._jvm = self._gateway = self._session = None
        if jvm is not None:
            jvm.kill()
        if gateway is not None:
            _forget(gateway)


def _open_session(gateway: JavaGateway, settings: Mapping[str, str]) -> SparkSession:
    conf = SparkConf(loadDefaults=False, _jvm=gateway.jvm)
    conf.setAll(list(settings.items()))
    context = SparkContext(conf=conf, gateway=gateway)
    _keep_quiet(context._accumulatorServer)
    return SparkSession(context)


def _keep_quiet(server: BaseServer) -> None:
    """Stop a server of PySpark from printing that the JVM has broken its connection, as a killed
    one does. Other errors are printed as before."""
    report = server.handle_error

    def handle_error(request: Any, client_address: Any) -> None:  # noqa: ANN401 - as socketserver's
        if not isinstance(sys.exception(), (EOFError, ConnectionError)):
            report(request, client_address)

    server.handle_error = handle_error  # type: ignore[method-assign]


def _executors(session: SparkSession) -> int:
    tracker = session.sparkContext._jsc.sc().statusTracker()
    return len(tracker.getExecutorInfos()) - 1  # the driver is one of them


def _is_stopped(session: SparkSession) -> bool:
    """Whether Spark has ended the application by itself; its JVM stays."""
    try:
        return bool(session.sparkContext._jsc.sc().isStopped())
    except (Py4JError, OSError):
        return False


def _forget(gateway: JavaGateway) -> None:
    """Take a dead JVM out of PySpark's class attributes, where a new session would find it."""
    if SparkContext._gateway is gateway:
        context = SparkContext._active_spark_context
        if context is not None:
            context._jsc = None  # otherwise stop() would call it
            context.stop()
        SparkContext._gateway = None
        SparkContext._jvm = None
        SparkSession._instantiatedSession = None
        SparkSession._activeSession = None
    with contextlib.suppress(Py4JError, OSError):
        gateway.shutdown()


def first_line(error: BaseException) -> str:
    """The first line of an error. For a Java exception it is the exception's own text, because py4j
    puts the call on the first line. To get that text py4j calls the JVM, which may be gone."""
    try:
        called, *said = str(error).splitlines()
    except (Py4JError, OSError, ValueError):
        return type(error).__name__
    return said[0].removeprefix(": ") if said and isinstance(error, Py4JJavaError) else called


# py4j logs broken connections: without a handler Python would print them on the terminal.
for _name in ("py4j", "pyspark"):
    logging.getLogger(_name).addHandler(logging.NullHandler())
    logging.getLogger(_name).propagate = False

# PySpark imports pandas at its start, and prints a warning if it is new; we take results as Arrow.
warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
