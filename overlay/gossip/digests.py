"""Digests: what each peer says of itself in a few bytes, signed and versioned by it."""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct as Layout
from typing import Final

from overlay.errors import DecodeError, InvalidInputError
from overlay.gossip.broadcasts import Broadcasts
from overlay.gossip.claims import MAX_INCARNATION, SIGNATURE_BYTES, Keys
from overlay.gossip.counters import Counters
from overlay.gossip.messages import PER_ITEM
from overlay.gossip.roster import Roster

MAX_DIGEST: Final = 512
"""Bytes of a digest's content (memberlist's for a node's metadata): ours and one more of the
largest fit in each packet."""

DIGEST_DOMAIN: Final = "medusa gossip digest"

_HEAD: Final = Layout("!20sQQ")
"""Author, its incarnation, and a version that counts within it."""

MAX_BYTES: Final = _HEAD.size + MAX_DIGEST + SIGNATURE_BYTES


def read_head(data: bytes) -> tuple[bytes, int, int]:
    """(author, incarnation, version); the signature not yet verified.

    Raises:
        DecodeError: no digest; nothing else, whatever the bytes.
    """
    if not _HEAD.size + SIGNATURE_BYTES <= len(data) <= MAX_BYTES:
        raise DecodeError(f"gossip digest: of {len(data)} bytes")
    author, incarnation, version = _HEAD.unpack_from(data)
    if max(incarnation, version) > MAX_INCARNATION:
        raise DecodeError("gossip digest: a field out of its bounds")
    return author, incarnation, version


class Digests:
    """The newest of each member, ours included."""

    def __init__(
        self,
        me: bytes,
        roster: Roster,
        keys: Keys,
        counters: Counters,
        retransmits: Callable[[], int],
        *,
        gap_s: float,
        latest: Callable[[], int] = lambda: MAX_INCARNATION,
    ) -> None:
        """
        Args:
            gap_s: seconds after which an author's next digest is passed on as well: who publishes
                more often must not crowd the others out.
            latest: the greatest incarnation that can be believed now; see `Members`.
        """
        self._me = me
        self._roster = roster
        self._keys = keys
        self._counters = counters
        self._versions: dict[bytes, tuple[int, int]] = {}
        self._signed: dict[bytes, bytes] = {}
        self._gap_s = gap_s
        self._latest = latest
        self._passed_at: dict[bytes, float] = {}
        self._incarnation = self._version = 0
        self._passing: Broadcasts[bytes] = Broadcasts(retransmits)
        self.contents: dict[bytes, bytes] = {}

    def publish(self, content: bytes, incarnation: int) -> None:
        """From now on this is ours.

        Raises:
            InvalidInputError: it is over `MAX_DIGEST` bytes.
        """
        if len(content) > MAX_DIGEST:
            raise InvalidInputError(f"digest: {len(content)} bytes, at most {MAX_DIGEST} fit")
        if self._incarnation <= self._latest():  # else it is of a clock that was ahead
            incarnation = max(incarnation, self._incarnation)
        self._incarnation = incarnation
        self._version += 1
        payload = _HEAD.pack(self._me, self._incarnation, self._version) + content
        data = payload + self._keys.sign(DIGEST_DOMAIN, payload)
        self._keep(self._me, (self._incarnation, self._version), data)

    def receive(self, data: bytes, now: float) -> bytes | None:
        """Take in a digest if it is news: whose it is, then. Nothing in it makes this raise."""
        if data == self._signed.get(data[: len(self._me)]):
            return None
        try:
            author, *version = read_head(data)
        except DecodeError:
            self._counters.malformed += 1
            return None
        if author not in self._roster:
            self._counters.unknown += 1
            return None
        if version[0] > self._latest():
            self._counters.future += 1
            return None
        held = self._versions.get(author)
        if held is not None and tuple(version) <= held and held[0] <= self._latest():
            return None
        payload, signature = data[:-SIGNATURE_BYTES], data[-SIGNATURE_BYTES:]
        if not self._keys.verify(author, DIGEST_DOMAIN, payload, signature):
            self._counters.forged += 1
            return None
        if author == self._me:  # made with our key: our next one is beyond it
            self._incarnation = version[0] + 1
            if self._me in self.contents:
                self.publish(self.contents[self._me], self._incarnation)
            return None
        self._counters.digests += 1
        self._keep(author, (version[0], version[1]), data)
        if now - self._passed_at.get(author, float("-inf")) >= self._gap_s:
            self._passed_at[author] = now
            self._passing.put(author, data)
        return author

    def take(self, room: int) -> list[bytes]:
        """Digests for a packet with so much room: ours first, then others' freshest."""
        taken: list[bytes] = []
        ours = self._signed.get(self._me)
        if ours is not None and len(ours) + PER_ITEM <= room:
            taken.append(ours)
            room -= len(ours) + PER_ITEM
        others, _ = self._passing.take(room)
        return taken + others

    @property
    def own_size(self) -> int:
        """Bytes to keep free in a packet for ours."""
        ours = self._signed.get(self._me)
        return len(ours) + PER_ITEM if ours is not None else 0

    def latest(self, room: int) -> tuple[bytes, ...]:
        """The freshest of all, as many as fit, for a push-pull."""
        taken: list[bytes] = []
        for data in reversed(self._signed.values()):
            room -= len(data) + PER_ITEM
            if room < 0:
                break
            taken.append(data)
        return tuple(taken)

    def forget(self, author: bytes) -> None:
        self._versions.pop(author, None)
        self._signed.pop(author, None)
        self._passed_at.pop(author, None)
        self.contents.pop(author, None)
        self._passing.drop(author)

    def _keep(self, author: bytes, version: tuple[int, int], data: bytes) -> None:
        self._signed.pop(author, None)  # it becomes the last: the freshest
        self._versions[author] = version
        self._signed[author] = data
        self.contents[author] = data[_HEAD.size : -SIGNATURE_BYTES]
