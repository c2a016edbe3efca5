"""What consumers ask the producers of a stream, over and over (the keep-alive of TODS 2008)."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from engine.streams.suffix import State

MAX_STREAMS: Final = 256
"""In one question; who reads more of one peer asks it several, one after the other."""


class AskVersions(Struct, frozen=True):
    """How are these streams with you?"""

    streams: tuple[str, ...]


class Version(Struct, frozen=True):
    """One producer's rendition of a stream.

    Attributes:
        boundary: of what is stable of it, microseconds. reaches: so far there are tuples, tentative
            ones included.
        number: changes whenever what it is made from does.
    """

    stream: str
    state: State
    boundary: int
    reaches: int
    number: int


class Versions(Struct, frozen=True):
    """Those that the peer produces; of the others it says nothing."""

    versions: tuple[Version, ...] = ()
