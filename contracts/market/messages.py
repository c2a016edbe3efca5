"""What Brains say to each other, peer to peer, over their contracts."""

from __future__ import annotations

from msgspec import Struct


class Item(Struct, frozen=True, array_like=True):
    """A task as the market sees it.

    Attributes:
        task: its name, that is its output stream's.
        load: units (1 % of a core).
        owner: id (hex) of the peer that keeps its query.
        cost_ns: CPU nanoseconds per input tuple: the agreed cost once it has moved.
        kinds: its box kinds. inputs: the streams it reads.
    """

    task: str
    load: float
    owner: str
    cost_ns: int = 0
    kinds: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()


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
    contract: str
    price: int
    items: tuple[Item, ...]
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
    accepted: tuple[str, ...]
    bid: int = 0
    reason: str = ""


Message = Offer | Answer
