"""Where Java is on this machine; found without importing PySpark."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

from medusa.overlay.errors import InvalidInputError

LEAST_JAVA: Final = 17
"""Spark 4 runs on Java 17 and later."""

USUAL_FOLDERS: Final = (
    "/usr/lib/jvm/*",
    "/usr/java/*",
    "/opt/java/*",
    "/opt/jdk*",
    "/opt/homebrew/opt/openjdk*",
    "/usr/local/opt/openjdk*",
    "/Library/Java/JavaVirtualMachines/*/Contents/Home",
)
"""Where package managers and installers put Java."""

_ASK_S: Final = 20.0
"""Longest wait for `java -version`, seconds: generous for a cold disk."""


def find_java(environment: Mapping[str, str], folders: Iterable[str] = USUAL_FOLDERS) -> Path:
    """The home folder of a Java of version 17 or later.

    It is searched in `JAVA_HOME`, on `PATH`, and in the usual folders, in that order. Raises:
    InvalidInputError: there is none; the message says what was found instead, and how to get one.
    """
    seen: list[str] = []
    for executable in dict.fromkeys(_candidates(environment, folders)):
        version = java_version(executable)
        if version is not None and version >= LEAST_JAVA:
            return executable.parent.parent
        seen.append(f"{executable} is {'no Java' if version is None else f'version {version}'}")
    found = f" ({'; '.join(seen)})" if seen else ""
    raise InvalidInputError(
        f"no Java {LEAST_JAVA} or later found{found}: install one, for example "
        "`apt-get install openjdk-17-jre-headless` or `brew install openjdk@17`, or set JAVA_HOME"
    )


def _candidates(environment: Mapping[str, str], folders: Iterable[str]) -> Iterator[Path]:
    home = environment.get("JAVA_HOME")
    if home:
        yield Path(home, "bin", "java").resolve()
    on_path = shutil.which("java", path=environment.get("PATH", ""))
    if on_path:
        yield Path(on_path).resolve()
    for pattern in folders:
        for folder in sorted(Path("/").glob(pattern.removeprefix("/")), reverse=True):
            executable = folder / "bin" / "java"
            if executable.is_file():
                yield executable.resolve()


def java_version(executable: Path) -> int | None:
    """The major version of a `java` executable; None if it is no `java`."""
    try:
        answer = subprocess.run(
            [executable, "-version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_ASK_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return parse_version(answer.stderr.decode(errors="replace"))


def parse_version(text: str) -> int | None:
    """The major version in the output of `java -version`; 1.8 is 8."""
    match = re.search(r'version "(\d+)(?:\.(\d+))?', text)
    if match is None:
        return None
    major = int(match[1])
    return int(match[2] or 0) if major == 1 else major
