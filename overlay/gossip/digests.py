"""Items in gossip packets: claims of others, and digests, which are a peer's statements about
itself."""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct as Layout
from typing import Final, Generic, TypeVar

from medusa.overlay.errors import DecodeError, InvalidInputError
from medusa.overlay.gossip.claims import MAX_INCARNATION, SIGNATURE_BYTES, Keys
from medusa.overlay.gossip.members import Counters, Roster
from medusa.overlay.gossip.messages import PER_ITEM
from medusa.overlay.names import PeerId

MAX_ITEMS: Final = 4096
"""Items waiting, some 0.5 MB. Further news is dropped here; push-pull carries it."""

MAX_LOOKS: Final = 32
"""Items tried for one packet: items that do not fit must not make each packet scan them all."""

K = TypeVar("K")


class Broadcasts(Generic[K]):
    """Items under keys, each sent a limited number of times; a newer item of a key replaces the
    older one. An item that is not sent costs nothing."""

    def __init__(self, limit: Callable[[], int]) -> None:
        """limit: returns how often an item is sent; it is called for each packet, as the number of
        peers may change."""
        self._limit = limit
        self._sent: dict[K, int] = {}
        self._levels: list[dict[K, bytes]] = [{}]

    def __len__(self) -> int:
        return len(self._sent)

    def put(self, key: K, item: bytes) -> None:
        """Send this item, counted as new."""
        self.drop(key)
        if len(self._sent) >= MAX_ITEMS:
            self._drop_most_sent()
        self._sent[key] = 0
        self._levels[0][key] = item

    def drop(self, key: K) -> None:
        """Stop sending the item of that key."""
        times = self._sent.pop(key, None)
        if times is not None:
            del self._levels[times][key]

    def take(self, room: int) -> tuple[list[bytes], int]:
        """Take items for one packet of that many bytes, and return the bytes left; each counts as
        sent."""
        if not self._sent:
            return [], room
        limit = self._limit()
        taken: list[bytes] = []
        moved: list[tuple[K, bytes, int]] = []
        looks = 0
        for times, level in enumerate(self._levels):
            for key in reversed(level):  # of the items sent equally often, the newest first
                item = level[key]
                looks += 1
                if len(item) + PER_ITEM <= room:
                    room -= len(item) + PER_ITEM
                    taken.append(item)
                    moved.append((key, item, times + 1))
                if looks >= MAX_LOOKS:
                    break
            if looks >= MAX_LOOKS:
                break
        for key, item, times in moved:
            self.drop(key)
            if times < limit:
                while len(self._levels) <= times:
                    self._levels.append({})
                self._levels[times][key] = item
                self._sent[key] = times
        return taken, room

    def _drop_most_sent(self) -> None:
        level = next(level for level in reversed(self._levels) if level)
        self.drop(next(iter(level)))


MAX_DIGEST: Final = 512
"""Bytes of a digest's content (memberlist's limit for a node's metadata): our own and one other of
the largest fit in each packet."""

DIGEST_DOMAIN: Final = "medusa gossip digest"

_HEAD: Final = Layout("!20sQQ")
"""Author, its incarnation, and a version that counts within the incarnation."""

MAX_BYTES: Final = _HEAD.size + MAX_DIGEST + SIGNATURE_BYTES
"""Bytes of a digest with its signature: its content, its author and two numbers."""


def read_head(data: bytes) -> tuple[PeerId, int, int]:
    """(author, incarnation, version) of a digest; the signature is not yet verified.

    Raises:
        DecodeError: no digest. No bytes raise another error.
    """
    if not _HEAD.size + SIGNATURE_BYTES <= len(data) <= MAX_BYTES:
        raise DecodeError(f"gossip digest: of {len(data)} bytes")
    author, incarnation, version = _HEAD.unpack_from(data)
    if max(incarnation, version) > MAX_INCARNATION:
        raise DecodeError("gossip digest: a field out of its bounds")
    return author, incarnation, version


class Digests:
    """The newest digest of each member, this peer's included."""

    def __init__(
        self,
        me: PeerId,
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
            gap_s: seconds after which an author's next digest is passed on as well: an author that
                publishes more often must not crowd the others out.
            latest: the greatest incarnation that can be believed now; see `Members`.
        """
        self._me = me
        self._roster = roster
        self._keys = keys
        self._counters = counters
        self._versions: dict[PeerId, tuple[int, int]] = {}
        self._signed: dict[PeerId, bytes] = {}
        self._gap_s = gap_s
        self._latest = latest
        self._passed_at: dict[PeerId, float] = {}
        self._incarnation = self._version = 0
        self._passing: Broadcasts[PeerId] = Broadcasts(retransmits)
        self.contents: dict[PeerId, bytes] = {}

    def publish(self, content: bytes, incarnation: int) -> None:
        """Replace our own digest; the same again is no news.

        Raises:
            InvalidInputError: it is over `MAX_DIGEST` bytes.
        """
        if len(content) > MAX_DIGEST:
            raise InvalidInputError(f"digest: {len(content)} bytes, at most {MAX_DIGEST} fit")
        if self._incarnation <= self._latest():  # otherwise it comes from a clock that was ahead
            incarnation = max(incarnation, self._incarnation)
        if (content, incarnation) != (self.contents.get(self._me), self._incarnation):
            self._renew(content, incarnation)

    def _renew(self, content: bytes, incarnation: int) -> None:
        self._incarnation = incarnation
        self._version += 1
        payload = _HEAD.pack(self._me, self._incarnation, self._version) + content
        data = payload + self._keys.sign(DIGEST_DOMAIN, payload)
        self._keep(self._me, (self._incarnation, self._version), data)

    def receive(self, data: bytes, now: float) -> PeerId | None:
        """Take in a digest. Returns its author if it is news, else None; no content makes this
        raise."""
        if data == self._signed.get(PeerId(data[: len(self._me)])):
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
        if author == self._me:  # another process has our key: make a newer digest
            self._incarnation = version[0] + 1
            if self._me in self.contents:
                self._renew(self.contents[self._me], self._incarnation)
            return None
        self._counters.digests += 1
        self._keep(author, (version[0], version[1]), data)
        if now - self._passed_at.get(author, float("-inf")) >= self._gap_s:
            self._passed_at[author] = now
            self._passing.put(author, data)
        return author

    def take(self, room: int) -> list[bytes]:
        """Take digests for a packet with that much room: our own first, then the freshest of
        others."""
        taken: list[bytes] = []
        ours = self._signed.get(self._me)
        if ours is not None and len(ours) + PER_ITEM <= room:
            taken.append(ours)
            room -= len(ours) + PER_ITEM
        others, _ = self._passing.take(room)
        return taken + others

    @property
    def own_size(self) -> int:
        """Bytes to reserve in a packet for our own digest."""
        ours = self._signed.get(self._me)
        return len(ours) + PER_ITEM if ours is not None else 0

    def latest(self, room: int) -> tuple[bytes, ...]:
        """The freshest digests, as many as fit, for a push-pull."""
        taken: list[bytes] = []
        for data in reversed(self._signed.values()):
            room -= len(data) + PER_ITEM
            if room < 0:
                break
            taken.append(data)
        return tuple(taken)

    def forget(self, author: PeerId) -> None:
        self._versions.pop(author, None)
        self._signed.pop(author, None)
        self._passed_at.pop(author, None)
        self.contents.pop(author, None)
        self._passing.drop(author)

    def _keep(self, author: PeerId, version: tuple[int, int], data: bytes) -> None:
        self._signed.pop(author, None)  # the author moves to the end, which has the freshest digest
        self._versions[author] = version
        self._signed[author] = data
        self.contents[author] = data[_HEAD.size : -SIGNATURE_BYTES]
