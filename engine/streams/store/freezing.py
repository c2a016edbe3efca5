"""Freezes the data of a running peer, or the log of one stream: makes hard links to the files in
another folder.

The log of a stream merges its files, and renames the newest one, so that a program which lists the
folder and then opens the files finds some gone. The files in a folder of links stay, and no file is
added: outside readers use such a folder (ADR 39).

Most files of a home are written anew and renamed, so that a link keeps the old content. Journals
grow, so the lengths are recorded. Meanwhile the peer answers no post and cuts no epoch of a source
stream, so that journals and logs agree and no derived stream is ahead of its source.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final, NamedTuple

from medusa.engine.streams.log.stream_log import StreamLog
from medusa.engine.streams.storage import TEMPORARY
from medusa.engine.streams.store.store import StreamStore
from medusa.engine.streams.store.stream_state import StoredStream
from medusa.overlay.errors import NotFoundError
from medusa.overlay.files import load_json, save_json, storing
from medusa.overlay.inventory import SUFFIX

SIZES: Final = "sizes.json"
"""The file in the frozen folder with the lengths of the others."""

WARM_UP: Final = "warm-up"
"""The folder of a peer's data for warm-ups of tasks, which all its executors can read."""

LEFT_OUT: Final = frozenset({"ballots", "logs", WARM_UP})
"""Folders of a peer's data that a copy leaves out: an old vote is worse than none."""

INDEX: Final = "catalog.sqlite"
"""The file of the catalog's index, which is made anew if it is missing."""


async def freeze(store: StreamStore, data: Path, into: Path) -> None:
    """Freeze the peer's data in a folder of hard links.

    Args:
        data: the folder of the peer's data. into: a new folder on the same file system.

    Raises:
        StorageError: the disk does not take it.
    """
    async with AsyncExitStack() as resting:
        for state in store.all():
            if state.leader is not None and not state.entry.stream.k_safety:
                await (
                    state.leader.cutter.log_ready()
                )  # a restored peer may continue behind the logged part
                await resting.enter_async_context(state.leader.cutter.at_rest())
        _link(store, data, into)  # without an await, so that no log moves meanwhile


class FrozenLog(NamedTuple):
    """The interval of the tuples in the frozen files of a log, microseconds."""

    after: int
    upto: int
    rows: int


async def freeze_stream(store: StreamStore, name: str, into: Path) -> FrozenLog:
    """Freeze the log of a stream in a folder of hard links, from the end of its last lost file on.

    Args:
        into: a new folder on the same file system.

    Raises:
        NotFoundError: this peer keeps no log of the stream, or the log is empty. StorageError: the
            disk does not take it.
    """
    log = _log_of(store, name)
    await log.damage.fetch_all()
    after = log.oldest
    rows = log.link_into(into, after)
    return FrozenLog(after, log.boundary, rows)


def _log_of(store: StreamStore, name: str) -> StreamLog:
    kept = [state for state in store.all() if state.name == name]
    served = store.serving(name)
    for state in (served, *kept):
        if state is not None and state.log.files:
            return state.log
    if kept:
        raise NotFoundError(f"{name} has no tuples yet: post some, then try again")
    raise NotFoundError(
        f"this peer keeps no log of {name}: `medusa subscribe {name} --into FOLDER` writes its "
        "tuples to files, wherever it is"
    )


def _link(store: StreamStore, data: Path, into: Path) -> None:
    logs = {state.log.folder: state.log for state in store.all()}
    with storing(into):
        for path in copied(data, leave_out=logs):
            named = into / path.relative_to(data)
            named.parent.mkdir(parents=True, exist_ok=True)
            os.link(path, named)
        replicated = _replicated(data)
        for folder, log in logs.items():
            if folder.parent not in replicated:
                log.link_into(into / folder.relative_to(data))
        found = [path for path in into.rglob("*") if path.is_file()]
        save_json(
            into / SIZES, {str(path.relative_to(into)): path.stat().st_size for path in found}
        )


def copied(data: Path, leave_out: Iterable[Path] = ()) -> Iterator[Path]:
    """The files of a peer's data that belong to a copy. leave_out: folders. Inventories do not
    belong to it, because the copy has no votes, and not all streams.
    """
    out = {*leave_out, *_replicated(data), *(data / name for name in LEFT_OUT)}
    for folder, names, files in os.walk(data):
        names[:] = [name for name in names if Path(folder, name) not in out]
        for name in files:
            if not name.startswith((".", TEMPORARY, INDEX)) and not name.endswith(SUFFIX):
                yield Path(folder, name)


def _replicated(data: Path) -> set[Path]:
    """The folders of streams with replicas: other peers have their posts, and elect the leader."""
    found = set()
    for path in data.glob("streams/*/stream.json"):
        try:
            stored = load_json(path, StoredStream, mend="restore it from a copy")
        except NotFoundError:  # the stream was just dropped
            continue
        if stored.entry.stream.k_safety:
            found.add(path.parent)
    return found
