"""Keeps a producer's unanswered posts, in order, until they are answered. Sans IO."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final

from medusa.engine.streams.messages import Post, Posted
from medusa.engine.streams.source.acceptance import Offsets
from medusa.overlay.errors import DecodeError
from medusa.overlay.streams import Buffer

WINDOW_POSTS: Final = 16
"""Unanswered posts of one stream: enough for some round trips, so that posting does not wait."""
WINDOW_BYTES: Final = 32 * 2**20
"""Bytes in unanswered posts, which the client keeps to send them again."""


@dataclass(frozen=True)
class Envelope:
    """A post and its body."""

    post: Post
    body: Buffer


class Outbox:
    """The unanswered posts of one producer, in order."""

    def __init__(self) -> None:
        self._waiting: deque[Envelope] = deque()
        self._sent = 0
        self._bytes = 0
        self._sequence = 0

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def begun(self) -> bool:
        """Whether the producer has posted anything."""
        return self._sequence > 0

    def has_room(self, size: int) -> bool:
        """Whether a body of that size may be put now; a single post always may."""
        if not self._waiting:
            return True
        return len(self._waiting) < WINDOW_POSTS and self._bytes + size <= WINDOW_BYTES

    def put(
        self,
        body: Buffer,
        boundary: int | None,
        *,
        end: bool,
        revisions: bool = False,
        offsets: Offsets | None = None,
    ) -> int:
        """Add a post under the next number, which is returned."""
        assert self.has_room(len(body))
        self._sequence += 1
        envelope = Envelope(Post(self._sequence, boundary, end, revisions, offsets), body)
        self._waiting.append(envelope)
        self._bytes += len(body)
        return self._sequence

    def ask(self, *, done: bool = False) -> None:
        """Add a request for the producer's position, before any post is put.

        Args:
            done: whether all posts are stored and no more follow for now, which the request reports
                to the stream.
        """
        assert not self._waiting
        self._waiting.append(Envelope(Post(0, done=done), b""))

    def next_unsent(self) -> Envelope | None:
        """The next post to send on this connection; it counts as sent."""
        if self._sent == len(self._waiting):
            return None
        self._sent += 1
        return self._waiting[self._sent - 1]

    def rewind(self) -> None:
        """Send all unanswered posts again, over a new connection."""
        self._sent = 0

    def settle(self, posted: Posted) -> Envelope:
        """Take in the answer to the oldest sent post; returns that post.

        Raises:
            DecodeError: it answers another one.
        """
        if not self._sent or posted.sequence != self._waiting[0].post.sequence:
            expected = self._waiting[0].post.sequence if self._sent else "none"
            raise DecodeError(f"the peer answered post {posted.sequence}; {expected} was next")
        envelope = self._waiting.popleft()
        self._sent -= 1
        self._bytes -= len(envelope.body)
        if posted.sequence == 0 and not envelope.post.done:
            self._sequence = posted.last
        return envelope
