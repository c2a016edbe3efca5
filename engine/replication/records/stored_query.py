"""The queries that a peer keeps, one JSON file each. A query exists if its file does.

If another peer has taken a query over, this peer remembers the boundaries up to which it has served
the query's streams: the new peer must not make other results there (ADR 13).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from medusa.engine.objects.availability import Availability
from medusa.engine.objects.definitions import QueryEntry, StreamEntry
from medusa.engine.objects.files import file_name
from medusa.engine.objects.schema import BEGINNING
from medusa.engine.replication.records import placements as workers
from medusa.engine.replication.records.placements import Placements, WrittenPlacement, at_owner
from medusa.engine.replication.records.term import Term
from medusa.engine.tasks.network import Network
from medusa.engine.tasks.query_editions import Edition
from medusa.overlay.errors import DamagedError, NotFoundError, StorageError
from medusa.overlay.files import load_json, save_json, storing
from medusa.overlay.identity import parse_optional_peer_id, parse_peer_id
from medusa.overlay.json_folder import JsonFolder, refuse
from medusa.overlay.names import PeerId


class WrittenTerm(Struct, frozen=True):
    """The term of a query in the form of files and messages; see `Term`. Attributes: term_number:
    its number; peers with a lower one are not believed any more. primary, secondary: peer ids (hex)
    of holder and member; "": none, or not yet stored.
    """

    term_number: int = 0
    primary: str = ""
    secondary: str = ""

    def of(self, query: str) -> Term:
        """The term. query: its name."""
        members = (parse_peer_id(self.secondary),) if self.secondary else ()
        return Term(query, self.term_number, parse_optional_peer_id(self.primary), members)


def written(term: Term) -> WrittenTerm:
    """The form of a query's term for files and messages."""
    return WrittenTerm(term.number, term.holder.hex(), term.secondary.hex())


class StoredQuery(Struct, frozen=True):
    """A query with all that a restart needs.

    Attributes:
        written_placements: by task that has ever moved; see `placements`.
        written_term: its primary and secondary; see `term`.
        positions: for each stream, the boundary after which a secondary that takes over needs the
            stream. variant: the variant of the logs of its outputs at this peer (`LogKey`).
        editions: editions of the query that a peer may still compute, the oldest first.
        parted: peer ids (hex) of former members, which may not know that they have no part in it.
        since: for outputs that dropped editions had changed: the boundary from which on the output
            is that of the oldest edition left.
    """

    entry: QueryEntry
    inputs: dict[str, StreamEntry]
    kept: tuple[str, ...]
    written_placements: dict[str, tuple[WrittenPlacement, ...]] = {}
    written_term: WrittenTerm = WrittenTerm()
    positions: dict[str, int] = {}
    variant: str = ""
    editions: tuple[Edition, ...] = ()
    since: dict[str, int] = {}
    parted: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return self.entry.query.name

    @property
    def term(self) -> Term:
        """The query's term: its holder is the primary, its member the secondary."""
        return self.written_term.of(self.name)

    def under(self, term: Term) -> StoredQuery:
        """The same query, under another term."""
        return msgspec.structs.replace(self, written_term=written(term))

    @property
    def published(self) -> QueryEntry:
        """The query's catalog entry."""
        return msgspec.structs.replace(self.entry, label=self.network.policies)

    @property
    def availability(self) -> Availability:
        return self.entry.query.availability

    @property
    def network(self) -> Network:
        entry = self.entry
        return Network(
            entry.query, self.inputs, self.kept, self.editions, entry.readers, entry.altered
        )

    def parted_from(self, peer: PeerId) -> tuple[str, ...]:
        """`parted`, with that peer added."""
        return tuple(sorted({*self.parted, peer.hex()} - {""}))

    def placements(self, task: str) -> Placements:
        """The record of a task's workers."""
        known = self.written_placements.get(task, ())
        return tuple(each.of(task) for each in known) or at_owner(task)

    def placed(self, task: str, placements: Placements) -> StoredQuery:
        """The same query, with another record of a task's workers."""
        known = {**self.written_placements, task: tuple(map(workers.written, placements))}
        return msgspec.structs.replace(self, written_placements=known)


MAX_LEFT: Final = 1_000
"""Queries given up that are remembered; the oldest are dropped."""


class QueryFiles:
    """The query files of one folder. All calls block."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        mend = "restore it from a copy, or remove it and create the query again"
        self._files = JsonFolder(folder, StoredQuery, mend)

    def load(self, damaged: Callable[[DamagedError], None] = refuse) -> Iterator[StoredQuery]:
        """Load the files, as `JsonFolder.load`."""
        return self._files.load(damaged)

    def save(self, stored: StoredQuery) -> None:
        """Save a query. Raises: StorageError: the disk does not take it; the old file stays."""
        self._files.save(self._name(stored.name), stored)

    def remove(self, query: str) -> None:
        """Remove the file of a deleted query. Raises: StorageError: the disk does not allow it."""
        self._files.remove(self._name(query))
        with storing(self._folder):
            self._left(query).unlink(missing_ok=True)

    def leave(self, query: str, given: Mapping[str, int]) -> None:
        """Remove the file of a query that another peer has.

        Args:
            given: for each stream, the boundary up to which it was emitted here, microseconds.

        Raises:
            StorageError: the disk does not allow it.
        """
        # This makes room, so it must not fail; a damaged file stays, and `given` reports it.
        with suppress(StorageError, DamagedError):
            self._remember(query, given)
        self._files.remove(self._name(query))
        with storing(self._folder):
            left = sorted(self._folder.glob("*.left"), key=lambda path: path.stat().st_mtime)
            for path in left[:-MAX_LEFT]:
                path.unlink(missing_ok=True)

    def _remember(self, query: str, given: Mapping[str, int]) -> None:
        before = self.given(query)
        furthest = {
            name: max(given.get(name, BEGINNING), before.get(name, BEGINNING))
            for name in given.keys() | before.keys()
        }
        save_json(self._left(query), furthest)

    def given(self, query: str) -> dict[str, int]:
        """By stream, the boundary up to which this peer emitted a query before it gave the query
        up; other streams were not emitted. Raises: DamagedError: the boundaries are lost.
        """
        mend = "remove it, if no subscriber has read the query's streams from this peer"
        try:
            return load_json(self._left(query), dict[str, int], mend=mend)
        except NotFoundError:
            return {}

    def _left(self, query: str) -> Path:
        return self._folder / file_name(query, ".left")

    @staticmethod
    def _name(query: str) -> str:
        return file_name(query, ".json")
