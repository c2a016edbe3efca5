"""Queries under test: folders with a query, its recorded inputs and the answers that it must give.

busy/query.sql                      or query.xml
busy/inputs/conns.csv               rows of the stream `conns`; also .json, .parquet, .arrow
busy/inputs/utah.edu/conns.csv      of medusa://utah.edu/conns
busy/expected/busy.csv              the rows of `busy`; also .json, .parquet
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Final

from medusa.overlay.errors import InvalidInputError, NotFoundError
from medusa.overlay.names import SCHEME
from medusa.tools.rows.format_names import PACKED_SUFFIXES, WRITTEN, endings, format_of

QUERIES: Final = ("query.sql", "query.xml")
INPUTS: Final = "inputs"
EXPECTED: Final = "expected"


@dataclass(frozen=True, slots=True)
class Case:
    """A query under test.

    Attributes:
        name: its folder, relative to the given one.
        inputs, expected: files by the streams' names, as a query may write them.
    """

    name: str
    folder: Path
    query: Path
    inputs: Mapping[str, Path]
    expected: Mapping[str, Path]


def find_cases(folder: Path, pattern: str | None = None) -> list[Case]:
    """The cases in a folder and in all folders below it, by name.

    Args:
        pattern: only cases whose names have it as a part, or match it with `*` and `?`.

    Raises:
        NotFoundError: there is no such folder, or no such case in it.
        InvalidInputError: a folder is no proper case; the message names the file.
    """
    if not folder.is_dir():
        raise NotFoundError(f"no such folder: {folder}")
    folders = sorted({each.parent for name in QUERIES for each in folder.rglob(name)})
    found = [(_name_of(each, folder), each) for each in folders]
    if not found:
        raise NotFoundError(f"{folder} has no case: a case is a folder with {' or '.join(QUERIES)}")
    chosen = [_case(name, each) for name, each in found if _matches(name, pattern)]
    if not chosen:
        names = ", ".join(name for name, _ in found)[:200]
        raise NotFoundError(f"no case has {pattern!a} in its name; there are {names}")
    return chosen


def _name_of(case: Path, folder: Path) -> str:
    below = case.relative_to(folder).as_posix()
    return folder.resolve().name if below == "." else below


def _matches(name: str, pattern: str | None) -> bool:
    return pattern is None or pattern in name or fnmatch(name, pattern)


def _case(name: str, folder: Path) -> Case:
    queries = [folder / each for each in QUERIES if (folder / each).is_file()]
    if len(queries) != 1:
        raise InvalidInputError(f"{folder}: a case has {' or '.join(QUERIES)}, not both")
    inputs, expected = _files(folder / INPUTS), _files(folder / EXPECTED)
    return Case(name, folder, queries[0], inputs, expected)


def _files(folder: Path) -> dict[str, Path]:
    """The files below a folder by the streams that they are named after."""
    found: dict[str, Path] = {}
    for file in sorted(each for each in folder.rglob("*") if each.is_file()):
        if file.name.startswith("."):
            continue
        if format_of(file) is None:
            raise InvalidInputError(f"{file}: rows are {endings(WRITTEN)}")
        stream = stream_of_file(file.relative_to(folder))
        if stream in found:
            raise InvalidInputError(f"{file}: {found[stream].name} has rows of {stream}, too")
        found[stream] = file
    return found


def stream_of_file(file: Path) -> str:
    """The stream that a file below `inputs` or `expected` is named after."""
    name = file.name
    for suffix in reversed(file.suffixes):
        if format_of(Path(f"x{suffix}")) is None and suffix not in PACKED_SUFFIXES:
            break
        name = name.removesuffix(suffix)
    path = "/".join([*file.parts[:-1], name])
    return path if len(file.parts) == 1 else f"{SCHEME}{path}"


def file_of_stream(case: Case, participant: str, stream: str) -> Path:
    """Where the expected rows of a stream are written if there is no file yet.

    Args:
        stream: the whole name. participant: the participant whose names are written without it.
    """
    owner, _, path = stream.removeprefix(SCHEME).partition("/")
    plain = owner == participant and "/" not in path
    return case.folder / EXPECTED / f"{path if plain else f'{owner}/{path}'}.csv"
