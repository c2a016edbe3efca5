"""Stores on disk the incarnations that this peer may have used: a restart must use a higher one.

* The clock alone is enough until somebody sets it back.
* The file alone is enough until it is lost (memberlist's #311: the others do not believe that a
  node with a lower incarnation is alive).
* A number in the file far ahead of the clock is ignored: no peer believed those incarnations.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from medusa.overlay.clock import MICROS, latest_number
from medusa.overlay.errors import DecodeError, NotFoundError
from medusa.overlay.files import mended_by, read_public, write_atomically
from medusa.overlay.gossip.claims import MAX_INCARNATION, RESERVE

FILE: Final = "incarnation"

MAX_FILE: Final = 64
"""Bytes: one number."""


def next_incarnation(folder: Path, clock: int) -> int:
    """An incarnation above all used before, and not below `clock`; `RESERVE` more are reserved on
    disk.

    Args:
        clock: microseconds since the epoch.

    Raises:
        DamagedError: the file is damaged.
        StorageError: it cannot be written.
    """
    used = load_incarnation(folder)
    incarnation = clock if used > latest_number(clock / MICROS, MICROS) else max(clock, used + 1)
    store_incarnation(folder, incarnation + RESERVE)
    return incarnation


def load_incarnation(folder: Path) -> int:
    """The highest reserved incarnation; 0 if there is no file.

    Raises:
        DamagedError: the file is damaged.
    """
    path = folder / FILE
    with mended_by(path, "remove it: the clock will do, unless it was set back"):
        try:
            text = read_public(path, MAX_FILE).strip()
        except NotFoundError:
            return 0
        if not text.isdigit() or int(text) > MAX_INCARNATION:
            raise DecodeError("it holds no number that an incarnation can have")
        return int(text)


def store_incarnation(folder: Path, incarnation: int) -> None:
    """
    Raises:
        StorageError: see `medusa.overlay.files`.
    """
    write_atomically(folder / FILE, f"{incarnation}\n".encode())
