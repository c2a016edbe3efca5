"""The log of a peer: lines of a level, a text and fields, by Python's logging.

Fields are bound to a context, and every task that is started in it has them too: code deep inside a
call notes a line without knowing the call. The composition says where lines go; see
`tools.home.log_file`.
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
    """The subject of a line.

    Attributes:
        peer: whose log it is, as `mit.edu/3fa9c1d2`. participant: who is at the other end.
        connection: which one, as `utah.edu/9e0d11aa#7`. method: what was called.
        cause: the id of the call that all this came of, at every peer that had a part in it.
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
    """Those of the present context."""
    return _BOUND.get(Fields())


@contextmanager
def bound(**fields: Unpack[Fields]) -> Iterator[None]:
    """Every line noted within the block, and by tasks started there, has these fields."""
    token = _BOUND.set(cast("Fields", {**bound_fields(), **fields}))
    try:
        yield
    finally:
        _BOUND.reset(token)


def checked_cause(label: str) -> str:
    """The cause that a stranger gives its call: a label that may be false; empty unless it has the
    form of an id."""
    return label if _CAUSE.fullmatch(label) else ""
