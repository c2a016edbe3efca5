"""Which readers were given the end of a stream: one of them is enough to refuse its reopening."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

import trio
from msgspec import Struct

from medusa.engine.objects.definitions import base_of
from medusa.engine.objects.schema import END
from medusa.engine.streams.store.folders import StreamFolders
from medusa.engine.streams.store.stream_state import StreamState
from medusa.overlay.concurrency import Locks
from medusa.overlay.errors import BrokenError, NotFoundError
from medusa.overlay.failpoints import Failpoint, failpoint
from medusa.overlay.files import load_json, save_json, storing

_ENDED: Final = "ended.json"
"""The file with the readers that got the end of the stream."""

MAX_END_READERS: Final = 64
"""Readers in that file: one is enough for a refusal; people want to know a few."""


class EndReaders(Struct, frozen=True):
    """The readers that got the end of a source stream or of its revisions."""

    readers: tuple[str, ...]


class EndsRead:
    """Records which readers got the ends of streams, for all streams of a peer. Args: find: finds a
    log of a stream here by its name and variant.
    """

    def __init__(
        self, folders: StreamFolders, find: Callable[[str, str], StreamState | None]
    ) -> None:
        self._folders = folders
        self._find = find
        self._notifying = Locks()

    async def note(self, state: StreamState, reader: str) -> None:
        """Record on disk that a reader gets the end of a source stream or of its revisions.

        Raises:
            BrokenError: the stream was reopened.
        """
        source = self._find(base_of(state.name), state.variant)
        if source is None or source.leader is None:
            return
        async with self.notifying(source):
            if state.log.boundary < END:
                raise BrokenError(f"{state.name} goes on although it had ended: ask again")
            path = self._path(source)
            known = load_end_readers(path)
            if reader not in known and len(known) < MAX_END_READERS:
                await trio.to_thread.run_sync(save_json, path, EndReaders((*known, reader)))

    def notifying(self, source: StreamState) -> trio.Lock:
        """The lock under which a reader gets the end of the stream: while it is held, no further
        reader does."""
        return self._notifying.of(str(source.key))

    def readers(self, state: StreamState) -> tuple[str, ...]:
        """The readers that got a source stream's end, or its revisions', in words for people."""
        return load_end_readers(self._path(state))

    @failpoint(Failpoint.STREAM_FORGET_END)
    def forget(self, state: StreamState) -> None:
        """Delete the record of the end of a stream, which was reopened. Blocking."""
        path = self._path(state)
        with storing(path):
            path.unlink(missing_ok=True)

    def _path(self, state: StreamState) -> Path:
        return self._folders.of(state.key) / _ENDED


def load_end_readers(path: Path) -> tuple[str, ...]:
    """The readers in that file. Blocking."""
    try:
        return load_json(path, EndReaders, mend="remove it if nobody has read the end").readers
    except NotFoundError:
        return ()
