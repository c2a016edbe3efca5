"""A Spark behind a Connect server: the same jobs, and no JVM of ours. ADR 32.

Only DataFrames reach the server: they read the peer's files there, so its data has to be on storage
that both share.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
import warnings
from collections.abc import Callable
from typing import Any, Final, TypeVar, cast
from urllib.parse import quote

from pyspark.errors import PySparkException, PySparkImportError
from pyspark.sql import SparkSession

from medusa.engine.spark.config import MEND, SETTINGS, SparkConfig
from medusa.engine.spark.session import BREAKAGE, SparkLostError, first_line
from medusa.overlay.errors import InternalError, InvalidInputError, NotFoundError
from medusa.overlay.files import read_secret

T = TypeVar("T")

TRIES: Final = 4
FIRST_WAIT_MS: Final = 100
LONGEST_WAIT_MS: Final = 2_000
"""The waits before a call that cannot reach the server is tried again grow from 0.1 s to this, four
seconds in all. By default PySpark would try for ten minutes, and the peer would not report it
meanwhile."""

_HADOOP: Final = "spark.hadoop."

_LOOPBACK: Final = re.compile(r"sc://(localhost|127\.|\[::1\])")


class ConnectSpark:
    """A session at a Connect server. Every method blocks; `run` may be called from many threads."""

    def __init__(self, config: SparkConfig) -> None:
        self._config = config
        self._changing = threading.Lock()
        self._session: SparkSession | None = None

    @property
    def shares(self) -> bool:
        """As `medusa.engine.spark.session.Spark.shares`: the server is on another machine."""
        return False

    @property
    def alive(self) -> bool:
        """Whether the server is known to have a session."""
        return self._session is not None

    def start(self) -> None:
        """Open a session, unless there is one.

        Raises:
            MedusaError: as `url_of`; packages are missing; or the server does not answer.
        """
        with self._changing:
            if self._session is not None:
                return
            url = url_of(self._config)
            try:
                self._session = _open_session(url, self._config)
            except PySparkImportError as error:
                text = "Spark Connect takes more packages: pip install 'medusa-federation[connect]'"
                raise InvalidInputError(f"{text} ({first_line(error)})") from error
            except BREAKAGE as error:
                text = f"{self._config.master} does not answer: {_cause(error)}; {MEND}"
                raise SparkLostError(text) from error

    def restart(self) -> None:
        """Open another session, unless another thread has already done so."""
        self.start()

    def stop(self) -> None:
        """Close the session; jobs under way raise `SparkLostError`."""
        with self._changing:
            session, self._session = self._session, None
        if session is not None:
            with contextlib.suppress(*BREAKAGE):
                session.stop()

    def run(self, job: Callable[[SparkSession], T]) -> T:
        """Run `job` on the session.

        Raises:
            SparkLostError: the server is gone, or has forgotten the session.
            InternalError: Spark refused or failed the job.
        """
        session = self._session
        if session is None:
            raise SparkLostError("there is no session at the Spark Connect server")
        try:
            return job(session)
        except BREAKAGE as error:
            if _answers(session):
                raise InternalError(f"Spark failed: {_cause(error)}") from error
            with self._changing:
                if self._session is session:
                    self._session = None
            text = f"{self._config.master} is gone, or has forgotten the session"
            raise SparkLostError(f"{text}: {_cause(error)}") from error


def url_of(config: SparkConfig) -> str:
    """The server's address, with the token that the file `secret_file` has, if the file exists.

    Raises:
        NotAuthorisedError: the file is open to others.
        InvalidInputError: rows would travel in clear, and anybody could run code there.
    """
    master = config.master
    try:
        secret = "" if config.secret_file is None else read_secret(config.secret_file).decode()
    except NotFoundError:
        secret = ""
    if not secret and "use_ssl=true" not in master and not _LOOPBACK.match(master):
        raise InvalidInputError(
            f"{master} is reached in clear: write its token into {config.secret_file}, mode 0600, "
            "or add /;use_ssl=true to master in [spark] of medusa.toml"
        )
    address = master if "/;" in master else f"{master.rstrip('/')}/"
    return f"{address};token={quote(secret.strip(), safe='')}" if secret else master


def _open_session(url: str, config: SparkConfig) -> SparkSession:
    # PySpark's own switch: from now on its functions make the columns of a Connect session.
    os.environ["SPARK_CONNECT_MODE_ENABLED"] = "1"
    from pyspark.sql.connect.client.retries import DefaultPolicy
    from pyspark.sql.connect.session import SparkSession as ConnectSession

    session: Any = ConnectSession.builder.remote(url).create()
    tries = DefaultPolicy(
        max_retries=TRIES, initial_backoff=FIRST_WAIT_MS, max_backoff=LONGEST_WAIT_MS
    )
    session.client.set_retry_policies([tries])
    ours = {name.removeprefix(_HADOOP): value for name, value in SETTINGS.items()}
    ours["spark.sql.shuffle.partitions"] = str(os.cpu_count() or 1)
    for name, value in ours.items():
        if not name.startswith("spark.") or session.conf.isModifiable(name):
            session.conf.set(name, value)  # the server decides about the other settings
    for name, value in config.options.items():
        session.conf.set(name.removeprefix(_HADOOP), value)
    return cast("SparkSession", session)  # a Connect session has the methods that a job needs


def _cause(error: BaseException) -> str:
    """The text of an error in one line. An error of gRPC has it in the line of its details."""
    details = re.search(r'^\s*details = "(.*)"$', str(error), re.MULTILINE)
    return details[1] if details else first_line(error)


def _answers(session: SparkSession) -> bool:
    """Whether the server still has the session."""
    try:
        session.conf.get("spark.sql.ansi.enabled")
    except (PySparkException, OSError, ValueError):  # ValueError: the session's channel is closed
        return False
    return True


# PySpark prints a failed call on the terminal before it raises the error.
warnings.filterwarnings("ignore", r"\[RETRIES_EXCEEDED\]")
