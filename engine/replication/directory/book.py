"""The terms that a peer believes, and the catalog's entries of them. Sans-IO.

The highest number of a subject counts, whether it comes from the catalog, from a holder by gossip,
or in a call. Numbers of the future do not count (ADR 17).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple, TypeVar

from medusa.engine.replication.records.term import HIGHEST_NUMBER, Term
from medusa.overlay.names import NO_PEER, PeerId

K = TypeVar("K")
T = TypeVar("T")

MAX_REMEMBERED: Final = 10_000
"""Subjects whose terms are remembered: some hundred bytes each."""

KEY_BYTES: Final = 8
"""Bytes of a subject's key: enough that no two subjects of one peer have the same."""


def key_of(subject: str) -> bytes:
    """The key of a subject in a digest."""
    return hashlib.sha256(subject.encode()).digest()[:KEY_BYTES]


class Rendition(NamedTuple):
    """The catalog's entry of one peer's part in a stream.

    Attributes:
        term: its holder published this. worker: computes the stream for the holder; NO_PEER: the
            holder does. edition: the edition of the query that makes it.
    """

    term: Term
    worker: PeerId = NO_PEER
    edition: int = 0


class Book:
    """The believed term of each subject, bounded: the subject with the oldest news is forgotten
    first."""

    def __init__(self) -> None:
        self._terms: dict[str, Term] = {}
        self._subjects: dict[bytes, str] = {}
        self._renditions: dict[str, Sequence[Rendition]] = {}

    def number(self, subject: str, now: float) -> int:
        """The highest number known, unless it is of the future; else 0. now: seconds since 1970."""
        term = self._terms.get(subject)
        return term.number if term is not None and HIGHEST_NUMBER.believes(term.number, now) else 0

    def holder(self, subject: str) -> PeerId | None:
        """The peer that claims the latest term for itself, if one does."""
        term = self._terms.get(subject)
        return None if term is None else term.holder or None

    def named(self, key: bytes) -> str | None:
        """The subject of that key (`key_of`), if it is known."""
        return self._subjects.get(key)

    def believe(self, term: Term, now: float) -> bool:
        """Note a term, unless it is of the future: holders of lower numbers are not asked any more.
        Args: term: its holder is the peer that claims it; "": another peer mentions it.

        Returns:
            whether it is news.
        """
        subject, before = term.subject, self.number(term.subject, now)
        if term.number < before or not term.number:
            return False
        if term.number > before:
            self._terms.pop(subject, None)
            remember(self._terms, subject, term)
            self._name(subject)
            return True
        if not term.holder or self._terms[subject].holder == term.holder:
            return False
        self._terms[subject] = term
        return True

    def learn(self, subject: str, renditions: Sequence[Rendition]) -> None:
        """Note the catalog's entries of a stream. If there are none, the old ones still count: a
        holder that steps down withdraws its entry, which may name the next holder."""
        if renditions or subject not in self._renditions:
            self._renditions.pop(subject, None)
            remember(self._renditions, subject, renditions)
            self._name(subject)

    def learned(self, subject: str) -> Sequence[Rendition] | None:
        """The catalog's last entries of a stream; None: it has not answered about it."""
        return self._renditions.get(subject)

    def is_ahead(self, subject: str, now: float) -> bool:
        """Whether a holder claims a later term than the catalog has."""
        number = self.number(subject, now)
        known = self._renditions.get(subject, ())
        return self.holder(subject) is not None and all(each.term.number < number for each in known)

    def in_order(self, subject: str, now: float, *, oldest: bool = False) -> list[PeerId]:
        """The peers to ask for a stream; see `in_order`."""
        return in_order(
            self._renditions.get(subject, ()),
            self.number(subject, now),
            oldest=oldest,
            holder=self.holder(subject),
        )

    def _name(self, subject: str) -> None:
        self._subjects.setdefault(key_of(subject), subject)
        forget_oldest(self._subjects)


def remember(known: dict[K, T], key: K, value: T) -> None:
    """Note a value as the newest of at most `MAX_REMEMBERED`."""
    known.pop(key, None)
    known[key] = value
    forget_oldest(known)


def forget_oldest(known: dict[K, T]) -> None:
    if len(known) > MAX_REMEMBERED:
        del known[next(iter(known))]


def in_order(
    renditions: Iterable[Rendition], number: int, *, oldest: bool, holder: PeerId | None = None
) -> list[PeerId]:
    """The peers to ask, the best first: the peers that compute the stream, then the publishers,
    which have the history; last the secondaries, which may know of a takeover before the catalog
    does.

    Args:
        number: the latest term; of the holder of a lower one only the secondary is asked. oldest:
            whether to prefer the peers with most of the history.
        holder: the peer that claims the term of that number.
    """
    peers: list[PeerId] = []
    secondaries: list[PeerId] = []
    for term, worker, _ in renditions:
        current = [term.holder] if term.number >= number else []
        if current and worker:
            current.insert(0, worker)
        peers += current
        secondaries += term.members
    if oldest:
        peers.reverse()
    said = [] if holder is None else [holder]
    return list(dict.fromkeys([*peers, *said, *secondaries]))
