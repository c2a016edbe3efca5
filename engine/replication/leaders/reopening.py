from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Refused:
    """Why a stream that has ended is not reopened.

    Attributes:
        end_readers: readers that got its end, in words for people. silent: voters that did not
            answer, if no such reader is known.
    """

    end_readers: tuple[str, ...]
    silent: tuple[str, ...]


class Reopening:
    """A request to let an ended stream continue: all voters must confirm that they sent no reader
    its end. Sans-IO.

    Attributes:
        refused: why the last request was refused; None: it was granted, or is under way.
    """

    def __init__(self) -> None:
        self.refused: Refused | None = None
        self._end_readers: dict[str, tuple[str, ...] | None] | None = None

    @property
    def asked(self) -> bool:
        """Whether votes that arrive now answer the request."""
        return self._end_readers is not None

    def check(self, readers: tuple[str, ...], silent: tuple[str, ...]) -> bool:
        """Whether the request may be made: this peer sent no reader the end, and no voter is
        silent."""
        self.refused = Refused(readers, () if readers else silent) if readers or silent else None
        return self.refused is None

    def ask(self, own: str) -> None:
        """Begin the request; this peer has sent no reader the end."""
        self._end_readers = {own: ()}

    def cancel(self) -> None:
        self._end_readers = None

    def take_vote(self, sender: str, readers: tuple[str, ...] | None) -> None:
        """Note the readers to which a voter has sent the end; None: the vote does not say."""
        if self._end_readers is not None:
            self._end_readers[sender] = readers

    def is_granted(self, others: Iterable[str]) -> bool:
        """Whether the request was made and all voters agree; else `refused` says why not."""
        if self._end_readers is None:
            return False
        readers = [reader for each in self._end_readers.values() for reader in each or ()]
        silent = [peer for peer in others if self._end_readers.get(peer) is None]
        if readers or silent:
            self.refused = Refused(tuple(readers), () if readers else tuple(silent))
        return self.refused is None
