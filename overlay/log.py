"""The log of a peer, on Python's logging: lines with a level, a text and fields.

Fields are bound to a context, which every task started in it inherits: code deep inside a call
writes a line without knowing the call. The composition says where lines go; see
`medusa.tools.home.log_file`.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final, TypedDict, Unpack, cast

LOGGER: Final = logging.getLogger("medusa")
LOGGER.addHandler(logging.NullHandler())  # a client's process writes no log
LOGGER.propagate = False

LEVELS: Final = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}

MAX_CAUSE: Final = 16
"""Characters of a cause's id; ours have ten."""

_CAUSE: Final = re.compile(rf"[0-9a-z]{{1,{MAX_CAUSE}}}")


class Fields(TypedDict, total=False):
    """The fields of a line.

    Attributes:
        peer: the peer whose log it is, as `mit.edu/3fa9c1d2`.
        participant: the participant at the other end.
        connection: the connection, as `utah.edu/9e0d11aa#7`.
        method: the called method.
        cause: the id of the first call of a chain of calls, the same at every peer in the chain.
    """

    peer: str
    participant: str
    connection: str
    method: str
    stream: str
    query: str
    task: str
    term: int
    cause: str


_BOUND: Final[ContextVar[Fields]] = ContextVar("medusa_log_fields")


def bound_fields() -> Fields:
    """The fields of the present context."""
    return _BOUND.get(Fields())


@contextmanager
def bound(**fields: Unpack[Fields]) -> Iterator[None]:
    """Bind fields to every line noted within the block, and by tasks started there."""
    token = _BOUND.set(cast("Fields", {**bound_fields(), **fields}))
    try:
        yield
    finally:
        _BOUND.reset(token)


def checked_cause(label: str) -> str:
    """A caller's cause if it has the form of an id, else empty. It is a label that may be false."""
    return label if _CAUSE.fullmatch(label) else ""
