from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Refused:
    """Why a stream that has ended is not reopened.

    Attributes:
        told: readers that got its end, in words for people. silent: voters that did not answer, if
            no such reader is known.
    """

    told: tuple[str, ...]
    silent: tuple[str, ...]


class Reopening:
    """A request to let an ended stream continue: all voters must confirm that they sent no reader
    its end. Sans-IO.

    Attributes:
        refused: why the last request was refused; None: it was granted, or is under way.
    """

    def __init__(self) -> None:
        self.refused: Refused | None = None
        self._told: dict[str, tuple[str, ...] | None] | None = None

    @property
    def asked(self) -> bool:
        """Whether votes that arrive now answer the request."""
        return self._told is not None

    def check(self, told: tuple[str, ...], silent: tuple[str, ...]) -> bool:
        """Whether the request may be made: this peer sent no reader the end, and no voter is
        silent."""
        self.refused = Refused(told, () if told else silent) if told or silent else None
        return self.refused is None

    def ask(self, own: str) -> None:
        """Begin the request; this peer has sent no reader the end."""
        self._told = {own: ()}

    def cancel(self) -> None:
        self._told = None

    def take_vote(self, sender: str, told: tuple[str, ...] | None) -> None:
        """Note the readers to which a voter has sent the end; None: the vote does not say."""
        if self._told is not None:
            self._told[sender] = told

    def is_granted(self, others: Iterable[str]) -> bool:
        """Whether the request was made and all voters agree; else `refused` says why not."""
        if self._told is None:
            return False
        told = [reader for readers in self._told.values() for reader in readers or ()]
        silent = [peer for peer in others if self._told.get(peer) is None]
        if told or silent:
            self.refused = Refused(tuple(told), () if told else tuple(silent))
        return self.refused is None
