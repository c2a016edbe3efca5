from __future__ import annotations

import os
import re
import shutil
import signal
import struct
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, cast

import psutil
from py4j.java_gateway import JavaGateway
from pyspark.errors import PySparkException
from pyspark.find_spark_home import _find_spark_home
from pyspark.java_gateway import launch_gateway

from medusa.engine.spark.archive import ClassArchive, archive_for
from medusa.engine.spark.config import MEND
from medusa.engine.spark.java import find_java
from medusa.overlay.errors import StoppedError, UnavailableError, printable
from medusa.overlay.events import wall_clock
from medusa.overlay.files import SECRET_MODE

STILL_S: Final = 90.0
"""A starting JVM that has used no CPU for so long is stuck, seconds. A JVM that uses CPU may take
longer, because the machine may be slow, or start others on its few cores."""

MOVE_CPU_S: Final = 0.05
"""CPU seconds that count as a sign of life: processes are counted in ticks of 10 ms."""

SCRATCH_S: Final = 3_600.0
"""A temporary folder of this age, seconds, belongs to a JVM that has ended, or that started long
ago."""

SAID: Final = 300
"""Most characters of a JVM's output in an error: one line."""

_WARNINGS: Final = ("WARNING", "NOTE", "Picked up", "Using ")

_SECRET: Final = re.compile(r"secret|password|token|access[.]?key", re.IGNORECASE)
"""Settings that Spark itself hides: they are sent over the gateway, not on the command line."""

PRIVATE: Final = 0o077
"""The umask of a JVM: only its user may read its logs and rows."""

_POLL_S: Final = 0.02
"""Seconds between two looks for the greeting of a starting JVM."""

_KILLS: Final = (signal.SIGINT, signal.SIGKILL, signal.SIGTERM)
"""Signals by which other programs, or a kernel without free memory, end a JVM."""

_REAP_S: Final = 2.0
"""How long a killed JVM may take to be reaped, seconds: its sockets break a little earlier."""

_ATTACH: Final = threading.Lock()
"""Guards the environment, because `launch_gateway` takes a JVM's port and secret only from
there."""


class KilledError(UnavailableError, code=None):
    """The JVM was killed while it started."""


@dataclass(frozen=True)
class Jvm:
    """The JVM process that Spark runs in: it has no terminal, and ends when Python does.

    Attributes:
        output: the file with its stdout and stderr. log: the file of its logger.
        archive: the archive of its classes, whether it started from it or not; None: there is none.
    """

    process: subprocess.Popen[bytes]
    port: int
    secret: str
    output: Path
    log: Path
    archive: ClassArchive | None

    @staticmethod
    def launch(
        settings: Mapping[str, str], folder: Path, given_up: threading.Event | None = None
    ) -> Jvm:
        """Start a JVM, and wait until it answers.

        It ends with its standard input, a pipe from this process: even if this process is killed.

        Args:
            given_up: once this is set, nobody waits for the JVM any more.

        Raises:
            InvalidInputError: there is no Java. UnavailableError: the JVM ended, or is stuck.
                KilledError: the JVM was killed. StoppedError: the JVM was given up.
        """
        given_up = given_up or threading.Event()
        folder = folder.resolve()
        java = find_java(os.environ)
        archive = archive_for(settings, java, Path(_find_spark_home()), os.environ)
        if archive is None or not (options := archive.options()):
            return Jvm._launch(settings, folder, java, archive, given_up)
        try:
            return Jvm._launch(settings, folder, java, archive, given_up, options=options)
        except KilledError:
            raise
        except UnavailableError:
            jvm = Jvm._launch(settings, folder, java, archive, given_up)
            archive.discard()  # without it a JVM starts: the fault is the archive's
            return jvm

    @staticmethod
    def _launch(
        settings: Mapping[str, str],
        folder: Path,
        java: Path,
        archive: ClassArchive | None,
        given_up: threading.Event,
        *,
        options: str = "",
    ) -> Jvm:
        scratch = _new_scratch(folder / "scratch")
        output, log = folder / "spark.out", folder / "spark.log"
        output.touch(SECRET_MODE)
        with tempfile.TemporaryDirectory(dir=scratch) as meeting, output.open("wb") as sink:
            hello = Path(meeting, "hello")
            process = subprocess.Popen(
                _command(settings, scratch, log, options),
                stdin=subprocess.PIPE,
                stdout=sink,
                stderr=subprocess.STDOUT,
                env=_environment(java, hello),
                cwd=scratch,
                start_new_session=True,  # a Ctrl-C on the terminal is for this process to handle
                umask=PRIVATE,
            )
            port, secret = _await_hello(process, hello, output, given_up)
        return Jvm(process, port, secret, output, log, archive)

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def connect(self) -> JavaGateway:
        """PySpark's gateway to it."""
        with _ATTACH:
            os.environ["PYSPARK_GATEWAY_PORT"] = str(self.port)
            os.environ["PYSPARK_GATEWAY_SECRET"] = self.secret
            try:
                return cast("JavaGateway", launch_gateway())  # type: ignore[no-untyped-call]
            finally:
                del os.environ["PYSPARK_GATEWAY_PORT"], os.environ["PYSPARK_GATEWAY_SECRET"]

    def dying(self, error: BaseException) -> bool:
        """Whether the JVM is gone, or just going, after a call to it raised `error`."""
        if isinstance(error, PySparkException):  # the JVM has answered
            return not self.alive
        try:
            self.process.wait(_REAP_S)
        except subprocess.TimeoutExpired:
            return False
        return True

    def end(self, limit_s: float) -> None:
        """Let the JVM end by itself, so that it can write its archive.

        Raises:
            subprocess.TimeoutExpired: it took longer.
        """
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(limit_s)

    def kill(self) -> None:
        """End the JVM at once: all durable data is in the streams' logs."""
        _end(self.process)


def _new_scratch(within: Path) -> Path:
    """Make a folder for one JVM. Folders of earlier ones are removed once no JVM can be about to
    start in them: a JVM whose folder vanishes then would never read its standard input, and would
    outlive Python."""
    within.mkdir(parents=True, exist_ok=True)
    for old in within.iterdir():
        if wall_clock() - old.stat().st_mtime > SCRATCH_S:
            shutil.rmtree(old, ignore_errors=True)
    return Path(tempfile.mkdtemp(dir=within))


def _command(settings: Mapping[str, str], scratch: Path, log: Path, more: str) -> list[str]:
    """The command of spark-submit, which adds the class path and the module options, and execs the
    JVM.

    Args:
        more: options of the JVM.
    """
    configuration = Path(__file__).with_name("log4j2.properties")
    quiet = f'-Dlog4j2.configurationFile={configuration.as_uri()} "-Dmedusa.log={log}"'
    ours = {
        "spark.local.dir": str(scratch),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
    }
    merged = {**ours, **settings}
    options = merged.get("spark.driver.extraJavaOptions", "")
    merged["spark.driver.extraJavaOptions"] = (
        f'{options} {quiet} "-Djava.io.tmpdir={scratch}" -XX:+ExitOnOutOfMemoryError {more}'
    )
    command = [os.path.join(_find_spark_home(), "bin", "spark-submit")]
    for name, value in merged.items():
        if not _SECRET.search(name):  # every user of the machine sees command lines
            command += ["--conf", f"{name}={value}"]
    return [*command, "pyspark-shell"]


def _environment(java: Path, hello: Path) -> dict[str, str]:
    return {
        **os.environ,
        "JAVA_HOME": str(java),
        "PYTHONSAFEPATH": "1",
        "SPARK_CONNECT_MODE": "0",
        "_PYSPARK_DRIVER_CONN_INFO_PATH": str(hello),
    }


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    if process.stdin is not None:
        process.stdin.close()


def _said(output: Path) -> str:
    """The first line, warnings excluded, that an ended JVM wrote: the cause comes first."""
    with output.open(encoding="utf-8", errors="replace") as file:
        lines = [line.strip() for line in file.read(16 * SAID).splitlines()]
    told = next((line for line in lines if line and not line.startswith(_WARNINGS)), "")
    return printable(told)[:SAID] or "it ended and said nothing"


def _cpu_s(pid: int) -> float:
    try:
        times = psutil.Process(pid).cpu_times()
    except psutil.Error:  # the process has ended
        return 0.0
    return float(times.user + times.system + times.children_user + times.children_system)


def _await_hello(
    process: subprocess.Popen[bytes],
    hello: Path,
    output: Path,
    given_up: threading.Event,
    still_s: float = STILL_S,
) -> tuple[int, str]:
    """The port and the secret that the JVM writes when it listens."""
    used, moved = 0.0, time.monotonic()
    while not hello.exists():
        if given_up.is_set():
            _end(process)
            raise StoppedError("the start of the JVM was given up")
        seconds, now = _cpu_s(process.pid), time.monotonic()
        if seconds > used + MOVE_CPU_S:
            used, moved = seconds, now
        code = process.poll()
        if code is not None and -code in _KILLS:
            _end(process)
            raise KilledError(f"the JVM was killed as it started, with signal {-code}")
        if code is not None or now > moved + still_s:
            _end(process)
            said = f"it stood still for {still_s:g} s" if code is None else _said(output)
            raise UnavailableError(f"the JVM did not start: {said}; {MEND}; more is in {output}")
        time.sleep(_POLL_S)
    content = hello.read_bytes()
    port, length = struct.unpack_from("!ii", content)
    return port, content[8 : 8 + length].decode()
