"""Calls that open a stream for one peer, which may read it although it is not served to all."""

from __future__ import annotations

from msgspec import Struct


class ReadInput(Struct, frozen=True):
    """Opens the worker's call for an input's suffix, which the input's producer has dropped.

    Answered by the owner with `Tuples`, up to the boundary that it has.
    """

    task: str
    term_number: int
    stream: str
    after: int


class ReadReplica(Struct, frozen=True):
    """Opens a stream of the query for its secondary, as the primary has it, gated or not.

    Attributes:
        stream: an output, or an input. after: the boundary that the secondary has.
    """

    query: str
    term_number: int
    stream: str
    after: int
