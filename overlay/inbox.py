"""Holds received bytes that are not read yet, and grants credit for more (sans-IO).

A receiver announces how many bytes of a stream it takes in all: the bytes read so far, the received
part of the message that its reader waits for (`want`), and one window.
"""

from __future__ import annotations

from medusa.overlay.errors import DecodeError
from medusa.overlay.frames import Fragment
from medusa.overlay.memory import Account
from medusa.overlay.pace import MESSAGE_S
from medusa.overlay.send_queue import SendQueue
from medusa.overlay.streams import WINDOW_BYTES, Buffer, Stream, move, store


class Inbox:
    """The received bytes of one side of a connection.

    Args:
        account: holds the bytes until they are read. queue: sends the credit.
    """

    def __init__(self, account: Account, queue: SendQueue) -> None:
        self._account = account
        self._queue = queue

    def want(self, stream: Stream, size: int) -> bool:
        """Whether `size` bytes can be taken; if not, `Changed` follows once they can."""
        stream.wanted = 0 if stream.unread >= size else size
        self._grant(stream)
        return stream.unread >= size

    def take(self, stream: Stream, size: int) -> bytes:
        """The next `size` bytes; `want` said that they are there. The one copy on the way in."""
        parts = self.take_parts(stream, size)
        return bytes(parts[0]) if len(parts) == 1 else b"".join(parts)

    def take_parts(self, stream: Stream, size: int) -> list[Buffer]:
        """Take bytes as `take` does, as they arrived: views of the received buffers, not copies."""
        assert size <= stream.unread
        stream.unread -= size
        self._account.hold(-size)
        parts: list[Buffer] = []
        move(stream.inbox, size, parts)
        self._grant(stream)
        return parts

    def hand_over(self, stream: Stream, size: int) -> None:
        """The stream's reader holds a message of that many bytes, and no earlier one."""
        self._account.hold(size - stream.in_hand)
        stream.in_hand = size
        self._account.cost_s += MESSAGE_S

    def discard(self, stream: Stream) -> None:
        """Drop the unread and later bytes of a stream that has no reader any more."""
        stream.unheard = True
        self._account.hold(-stream.unread - stream.in_hand)
        stream.in_hand = 0
        stream.unread = 0
        stream.inbox.clear()

    def arrive(self, stream: Stream, payload: Fragment) -> None:
        """Store a frame of DATA, unless nobody reads the stream.

        Raises:
            DecodeError: its sender has no credit for it, or had finished.
        """
        if stream.ended:
            raise DecodeError(f"stream {stream.number} goes on after its end")
        stream.received += len(payload)
        if stream.received > stream.receive_limit:
            raise DecodeError(f"stream {stream.number} sends over its credit")
        if not stream.unheard:
            stream.unread += len(payload)
            self._account.hold(len(payload))
            store(stream.inbox, payload)

    def is_served(self, stream: Stream) -> bool:
        """Whether the bytes that the stream's reader waits for are there now; if not, give more
        credit."""
        if not stream.wanted:
            return False
        if stream.wanted <= stream.unread:
            stream.wanted = 0
            return True
        self._grant(stream)
        return False

    def _grant(self, stream: Stream) -> None:
        """Announce more credit once it is worth a frame."""
        if stream.over or stream.ended or stream.unheard:
            return
        read = stream.received - stream.unread + min(stream.unread, stream.wanted)
        limit = read + WINDOW_BYTES
        if limit - stream.receive_limit >= WINDOW_BYTES // 4:
            stream.receive_limit = limit
            self._queue.grant(stream)
