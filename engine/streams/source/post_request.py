"""A post on its way into a source stream."""

from __future__ import annotations

from dataclasses import dataclass

from medusa.engine.objects.schema import BEGINNING, END
from medusa.engine.streams.journal.entries import Bytes
from medusa.engine.streams.messages import MAX_BATCH_BYTES, Post
from medusa.engine.streams.source.acceptance import Writer
from medusa.overlay.errors import InvalidInputError


@dataclass(frozen=True, slots=True)
class PostRequest:
    """A post with its producer and its rows.

    Attributes:
        body: an Arrow IPC stream of the schema's fields (for revisions, of `request_schema`), or
            empty; it is kept, not copied.
    """

    writer: Writer
    post: Post
    body: Bytes = b""

    def check(self) -> None:
        """Refuse a body that is too long, and a boundary that is none.

        Raises:
            InvalidInputError: it is refused.
        """
        if len(self.body) > MAX_BATCH_BYTES:
            raise InvalidInputError(
                f"a post of {len(self.body)} bytes: send at most {MAX_BATCH_BYTES} at a time"
            )
        boundary = self.post.boundary
        if boundary is not None and not BEGINNING <= boundary <= END:
            raise InvalidInputError(f"boundary {boundary} is not an int64 of microseconds")

    @property
    def promise(self) -> int | None:
        """The boundary that the producer promises; END if it ends the stream. Only a producer of
        the owner ends the stream: the end of another participant's producer is the end of its own
        rows."""
        if not self._ends:
            return self.post.boundary
        return None if self.writer.participant else END

    @property
    def is_done(self) -> bool:
        """Whether the stream stops waiting for the producer."""
        return self.post.done or (self._ends and bool(self.writer.participant))

    @property
    def offset(self) -> bytes | None:
        """The producer's place in its source after the post; None: not reported."""
        return None if self.post.offsets is None else self.post.offsets[1]

    @property
    def _ends(self) -> bool:
        return self.post.end or self.post.boundary == END
