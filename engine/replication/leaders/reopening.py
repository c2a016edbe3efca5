from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Refused:
    """Why a stream that has ended is not reopened.

    Attributes:
        told: readers that were given its end, for people. silent: voters that did not answer, if no
            such reader is known.
    """

    told: tuple[str, ...]
    silent: tuple[str, ...]


class Reopening:
    """A request to let an ended stream go on: all voters must say that they told no reader of its
    end. Sans-IO.

    Attributes:
        refused: why the stream was not reopened when that was last asked for; None: it was, or is
            about to be.
    """

    def __init__(self) -> None:
        self.refused: Refused | None = None
        self._told: dict[str, tuple[str, ...] | None] | None = None

    @property
    def asked(self) -> bool:
        """Whether the votes that come in are to answer it."""
        return self._told is not None

    def check(self, told: tuple[str, ...], silent: tuple[str, ...]) -> bool:
        """Whether it may be asked for: this peer told no reader, and no voter is silent."""
        self.refused = Refused(told, () if told else silent) if told or silent else None
        return self.refused is None

    def ask(self, own: str) -> None:
        """Begin to ask; this peer has told nobody."""
        self._told = {own: ()}

    def cancel(self) -> None:
        self._told = None

    def take_vote(self, sender: str, told: tuple[str, ...] | None) -> None:
        """Note which readers a voter has told; None: it does not say."""
        if self._told is not None:
            self._told[sender] = told

    def is_granted(self, others: Iterable[str]) -> bool:
        """Whether it was asked for, and may be; `refused` says why not."""
        if self._told is None:
            return False
        told = [reader for readers in self._told.values() for reader in readers or ()]
        silent = [peer for peer in others if self._told.get(peer) is None]
        if told or silent:
            self.refused = Refused(tuple(told), () if told else tuple(silent))
        return self.refused is None
