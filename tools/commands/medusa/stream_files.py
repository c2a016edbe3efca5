"""`medusa stream files`: a stream's log in files that stay while others read them."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from medusa.tools.client.at_prompt import call_daemon
from medusa.tools.home.folder import Home
from medusa.tools.home.messages import FREEZE, Freeze, Frozen

FREEZE_S: Final = 60.0
"""Seconds for a peer to give the files second names, some microseconds each, after it has asked
others for lost ones."""


class StreamFiles(Struct, frozen=True):
    """The files of a stream.

    Attributes:
        folder: the folder that has only these files. after, upto: boundaries, microseconds: the
            files have all tuples in between.
        seconds: how long the folder stays.
    """

    stream: str
    folder: str
    after: int
    upto: int
    rows: int
    seconds: float


def freeze(home: str | None, stream: str, seconds: float) -> StreamFiles:
    """Have the peer of this home keep the stream's present files for `seconds` seconds. Raises:
    NotFoundError: it keeps no files of the stream. BusyError: there are too many such folders.
    InvalidInputError: the time is too long.
    """
    request = Freeze(stream, seconds)
    found = call_daemon(Home.locate(home), FREEZE, request, Frozen, FREEZE_S)
    return StreamFiles(stream, found.folder, found.after, found.upto, found.rows, seconds)
