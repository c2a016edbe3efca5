"""Decides when a follower may stop reading, and where it continues. Sans IO.

The tasks that need a stream's rows may all run at the peer that has the stream: its source. Then
the follower here is dormant. It reads nothing, has no rows, and only holds the stream at its
source, as any slow reader does: from the boundary after which rows would be needed here.

Before it drops its rows, it makes sure that its source has all rows from there on: it asks the
source to keep everything from now on, and continues to read until no earlier row can be needed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from medusa.engine.objects.schema import BEGINNING, END
from medusa.overlay.names import NO_PEER, PeerId


@dataclass(frozen=True)
class Look:
    """The state of a follower; boundaries, microseconds.

    Attributes:
        source: the peer that has the stream, and alone needs its rows; NO_PEER: its rows are needed
            here. needed: rows after this boundary may come to be needed here. held: the source
            keeps all rows after this boundary for us; END: this is not known.
    """

    source: PeerId
    needed: int
    held: int = END


@dataclass(frozen=True)
class Keep:
    """Read from the source, and have it keep all rows from now on, although they are here."""

    source: PeerId


@dataclass(frozen=True)
class Sleep:
    """Drop the copy, read nothing, and have the source keep the rows after `needed`."""

    needed: int


@dataclass(frozen=True)
class Read:
    """Continue to read; a copy that was dropped begins again at `after`."""

    after: int


Step: TypeAlias = Keep | Sleep | Read


class Dormancy:
    """Whether one follower is dormant.

    Attributes:
        source: the peer that it is, or is about to be, dormant for; NO_PEER: none.
    """

    def __init__(self) -> None:
        self.source = NO_PEER
        self._asleep = False
        self._needed = BEGINNING

    def handle(self, look: Look) -> Step | None:
        """The step to take; None: nothing changes."""
        if self.source and look.source != self.source:
            self.source, self._asleep = NO_PEER, False
            return Read(min(look.needed, self._needed))
        if not look.source:
            return None
        if not self.source:
            self.source, self._needed = look.source, BEGINNING
            return Keep(look.source)
        self._asleep = self._asleep or look.held <= look.needed < END
        if not self._asleep or look.needed == END:
            return None
        self._needed = max(self._needed, look.needed)
        return Sleep(self._needed)
