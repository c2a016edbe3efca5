"""What Brains say to each other, peer to peer, over their contracts."""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Meta, Struct

from contracts.deals import MAX_CONTRACT
from contracts.market.config import MAX_ITEMS
from overlay.names import MAX_NAME

MAX_STREAMS: Final = 256
"""Streams that one task reads: as many as a union has inputs."""

MAX_KINDS: Final = 16
"""Box kinds of one task; there are four."""

MAX_KIND: Final = 32
"""Characters of a kind, above the longest."""

MAX_REASON: Final = 2_000
"""Characters of what is said to people: a task's name, and why."""

Name = Annotated[str, Meta(max_length=MAX_NAME)]


class Item(Struct, frozen=True, array_like=True):
    """A task as the market sees it.

    Attributes:
        task: its name, that is its output stream's.
        load: units (1 % of a core).
        owner: id (hex) of the peer that keeps its query.
        cost_ns: CPU nanoseconds per input tuple: the agreed cost once it has moved.
        kinds: its box kinds. inputs: the streams it reads.
    """

    task: Name
    load: float
    owner: Name
    cost_ns: int = 0
    kinds: Annotated[
        tuple[Annotated[str, Meta(max_length=MAX_KIND)], ...], Meta(max_length=MAX_KINDS)
    ] = ()
    inputs: Annotated[tuple[Name, ...], Meta(max_length=MAX_STREAMS)] = ()


class Offer(Struct, frozen=True, array_like=True, tag="offer"):
    """I would pay that price for these tasks to be run.

    Attributes:
        number: of this offer; grows by offerer, over restarts too.
        contract: the contract's id; "" between peers of one participant, where `price` compares
            marginal costs and nobody pays.
        price: micros per unit of load and second.
        items: none: what this peer was refused before it needs no more.
        hops: 0: take them if you can. n: nobody has room for these; make some by passing on some of
            yours, if that pays, and say so; your partners may be pressed likewise with n - 1.
    """

    number: int
    contract: Annotated[str, Meta(max_length=MAX_CONTRACT)]
    price: int
    items: Annotated[tuple[Item, ...], Meta(max_length=MAX_ITEMS)]
    hops: int = 0


class Answer(Struct, frozen=True, array_like=True, tag="answer"):
    """Which of them are taken, at the offered price; none: all are refused. Sent once more, without
    tasks, when there is room for what was refused; with no bid: some partner of mine has, press me.

    Attributes:
        number: of the offer. accepted: task names.
        bid: the price at which this peer would take one more unit now; 0: at none. It lets the
            offerer go to the cheapest first.
        reason: why, where something was refused, for people.
    """

    number: int
    accepted: Annotated[tuple[Name, ...], Meta(max_length=MAX_ITEMS)]
    bid: int = 0
    reason: Annotated[str, Meta(max_length=MAX_REASON)] = ""


Message = Offer | Answer
