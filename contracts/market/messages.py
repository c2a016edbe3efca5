"""The messages between the Brains of partners."""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Meta, Struct

from medusa.contracts.market.config import MAX_ITEMS
from medusa.overlay.names import MAX_NAME

MAX_CONTRACT: Final = 64
"""Characters of a contract's id (it has 32)."""

MAX_STREAMS: Final = 256
"""Streams that one task reads: the most inputs of a union."""

MAX_KINDS: Final = 16
"""Box kinds of one task: more than there are kinds."""

MAX_KIND: Final = 32
"""Characters of a kind's name: more than the longest has."""

MAX_REASON: Final = 2_000
"""Characters of a text for people: a task's name, and a reason."""

Name = Annotated[str, Meta(max_length=MAX_NAME)]


class Item(Struct, frozen=True, array_like=True):
    """A task in the market.

    Attributes:
        task: the name of the task, which is the name of its output stream. load: units (1 % of a
            core).
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
    """The sender's offer to pay that price if the receiver runs these tasks.

    Attributes:
        number: the number of this offer; grows by offerer, over restarts too.
        contract: the contract's id; "" between peers of one participant, where `price` compares
            marginal costs and nobody pays.
        price: micros per unit of load and second.
        items: the tasks; empty: the sender no longer needs the room that it was refused before.
        hops: 0: take the tasks if you can. n: no partner has room for them; make some by passing on
            some of your own, if that pays, and answer again. You may press your partners likewise
            with n - 1.
    """

    number: int
    contract: Annotated[str, Meta(max_length=MAX_CONTRACT)]
    price: int
    items: Annotated[tuple[Item, ...], Meta(max_length=MAX_ITEMS)]
    hops: int = 0


class Answer(Struct, frozen=True, array_like=True, tag="answer"):
    """The tasks that are taken, at the offered price; none: all are refused. Sent again, without
    tasks, when there is room for refused ones; without a bid: a partner of the sender has room, so
    press again.

    Attributes:
        number: the number of the offer. accepted: task names.
        bid: the price at which the sender would take one more unit now; 0: at none. With it the
            offerer can go to the cheapest first.
        reason: the reason of a refusal, for people.
    """

    number: int
    accepted: Annotated[tuple[Name, ...], Meta(max_length=MAX_ITEMS)]
    bid: int = 0
    reason: Annotated[str, Meta(max_length=MAX_REASON)] = ""


Message = Offer | Answer
