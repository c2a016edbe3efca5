"""The state that follows from the accepted entries of one source stream. Sans IO.

An entry changes this state in one way, whether it was posted now, is read from the journal after a
crash, or comes from the leader's journal to a replica.
"""

from __future__ import annotations

import msgspec

from medusa.engine.objects.definitions import StreamDefinition, is_revised
from medusa.engine.objects.schema import BEGINNING, END, Schema
from medusa.engine.streams.config import SourceConfig
from medusa.engine.streams.journal.entries import Bytes
from medusa.engine.streams.journal.journal import Position
from medusa.engine.streams.source.acceptance import (
    Acceptance,
    Entry,
    Snapshot,
    decode_entry,
)
from medusa.engine.streams.source.waiting import Taker, WaitingRevisions, WaitingTuples
from medusa.engine.streams.validate import Batch


class SourceState:
    """
    Attributes:
        name, schema: the stream's name and schema.
        config: the settings, with the stream's definition in its journal; some replicas may not
            have it yet.
        acceptance: its accepted state.
        waiting: the accepted tuples that are not in the log yet.
        revisions: the revisions that wait for their log; None: the stream takes none.
    """

    def __init__(
        self,
        name: str,
        schema: Schema,
        config: SourceConfig,
        *,
        logged: int,
        revised: int,
        late: Taker | None,
    ) -> None:
        self.name = name
        self.schema = schema
        self.config = config
        self.acceptance = Acceptance(
            slack_us=config.slack_us,
            arrival=schema.time is None,
            idle_us=config.idle_timeout_us,
        )
        self.waiting = WaitingTuples(name, schema, logged, late)
        revises = is_revised(schema, config.lateness_us)
        self.revisions = WaitingRevisions(schema, revised) if revises else None

    @property
    def boundary(self) -> int:
        """The stream's boundary, microseconds."""
        return self.acceptance.boundary

    @property
    def reached(self) -> int:
        """The greatest boundary of its logs, microseconds: the clock may have moved both, and a
        crash may have come before the log of tuples followed."""
        committed = self.waiting.committed
        return committed if self.revisions is None else max(committed, self.revisions.committed)

    def take(self, entry: Entry, batch: Batch | None, at: Position) -> int:
        """Apply a journaled entry; returns the stime that the logs must reach before the journal
        may drop it. Args: batch: None: the log has all its rows. at: where the entry ends in the
        journal.
        """
        late_posts = self.acceptance.late_posts
        self.acceptance.apply(entry)
        if entry.definition is not None:
            self.config = self.config.of(entry.definition)
        if entry.position is not None:
            if self.revisions is not None:
                self.revisions.take(entry, batch)
            return entry.position if entry.count else BEGINNING
        if batch is None:
            return BEGINNING
        self.waiting.take(entry, batch, at, late_posts)
        needed = entry.greatest if entry.in_order else BEGINNING
        if entry.inserted is not None and self.revisions is not None:
            self.revisions.insert(entry, batch)
            needed = max(needed, entry.inserted.position)
        return needed

    def decoded(self, meta: bytes, body: Bytes) -> tuple[Entry, Batch | None]:
        """An entry of the journal, and its rows if they are still needed."""
        entry = decode_entry(meta)
        if entry.position is not None and self.revisions is not None:
            return entry, self.revisions.decoded(entry, body)
        revised = END if self.revisions is None else self.revisions.committed
        return entry, self.waiting.decoded(entry, body, revised)

    def snapshot(self) -> Snapshot:
        """The state between two entries."""
        # Only the log has the rows before the oldest segment, so it is no shorter than this. A
        # stream that has ended may be reopened, and its log shortened.
        logged = min(self.waiting.committed, self.boundary)
        snapshot = self.acceptance.snapshot()
        return snapshot if logged == END else msgspec.structs.replace(snapshot, logged=logged)

    def restore(self, snapshot: Snapshot) -> None:
        """Set the state of a snapshot."""
        self.acceptance.restore(snapshot)
        if snapshot.definition is not None:
            self.config = self.config.of(snapshot.definition)

    def define(self, known: StreamDefinition | None) -> None:
        """Use that definition if it is newer than the definition in the journal, which may be
        incomplete."""
        journaled = self.acceptance.definition
        if known is not None and (journaled is None or journaled.edition < known.edition):
            self.acceptance.define(known)
            self.config = self.config.of(known)
