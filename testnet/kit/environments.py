"""Finds the Python environment that has another system beside Medusa, or the reason why none has.

Flink cannot be in one environment with PySpark: its py4j and pyarrow are older. With
MEDUSA_BENCH_ENVIRONMENTS=1, a missing system gets an environment of its own in the cache folder.
"""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from medusa.overlay.errors import UnavailableError

ENVIRONMENTS: Final = "MEDUSA_BENCH_ENVIRONMENTS"
"""The environment variable that allows to install missing packages."""

INSTALL_S: Final = 1_200.0
"""Longest installation, seconds: Flink is 500 MB."""


@dataclass(frozen=True)
class Package:
    """A system that may not be here.

    Attributes:
        name: its name for people. module: the module that its programs import.
        install: what pip installs into an environment of its own.
        mend: what to do if it is missing.
    """

    name: str
    module: str
    install: tuple[str, ...] = ()
    mend: str = f"set {ENVIRONMENTS}=1"

    @property
    def missing(self) -> str:
        """The message for a system that is not installed."""
        return f"{self.name} is not installed: {self.mend}"


FLINK: Final = Package("flink", "pyflink", ("apache-flink>=2.3,<3",))


def interpreter(package: Package, environment: Mapping[str, str]) -> Path | None:
    """The Python that has a package: ours, or that of an environment of its own, which is made if
    the environment asks for it. None: there is none.

    Raises:
        UnavailableError: it cannot be made.
    """
    if importlib.util.find_spec(package.module) is not None:
        return Path(sys.executable)
    caches = Path(environment.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = caches / "medusa" / "bench" / package.module
    python = folder / "bin" / "python"
    if not python.exists():
        if environment.get(ENVIRONMENTS) != "1":
            return None
        _install(package, folder, python)
    return python


def _install(package: Package, folder: Path, python: Path) -> None:
    """Raises: UnavailableError: it cannot be installed; nothing of it is left behind."""
    print(f"installing {package.name} into {folder}", file=sys.stderr)
    commands: tuple[list[str | Path], ...] = (
        [sys.executable, "-m", "venv", folder],
        [python, "-m", "pip", "install", "-q", *package.install],
    )
    try:
        for command in commands:
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL, timeout=INSTALL_S)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        shutil.rmtree(folder, ignore_errors=True)  # a half installed environment must not stay
        raise UnavailableError(f"cannot install {package.name}; its errors are above") from error
