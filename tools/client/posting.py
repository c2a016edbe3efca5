"""Posting exactly once: numbered posts, kept until they are answered, sent again in order."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Final

import pyarrow as pa
import trio

from medusa.engine.objects.schema import BEGINNING, END, FieldType, Schema
from medusa.engine.streams.ipc import encode_parts
from medusa.engine.streams.messages import Post, Posted, PostEvent
from medusa.engine.streams.revisions.columns import request_schema
from medusa.engine.streams.revisions.resolving import REVISIONS_AT_ONCE, check_request
from medusa.engine.streams.source.acceptance import Offsets
from medusa.overlay.concurrency import Watched, until_one_ends
from medusa.overlay.connection import BULK_WEIGHT
from medusa.overlay.errors import (
    BrokenError,
    BusyError,
    InvalidInputError,
    MedusaError,
    UnavailableError,
)
from medusa.overlay.rpc import Duplex, EndOfCall
from medusa.overlay.streams import Buffer
from medusa.tools.client.link import Link, Patience
from medusa.tools.client.outbox import Outbox
from medusa.tools.rows.columns import to_payload

OffsetAfter = Callable[[pa.Table], bytes]
"""A producer's position in its source, in its own encoding, after these rows."""

LEAVE_S: Final = 5.0
"""Seconds to say that no more posts follow; without that the stream waits for its idle timeout."""

REACHED_S: Final = 5.0
"""Seconds to ask for the stored position, once posting has failed."""


class Poster:
    """Posts to one stream; `run` is its background task.

    Attributes:
        rows, late: tuples accepted in order, and late, by the peer's answers so far.
        inserted: late tuples within the stream's lateness, which are revisions.
        duplicates: posts that the stream had already, from an earlier run of the same producer.
        boundary: the stream's boundary at the last answer, microseconds.
        failure_told: whether posting has failed for good, and a caller got the error. offset: the
            producer's position in its source after all posts put so far; see `resume`.
        refused_after: the position before the post that failed for good; None: it was the first
            one, or the position is not known.
        stored: the position after the last stored post of this run; None: none was stored.
        was_ended: the stream had ended before the first rows came.
        waiting: tuples of the stream that wait for a later boundary, by the last answer. None: that
            answer was to a post with tuples, which does not have the number; see `leave`.
    """

    def __init__(
        self, link: Link, stream: str, schema: Schema, producer: str, patience_s: float
    ) -> None:
        self.stream = stream
        self.schema = schema
        self.rows = 0
        self.late = 0
        self.inserted = 0
        self.duplicates = 0
        self.boundary = BEGINNING
        self._link = link
        self._producer = producer
        self._patience = Patience(patience_s)
        self._outbox = Outbox()
        self.failure_told = False
        self._failure: MedusaError | None = None
        self._changes = Watched(0)
        self._order = trio.Lock()
        self._answered_at = trio.current_time()
        self._missed: dict[int, tuple[int, ...]] = {}
        self.offset = b""
        self.stored: bytes | None = None
        self.was_ended = False
        self.waiting: int | None = 0
        self.refused_after: bytes | None = None
        self._resumed = False
        self._present = False
        self._began = b""

    @property
    def waiting_s(self) -> float:
        """Seconds for which the stream's leader has not answered, although a post is under way."""
        return trio.current_time() - self._answered_at if self._outbox else 0.0

    async def resume(self) -> bytes | None:
        """Continue from the producer's last post, maybe of another process. Must come before any
        post; all later posts give their position in the source.

        Returns:
            the position after its last post, in the producer's own encoding; b"": that post gave
            none. None: the producer has posted nothing here, or the stream has forgotten it.

        Raises:
            MedusaError: posting has failed for good.
        """
        await self.flush()
        self._answered_at = trio.current_time()
        self._outbox.ask()
        self._notify()
        await self.flush()
        self._resumed = True
        self._began = self.offset
        return self.offset if self._outbox.begun else None

    async def post(
        self,
        table: pa.Table | None,
        *,
        boundary: int | None = None,
        end: bool = False,
        offset_after: OffsetAfter | None = None,
    ) -> None:
        """Queue tuples for sending; waits while the window is full.

        Args:
            table: the schema's fields, or None to promise a boundary without tuples.
            boundary: no later tuple of this producer has stime <= boundary (microseconds).
            end: no tuple follows at all.
            offset_after: for a producer that has resumed: its position after these rows; called for
                each part of the table in turn.

        Raises:
            InvalidInputError: rows do not fit the schema; names the row and the field.
            MedusaError: posting has failed for good.
        """
        payload = self.schema.payload.empty_table()
        if table is not None:
            payload = to_payload(table, self.schema, 1, ignore_extra=None)
        parts = list(encode_parts(payload)) if payload.num_rows else []
        if not parts and (boundary is not None or end):
            parts = [(0, memoryview(b""))]
        async with self._order:  # so that the parts of one post stay together
            first = 0
            for number, (rows, body) in enumerate(parts, 1):
                last = number == len(parts)
                offsets = self._step(payload.slice(first, rows), offset_after)
                promise = boundary if last else None
                await self._put(body, promise, end=end and last, offsets=offsets)
                first += rows

    async def revise(
        self,
        table: pa.Table,
        *,
        boundary: int | None = None,
        end: bool = False,
        offset_after: OffsetAfter | None = None,
    ) -> list[int]:
        """Revise tuples posted earlier; returns when the revisions are stored.

        Args:
            table: `revision_kind` (DELETION or REPLACEMENT), the schema's key, and for replacements
                the other fields.
            boundary, end, offset_after: as of `post`.

        Returns:
            the numbers of the rows, from 0, whose key no kept tuple has.

        Raises:
            InvalidInputError: rows do not fit the schema; names the row and the field.
            MedusaError: posting has failed for good.
        """
        self.check_revisable()
        request = to_payload(table, request_schema(self.schema), 1, ignore_extra=None)
        request = _without_gaps(request, self.schema)
        check_request(request, self.schema)
        bodies = [
            part
            for start in range(0, request.num_rows, REVISIONS_AT_ONCE)
            for part in encode_parts(request.slice(start, REVISIONS_AT_ONCE))
        ]
        if not bodies and (boundary is not None or end):
            bodies = [(0, memoryview(b""))]
        posted: list[tuple[int, int]] = []
        async with self._order:
            first = 0
            for number, (rows, body) in enumerate(bodies, 1):
                last = number == len(bodies)
                promise = boundary if last else None
                offsets = self._step(request.slice(first, rows), offset_after)
                sequence = await self._put(
                    body, promise, end=end and last, revisions=True, offsets=offsets
                )
                posted.append((sequence, first))
                first += rows
        await self.flush()
        return [first + row for sequence, first in posted for row in self._missed.pop(sequence, ())]

    def check_revisable(self) -> None:
        """
        Raises:
            InvalidInputError: the stream takes no revisions.
        """
        if not self.schema.key:
            raise InvalidInputError(f"schema {self.schema.name} declares no key to revise by")

    async def flush(self) -> None:
        """Wait until all queued tuples are stored.

        Raises:
            MedusaError: posting has failed for good.
        """
        await self._until(lambda: not self._outbox)

    async def leave(self) -> None:
        """Say that no tuple follows for now, so that the stream's boundary does not wait for this
        producer; the answer tells how many tuples wait. A later post makes it present again."""
        if self._failure is not None or self._outbox:
            return
        if not self._present and self.waiting is not None:
            return
        self._outbox.ask(done=self._present)
        self._present = False
        self._notify()
        with suppress(MedusaError), trio.move_on_after(LEAVE_S):
            await self.flush()

    async def run(self) -> None:
        """Send posts, again after failures; callers get a final failure. Cancel to stop."""
        try:
            while True:
                if not self._outbox:
                    await self._changes.changed()
                    continue
                try:
                    await self._connect()
                except MedusaError as error:
                    if self._outbox:
                        await self._patience.bear(error)
        except MedusaError as error:
            if not isinstance(error, UnavailableError | BusyError):
                self.refused_after = await self._reached()
            self._failure = error
            self._notify()

    async def _reached(self) -> bytes | None:
        """The position after the last stored post, asked from the stream: that post's answer may
        have been lost when a later post failed."""
        if not self._resumed or not self._outbox:
            return None
        with suppress(MedusaError), trio.move_on_after(REACHED_S):
            connection = await self._link.connection()
            request = PostEvent(self.stream, self._producer)
            async with connection.open("post_event", request) as duplex:
                await duplex.send(Post(0), b"")
                posted, _ = await duplex.receive(Posted)
            if posted.offset != self._began:
                self.stored = posted.offset
        return self.stored

    def _step(self, rows: pa.Table, offset_after: OffsetAfter | None) -> Offsets | None:
        """A resumed producer's positions before and after these rows; None if it has not
        resumed."""
        if not self._resumed:
            return None
        before = self.offset
        if offset_after is not None:
            self.offset = offset_after(rows)
        return before, self.offset

    async def _put(
        self,
        body: Buffer,
        boundary: int | None,
        *,
        end: bool,
        revisions: bool = False,
        offsets: Offsets | None,
    ) -> int:
        await self._until(lambda: self._outbox.has_room(len(body)))
        self._raise_failure()
        if not self._outbox:
            self._answered_at = trio.current_time()
        self._present = self.schema.time is not None
        sequence = self._outbox.put(body, boundary, end=end, revisions=revisions, offsets=offsets)
        self._notify()
        return sequence

    async def _connect(self) -> None:
        connection = await self._link.connection()
        request = PostEvent(self.stream, self._producer)
        async with connection.open("post_event", request, weight=BULK_WEIGHT) as duplex:
            self._outbox.rewind()
            await until_one_ends(partial(self._send, duplex), partial(self._receive, duplex))
        raise BrokenError(f"the peer ended the call that posts to {self.stream}")

    async def _send(self, duplex: Duplex) -> None:
        while True:
            envelope = self._outbox.next_unsent()
            if envelope is None:
                await self._changes.changed()
            else:
                try:
                    await duplex.send(envelope.post, envelope.body)
                except EndOfCall:
                    return

    async def _receive(self, duplex: Duplex) -> None:
        while True:
            try:
                posted, _ = await duplex.receive(Posted)
            except EndOfCall:
                return
            envelope = self._outbox.settle(posted)
            self._patience.progress()
            self._answered_at = trio.current_time()
            if posted.sequence == 0:
                self.offset = self.offset if envelope.post.done else posted.offset
            elif envelope.post.offsets is not None:
                self.stored = envelope.post.offsets[1]
            if not self.rows + self.late + self.inserted and posted.late:
                self.was_ended = posted.boundary == END and not envelope.post.end
            self.rows += posted.rows
            self.late += posted.late
            self.inserted += posted.inserted
            self.duplicates += posted.duplicate
            self.boundary = posted.boundary
            self.waiting = None if len(envelope.body) else posted.waiting
            if posted.missed:
                self._missed[posted.sequence] = posted.missed
            self._notify()

    def _raise_failure(self) -> None:
        if self._failure is not None:
            self.failure_told = True
            raise self._failure

    async def _until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self._raise_failure()
            await self._changes.changed()

    def _notify(self) -> None:
        self._changes.set(self._changes.value + 1)


def _without_gaps(request: pa.Table, schema: Schema) -> pa.Table:
    """Put empty texts in place of missing ones that must not be missing: CSV cannot tell them
    apart."""
    for field in schema.fields:
        if field.type is FieldType.STRING and not field.nullable:
            index = request.column_names.index(field.name)
            filled = request.column(index).fill_null("")
            request = request.set_column(index, request.schema.field(index), filled)
    return request
