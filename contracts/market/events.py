"""The events and effects of a Brain. Times are seconds of any steady clock."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from medusa.contracts.market.messages import Item, Message


def anything(_: Item) -> bool:
    """A menu that covers every task."""
    return True


@dataclass(frozen=True, slots=True)
class Partner:
    """A peer with which load may be traded now, under one contract.

    Attributes:
        peer: its id (hex).
        contract: the contract's id; "" for a peer of our own participant: nobody pays, and tasks go
            where they cost less.
        min_price, max_price: micros per unit and second.
        gives: whether we may give it that task. takes: whether we may run that task for it.
        most_given, most_taken: units at once in either direction.
        sublet: whether its tasks that we run may be passed on.
        migration_cost: micros per move.
    """

    peer: str
    contract: str
    min_price: int
    max_price: int
    gives: Callable[[Item], bool] = anything
    takes: Callable[[Item], bool] = anything
    most_given: float = float("inf")
    most_taken: float = float("inf")
    sublet: bool = True
    migration_cost: int = 0


# -- events ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed. Due no later than `Brain.wake_at`."""


@dataclass(frozen=True, slots=True)
class PartnersChanged:
    """All present partners. Tasks placed under a contract that is no longer among them are
    recalled; guests taken under it are returned (drain)."""

    partners: tuple[Partner, ...]


@dataclass(frozen=True, slots=True)
class TaskHere:
    """A task runs here (new, arrived, or with a new load).

    Attributes:
        giver: the peer (hex) for which we run it, under `contract` at `price`; "" for our own.
    """

    item: Item
    giver: str = ""
    contract: str = ""
    price: int = 0


@dataclass(frozen=True, slots=True)
class TaskGone:
    """A task no longer runs here: moved on, stopped, or recalled."""

    task: str


@dataclass(frozen=True, slots=True)
class TaskOut:
    """One of our own tasks runs at a partner (after a move, or found after a restart)."""

    item: Item
    worker: str
    contract: str
    price: int


@dataclass(frozen=True, slots=True)
class TaskBack:
    """One of our own tasks no longer runs at a partner: recalled, passed on beyond our contracts,
    or stopped."""

    task: str


@dataclass(frozen=True, slots=True)
class Received:
    """A message from a peer, untrusted."""

    peer: str
    message: Message


@dataclass(frozen=True, slots=True)
class Unreachable:
    """A message could not be delivered to that peer."""

    peer: str


@dataclass(frozen=True, slots=True)
class MoveEnded:
    """The end of a `Move`. If it succeeded, TaskGone (and TaskOut, if ours) comes too."""

    task: str
    ok: bool
    reason: str = ""


Event = (
    Tick
    | PartnersChanged
    | TaskHere
    | TaskGone
    | TaskOut
    | TaskBack
    | Received
    | Unreachable
    | MoveEnded
)

# -- effects ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Send:
    peer: str
    message: Message


@dataclass(frozen=True, slots=True)
class Move:
    """Move this task, which runs here, to that peer; MoveEnded answers, sooner or later."""

    item: Item
    to: str
    contract: str
    price: int


@dataclass(frozen=True, slots=True)
class Recall:
    """Take this task of ours home. Answered by TaskHere and TaskBack."""

    task: str


@dataclass(frozen=True, slots=True)
class GiveBack:
    """Ask the owner of this task, which runs here, to take it home. Answered by TaskGone."""

    task: str


@dataclass(frozen=True, slots=True)
class Note:
    """An event for people (events.note). level: info or warning."""

    level: str
    text: str


Effect = Send | Move | Recall | GiveBack | Note
