"""The streams of a stopped peer, as its files have them; changes nothing."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from medusa.engine.objects.definitions import LATE, REVISIONS
from medusa.engine.objects.schema import BEGINNING
from medusa.engine.streams.journal.entries import is_torn, whole_entries
from medusa.engine.streams.log.epochs import EpochFile
from medusa.engine.streams.log.scanning import look
from medusa.engine.streams.revisions.columns import revisions_schema
from medusa.engine.streams.store.folders import GONE, read_entry
from medusa.engine.streams.store.stream_state import StoredStream
from medusa.overlay.errors import DamagedError, NotFoundError
from medusa.overlay.files import storing
from medusa.overlay.inventory import SUFFIX, Inventory, is_missing

LOG: Final = "log"

Damaged = Callable[[DamagedError], None]
"""A function that is called with each damaged file, which is left out."""


@dataclass(frozen=True)
class SeenLog:
    """A log on the disk.

    Attributes:
        name: the name of its folder: log, late or revisions.
        start, boundary: it has the rows in between, microseconds.
        lost: the intervals whose rows are damaged or missing.
    """

    name: str
    start: int
    boundary: int
    files: int
    rows: int
    bytes: int
    lost: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class SeenJournal:
    """A journal on the disk.

    Attributes:
        name: the name of its folder.
        entries: the number of whole entries; the first one of each segment is a snapshot.
        torn: bytes of the entry that the process was writing when it died; it was not acknowledged.
    """

    name: str
    segments: int
    entries: int
    bytes: int
    torn: int


@dataclass(frozen=True)
class SeenStream:
    """A stream that the peer keeps."""

    stored: StoredStream
    folder: Path
    logs: tuple[SeenLog, ...]
    journals: tuple[SeenJournal, ...]


def see_streams(folder: Path, damaged: Damaged) -> Iterator[SeenStream]:
    """The streams in the folder of a stopped peer. Blocking.

    Raises:
        StorageError: a folder cannot be read.
    """
    with storing(folder):
        folders = sorted(path for path in folder.glob("*") if path.is_dir())
    inventory = Inventory(folder)
    for name in inventory.missing(path.name for path in folders):
        damaged(DamagedError(is_missing(folder / name, inventory)))
    for each in folders:
        if each.name.startswith(GONE):
            continue
        try:
            stored = read_entry(each)
        except NotFoundError as error:
            if each.name in inventory.names:
                damaged(DamagedError(str(error)))
            continue
        except DamagedError as error:
            damaged(error)
            continue
        yield SeenStream(
            stored,
            each,
            tuple(_logs(each, stored, damaged)),
            tuple(_journals(each, damaged)),
        )


def _logs(folder: Path, stored: StoredStream, damaged: Damaged) -> Iterator[SeenLog]:
    schema = stored.entry.schema
    own = schema.derived if stored.entry.stream.query else schema.source
    schemas = {LOG: own, LATE: schema.source}
    if stored.entry.is_revised and not stored.entry.stream.query:
        schemas[REVISIONS] = revisions_schema(schema, source=True).source
    for name, columns in schemas.items():
        if not (folder / name).is_dir():
            continue
        try:
            files = look(folder / name, columns)
        except DamagedError as error:
            damaged(error)
            continue
        for file in files:
            if file.lost:
                damaged(DamagedError(f"{file.path} is damaged or missing"))
        yield _log(name, files)


def _log(name: str, files: Sequence[EpochFile]) -> SeenLog:
    return SeenLog(
        name,
        files[0].after if files else BEGINNING,
        files[-1].upto if files else BEGINNING,
        len(files),
        sum(file.rows for file in files),
        sum(file.bytes for file in files),
        tuple((file.after, file.upto) for file in files if file.lost),
    )


def _journals(folder: Path, damaged: Damaged) -> Iterator[SeenJournal]:
    known = [path.with_suffix("") for path in folder.glob(f"*journal*{SUFFIX}")]
    there = [path for path in folder.glob("*journal*") if path.is_dir()]
    for path in sorted({*known, *there}):
        yield _journal(path, damaged)


def _journal(folder: Path, damaged: Damaged) -> SeenJournal:
    segments = sorted(folder.glob("*.journal"))
    for name in Inventory(folder).missing(path.name for path in segments):
        damaged(DamagedError(f"{folder / name} is missing: restore it from a copy"))
    entries = size = torn = 0
    for number, path in enumerate(segments, 1):
        with storing(path), path.open("rb") as file:
            length = os.fstat(file.fileno()).st_size
            at = 0
            for entry in whole_entries(file.fileno(), length):
                if entry.start > at:
                    damaged(_missing(path, at, entry.start))
                at = entry.end
                entries += 1
            if number == len(segments) and at and is_torn(file.fileno(), at, length):
                torn = length - at
            elif at < length or not at:
                damaged(_missing(path, at, length))
        size += length
    return SeenJournal(folder.name, len(segments), entries, size, torn)


def _missing(path: Path, start: int, end: int) -> DamagedError:
    return DamagedError(f"{path} is damaged: {end - start} bytes from byte {start} on")
