"""An archive of Spark's classes, from which a JVM starts in half the time.

A starting Spark mostly reads, verifies and links twenty thousand classes. A JVM that ends can write
its classes into a file (a dynamic archive, JEP 350), which later ones map into memory. Measured
with Java 17, profile `edge`: 12.4 -> 6.6 CPU-s and 11.8 -> 6.7 s to a small query's first results.

The first Spark of a user that finds no archive starts a process that makes one
(`medusa.engine.spark.training`), at the lowest priority; it outlives its Spark. Nothing depends
on it: without an archive that fits, the JVM loads classes as usual. ADR 18.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil

from medusa.overlay.events import wall_clock

SHAPING: Final = (
    "spark.driver.memory",
    "spark.driver.defaultJavaOptions",
    "spark.driver.extraJavaOptions",
    "spark.driver.extraClassPath",
    "spark.driver.extraLibraryPath",
)
"""The settings that the JVM reads at its start; it reads all others later."""

_SHAPING_ENVIRONMENT: Final = (
    "SPARK_CONF_DIR",
    "SPARK_DIST_CLASSPATH",
    "SPARK_SUBMIT_OPTS",
    "HADOOP_CONF_DIR",
    "YARN_CONF_DIR",
    "JDK_JAVA_OPTIONS",
    "JAVA_TOOL_OPTIONS",
    "_JAVA_OPTIONS",
)

_OWN_WORDS: Final = ("-Xshare", "SharedArchiveFile", "ArchiveClassesAtExit")
"""JVM options about archives. If a user sets one, we use no archive of ours."""

MAX_ARCHIVES: Final = 8
"""Archives of 180 MB: one per Java, Spark and profile. While all are in use no other is made."""
UNUSED_S: Final = 7 * 86_400.0
"""An archive that no JVM has used for so long is removed, seconds."""
RETRY_S: Final = 86_400.0
"""The wait after an archive could not be made, seconds."""
MIN_DISK_BYTES: Final = 2**30
"""Free disk with which an archive is made: five times its size."""
MIN_MEMORY_BYTES: Final = 3 * 2**29
"""Free memory with which an archive is made: the JVM that makes it takes half."""

LOWEST: Final = 19
"""The value of `nice` for a process that runs only when the cores are idle."""

_APART: Final = """niceness=$1
shift
echo "$niceness" >/proc/$$/autogroup
nice -n "$niceness" "$@" &"""
"""Runs a command detached with a priority. If the kernel balances sessions against each other
(autogroup), `nice` alone would count only within its own session."""


@dataclass(frozen=True)
class ClassArchive:
    """The archive for one way of starting a JVM, whether it exists or not.

    Attributes:
        folder: has all archives; only our user can write there.
        key: a hash of the JDK, the jars, and the settings that the JVM starts with.
        shape: the settings among `SHAPING`.
    """

    folder: Path
    key: str
    shape: Mapping[str, str]

    @property
    def path(self) -> Path:
        return self.folder / f"{self.key}.jsa"

    @property
    def failed(self) -> Path:
        """The file that says why the archive could not be made."""
        return self.folder / f"{self.key}.failed"

    @property
    def making(self) -> Path:
        """The folder in which the archive is being made."""
        return self.folder / f"{self.key}.making"

    def options(self) -> str:
        """Options with which a JVM starts from the archive; "" if there is none, or others could
        have written it."""
        if not _is_ours(self.path, stat.S_IFREG):
            return ""
        with contextlib.suppress(OSError):
            os.utime(self.path)
        # No log: if the archive does not fit, the JVM loads classes as usual.
        return f'"-XX:SharedArchiveFile={self.path}" -Xlog:cds=off -Xlog:cds+dynamic=off'

    def discard(self) -> None:
        """Remove the archive, because a JVM did not start from it."""
        self.path.unlink(missing_ok=True)
        self.fail("a JVM did not start from it")

    def fail(self, why: str) -> None:
        """Note that the archive could not be made: the next try is after `RETRY_S`."""
        self.failed.write_text(f"{why}\n", encoding="utf-8")

    def make_apart(self, niceness: int = LOWEST) -> None:
        """Start a process that makes it and may outlive this one, unless the archive is there, has
        just failed, is being made, or there is no room.

        Args:
            niceness: the niceness of the process; 0 where many JVMs will start soon and keep the
                cores busy.
        """
        with contextlib.suppress(OSError), self._alone() as lock:
            if lock is None or not self._is_wanted() or not self._has_room():
                return
            program = [sys.executable, "-P", "-m", "medusa.engine.spark.training"]
            archive = json.dumps([str(self.folder), self.key, dict(self.shape)])
            subprocess.run(
                ["sh", "-c", _APART, "sh", str(niceness), *program, archive],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd=self.folder,
                pass_fds=(lock,),
                start_new_session=True,
                check=False,
            )

    @contextlib.contextmanager
    def _alone(self) -> Iterator[int | None]:
        """Lock the file that all archives share; None while another process makes one. A process
        that inherits the file holds the lock, too."""
        with (self.folder / "lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield None
                return
            yield file.fileno()

    def _is_wanted(self) -> bool:
        return not self.path.exists() and _age_s(self.failed) > RETRY_S

    def _has_room(self) -> bool:
        """Whether there is room, once unused archives are removed."""
        for old in self.folder.iterdir():
            if old.suffix == ".making":  # left by a killed process
                shutil.rmtree(old, ignore_errors=True)
            elif old.suffix in {".jsa", ".failed"} and _age_s(old) > UNUSED_S:
                old.unlink(missing_ok=True)
        return (
            len(list(self.folder.glob("*.jsa"))) < MAX_ARCHIVES
            and shutil.disk_usage(self.folder).free >= MIN_DISK_BYTES
            and psutil.virtual_memory().available >= MIN_MEMORY_BYTES
        )


def archive_for(
    settings: Mapping[str, str], java_home: Path, spark_home: Path, environment: Mapping[str, str]
) -> ClassArchive | None:
    """The archive for a JVM with these settings, whether it exists or not.

    Args:
        environment: `XDG_CACHE_HOME` is the folder of caches; else ~/.cache.

    Returns:
        None if the user's settings decide about archives, or if others can write to every possible
            folder: their classes must not be loaded.
    """
    shape = {name: settings[name] for name in SHAPING if name in settings}
    around = {name: environment[name] for name in _SHAPING_ENVIRONMENT if name in environment}
    said = " ".join((*shape.values(), *around.values()))
    if any(word in said for word in _OWN_WORDS):
        return None
    try:
        folder = _cache(environment) / "medusa" / "classes"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not _is_ours(folder, stat.S_IFDIR):
            return None
        files = [java_home / "lib" / "modules", java_home / "lib" / "server" / "libjvm.so"]
        files += sorted((spark_home / "jars").iterdir())
        stats = [(str(file), os.stat(file)) for file in files if file.exists()]
    except (OSError, RuntimeError):  # RuntimeError: the user has no home folder
        return None
    seen = [(name, found.st_size, found.st_mtime_ns) for name, found in stats]
    text = json.dumps([seen, shape, around], sort_keys=True)
    return ClassArchive(folder, hashlib.sha256(text.encode()).hexdigest()[:24], shape)


def _cache(environment: Mapping[str, str]) -> Path:
    named = Path(environment.get("XDG_CACHE_HOME", ""))
    return named if named.is_absolute() else Path.home() / ".cache"


def _is_ours(path: Path, kind: int) -> bool:
    """Whether the path is a file or folder, no link, that only this user can have written."""
    try:
        found = path.lstat()
    except OSError:
        return False
    return (
        stat.S_IFMT(found.st_mode) == kind
        and found.st_uid == os.geteuid()
        and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    )


def _age_s(path: Path) -> float:
    """Seconds since a file was last written or used; infinite if it is missing."""
    try:
        return wall_clock() - path.stat().st_mtime
    except OSError:
        return float("inf")
