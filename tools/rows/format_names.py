"""The names of the formats of rows, and the suffixes of their files, which commands list without
Arrow."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path
from typing import Final


class Format(StrEnum):
    """A format of rows that are read or written."""

    CSV = "csv"
    JSON = "json"
    ZEEK = "zeek"
    PARQUET = "parquet"
    ARROW = "arrow"


_BY_SUFFIX: Final = {
    ".csv": Format.CSV,
    ".json": Format.JSON,
    ".jsonl": Format.JSON,
    ".ndjson": Format.JSON,
    ".log": Format.ZEEK,
    ".parquet": Format.PARQUET,
    ".arrow": Format.ARROW,
    ".arrows": Format.ARROW,
    ".ipc": Format.ARROW,
    ".feather": Format.ARROW,
}

PACKED_SUFFIXES: Final = {".gz", ".zst", ".zstd"}

READ: Final = tuple(kind.value for kind in Format)
"""The formats in which rows are posted."""

WRITTEN: Final = tuple(kind for kind in READ if kind != Format.ZEEK)
"""The formats in which rows are printed. Only Zeek writes its logs."""


def format_of(path: Path) -> Format | None:
    """The format by a file's name, compressed or not; None if the name does not tell."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    while suffixes and suffixes[-1] in PACKED_SUFFIXES:
        suffixes.pop()
    return _BY_SUFFIX.get(suffixes[-1]) if suffixes else None


def endings(kinds: Iterable[str]) -> str:
    """Return the first suffix of each format, for messages: .csv, .json or .parquet."""
    firsts = [next(each for each, kind in _BY_SUFFIX.items() if kind == wanted) for wanted in kinds]
    return f"{', '.join(firsts[:-1])} or {firsts[-1]}"
