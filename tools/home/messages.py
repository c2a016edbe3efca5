"""Calls between the commands and the daemon of one home, beside the API of
engine/api/messages.py."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

ADMIT: Final = "admit"

BALANCE: Final = "contract.balance"


class Admit(Struct, frozen=True):
    """Gives membership statements made at this home to the daemon: to check, keep and spread.

    Attributes:
        statements: signed admissions or revocations, as medusa.overlay.membership encodes them.
    """

    statements: tuple[bytes, ...]


class Admitted(Struct, frozen=True):
    """The news in the statements, in words."""

    news: tuple[str, ...]


LEAVE: Final = "leave"


class Leave(Struct, frozen=True):
    """Announces that this peer, or its participant, leaves: the daemon tells the others now, while
    they still listen.

    Attributes:
        statements: signed revocations of it, as medusa.overlay.membership encodes them.
    """

    statements: tuple[bytes, ...]


class Left(Struct, frozen=True):
    """The participants that learned of the departure."""

    told: tuple[str, ...]


FREEZE: Final = "freeze"


class Freeze(Struct, frozen=True):
    """Asks for a folder with files as they are at one moment: of all of the peer's data, or of the
    log of one stream; see `medusa.engine.streams.store.freezing`.

    Attributes:
        stream: its name; "": all data.
        seconds: how long the folder stays at least. After that it is removed, unless a process
            holds it; see `medusa.tools.home.frozen`.
    """

    stream: str = ""
    seconds: float = 30.0


class Frozen(Struct, frozen=True):
    """The files are frozen in that folder.

    Attributes:
        after, upto: for a stream: boundaries, microseconds; the files have its tuples in between.
            rows: for a stream: the number of its rows.
    """

    folder: str
    after: int = 0
    upto: int = 0
    rows: int = 0


MARKET_STATUS: Final = "market_status"


class AskMarket(Struct, frozen=True):
    """Asks for the status of the market, which this peer shows only to its own clients: contracts
    are private."""


class ContractStatus(Struct, frozen=True):
    """One contract, or (id "") the load shared with a peer of our own participant.

    Attributes:
        partner: participant. id: the contract's (hex).
        state: in force, pending, expired, revoked, or unreachable (no peer of the partner answers).
        min_price, max_price, last_price: micros per unit and second; last: of the latest deal.
        given, taken: units of load that run there for us, and here for them.
        balance: micros earned less micros spent.
        per_message, per_period: the prices of a stream: micros for a tuple, and for each `period_s`
            seconds.
    """

    partner: str
    id: str = ""
    state: str = "in force"
    min_price: int = 0
    max_price: int = 0
    last_price: int = 0
    given: float = 0.0
    taken: float = 0.0
    balance: int = 0
    per_message: int = 0
    per_period: int = 0
    period_s: float = 0.0


class OfferStatus(Struct, frozen=True):
    """The offer that waits for its answer.

    Attributes:
        to: peer id (hex). price: micros per unit and second. load: units, of all its tasks.
        age_s: the time since it was made, seconds.
    """

    to: str
    contract: str = ""
    price: int = 0
    tasks: int = 0
    load: float = 0.0
    age_s: float = 0.0


class TradedTask(Struct, frozen=True):
    """A task that runs here for another peer, or there for us.

    Attributes:
        peer: the other peer, which runs it or for which it runs: id (hex).
        load: units. price: micros per unit and second; 0 between peers of one participant.
    """

    task: str
    peer: str
    contract: str = ""
    load: float = 0.0
    price: int = 0


class MoveStatus(Struct, frozen=True):
    """A move that ended.

    Attributes:
        at: seconds since the epoch. source, target: peer ids (hex).
        stall_ms: additional wait of its consumers. carry_bytes: input taken over.
    """

    at: float
    task: str
    source: str
    target: str
    price: int = 0
    stall_ms: float = 0.0
    carry_bytes: int = 0


class MarketStatus(Struct, frozen=True):
    """The market as this peer's Brain sees it; loads in units of 1 % of a core.

    Attributes:
        peer: id (hex). capacity, load: units.
        marginal_cost: cost of one more unit here, micros per unit and second; null: it cannot take
            more at any price.
        offer: the unanswered offer, if there is one.
        taken, given: tasks run here for others, and elsewhere for us.
        moves: the latest, oldest first.
    """

    peer: str = ""
    capacity: float = 0.0
    load: float = 0.0
    marginal_cost: float | None = 0.0
    contracts: tuple[ContractStatus, ...] = ()
    offer: OfferStatus | None = None
    taken: tuple[TradedTask, ...] = ()
    given: tuple[TradedTask, ...] = ()
    moves: tuple[MoveStatus, ...] = ()
