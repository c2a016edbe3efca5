"""The keep-alive between the consumers of a stream and its producers (TODS 2008)."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from engine.streams.suffix import State

MAX_STREAMS: Final = 256
"""Streams in one question; a peer that reads more asks several, one after the other."""


class AskVersions(Struct, frozen=True):
    """Asks a producer for the state of these streams."""

    streams: tuple[str, ...]


class Version(Struct, frozen=True):
    """One producer's rendition of a stream.

    Attributes:
        boundary: of its stable tuples, microseconds. reaches: the same with tentative ones.
        number: changes with the versions of the stream's inputs.
    """

    stream: str
    state: State
    boundary: int
    reaches: int
    number: int


class Versions(Struct, frozen=True):
    """The answer to `AskVersions`, without streams that the peer does not produce."""

    versions: tuple[Version, ...] = ()
