"""Who is a member at all, with random access: what the peer table says, shared by reference."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class _Entry:
    index: int
    participant: str
    incarnation: int


class Roster:
    """The admitted peers with a known record, oneself included. All methods take O(1).

    Many detectors in one process may share one, so each keeps only what differs from it.
    """

    def __init__(self) -> None:
        self._peers: list[bytes] = []
        self._entries: dict[bytes, _Entry] = {}
        self._sizes: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._peers)

    def __contains__(self, peer: object) -> bool:
        return peer in self._entries

    def __getitem__(self, index: int) -> bytes:
        """The peer at that place; removing one moves the last into its place."""
        return self._peers[index]

    @property
    def participants(self) -> int:
        """Distinct owners."""
        return len(self._sizes)

    def size_of(self, participant: str) -> int:
        """Peers of that participant."""
        return self._sizes.get(participant, 0)

    def participant(self, peer: bytes) -> str:
        """Its owner; "" if the peer is unknown."""
        entry = self._entries.get(peer)
        return entry.participant if entry is not None else ""

    def incarnation(self, peer: bytes) -> int:
        """The latest that the peer itself signed into its record; 0 if it is unknown."""
        entry = self._entries.get(peer)
        return entry.incarnation if entry is not None else 0

    def add(self, peer: bytes, participant: str, incarnation: int = 0) -> bool:
        """Whether that was news: a new peer, or a newer incarnation."""
        entry = self._entries.get(peer)
        if entry is not None:
            news = incarnation > entry.incarnation
            entry.incarnation = max(entry.incarnation, incarnation)
            return news
        self._entries[peer] = _Entry(len(self._peers), participant, incarnation)
        self._peers.append(peer)
        self._sizes[participant] = self._sizes.get(participant, 0) + 1
        return True

    def discard(self, peer: bytes) -> bool:
        """Whether it was a member."""
        entry = self._entries.pop(peer, None)
        if entry is None:
            return False
        last = self._peers.pop()
        if last != peer:
            self._peers[entry.index] = last
            self._entries[last].index = entry.index
        self._sizes[entry.participant] -= 1
        if not self._sizes[entry.participant]:
            del self._sizes[entry.participant]
        return True

    def peers(self) -> tuple[bytes, ...]:
        """All, in no order: O(N)."""
        return tuple(self._peers)
