"""Peers that settle with each other over a network that a test can cut, double and reorder.

Counts come from arithmetic alone (`tuples`), which is also the oracle of what must be paid.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Literal

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from medusa.contracts.config import ContractsConfig
from medusa.contracts.deals import Account, Deal, LoadRate, Rate
from medusa.contracts.ledger import Ledger
from medusa.contracts.ledger_file import prepare
from medusa.contracts.receipts import Message
from medusa.contracts.settlement import (
    Count,
    Counted,
    Desk,
    Disputed,
    Effect,
    Ended,
    Event,
    Note,
    Received,
    Send,
    Settlement,
    Tick,
)
from medusa.contracts.terms import LoadTerms, Terms
from medusa.overlay.certificates import public_key_of
from medusa.overlay.errors import NotFoundError, UntrustedError
from medusa.overlay.identity import Identity, Root

NOW = 1_700_000_000.0
FEDERATION = "f" * 32
S = 1_000_000

ROOTS = {name: Root.create(f"{name}.edu", NOW) for name in "acde"}
# the same keys in every process: failures show ids, and each test process starts anew
PEERS = {
    name: Identity.issue(root, NOW, Ed25519PrivateKey.from_private_bytes(name.encode() * 32))
    for name, root in ROOTS.items()
}
A, C, D, E = (PEERS[name].peer_id for name in "acde")
AC, CD, DE = "ac" * 16, "cd" * 16, "de" * 16
KEYS = {peer.peer_id: public_key_of(peer.certificate) for peer in PEERS.values()}
NAMES = {peer.peer_id: name for name, peer in PEERS.items()}
RATE = LoadRate(50_000, 2_000)
TASK = "medusa://a.edu/q/out"


def key_of(peer: bytes) -> Ed25519PublicKey:
    try:
        return KEYS[peer]
    except KeyError:
        raise UntrustedError(f"peer {peer.hex()} is not known") from None


class Crash(BaseException):
    """The process of a peer dies."""


class CrashingConnection(sqlite3.Connection):
    """Dies at its n-th transaction, just before or just after the commit."""

    countdown: int = 0
    when: Literal["before", "after"] = "before"

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> Literal[False]:
        self.countdown -= 1
        if self.countdown == 0 and self.when == "before":
            self.rollback()
            raise Crash
        super().__exit__(kind, error, trace)
        if self.countdown == 0:
            raise Crash
        return False


@dataclass
class Contracts:
    """Agreements. over: ids of those that have ended, with the time of the end."""

    known: dict[str, tuple[frozenset[bytes], Terms]]
    over: dict[str, float] = field(default_factory=dict)

    def terms(self, contract: str, payer: bytes, payee: bytes, at: float) -> Terms:
        if contract not in self.known:
            raise NotFoundError(f"contract {contract} is not known")
        parties, terms = self.known[contract]
        if {payer, payee} != parties:
            raise UntrustedError(f"contract {contract} is between others")
        if at >= self.over.get(contract, float("inf")):
            raise UntrustedError(f"contract {contract} was over")
        return terms


def load_terms() -> LoadTerms:
    return LoadTerms(1_000, 3_000)


def standard_contracts() -> Contracts:
    return Contracts(
        {
            AC: (frozenset({A, C}), load_terms()),
            CD: (frozenset({C, D}), load_terms()),
            DE: (frozenset({D, E}), load_terms()),
        }
    )


def tuples(task: str, after: int, upto: int) -> int:
    """Return how many input tuples a task has in (after, upto]; they are spread unevenly."""
    pace = 3 + len(task) % 5
    return (upto * pace // (7 * 10_000)) - (after * pace // (7 * 10_000))


@dataclass
class Placed:
    """The placement as the driver knows it, even after crashes. Attributes: chain: the owner first,
    the worker last. lag: microseconds of stime by which the owner's output is behind the worker's.
    agreed_at: when owner and worker agreed on the placement, each by its own clock, seconds.
    """

    task: str
    term_number: int
    chain: tuple[bytes, ...]
    start: int
    boundary: int
    end: int | None = None
    told: set[bytes] = field(default_factory=set)
    lag: int = 0
    agreed_at: float = NOW

    @property
    def delivered(self) -> int:
        """Return the boundary up to which the owner has the output."""
        return max(self.start, self.boundary - self.lag)

    def deals(self) -> list[Deal]:
        contracts = {frozenset({A, C}): AC, frozenset({C, D}): CD, frozenset({D, E}): DE}
        return [
            Deal(
                contracts[frozenset({payer, payee})],
                payer,
                payee,
                self.task,
                self.term_number,
                self.start,
                RATE,
                int(self.agreed_at * S),
            )
            for payer, payee in zip(self.chain, self.chain[1:], strict=False)
        ]


class Node:
    """One peer, and its driver.

    Attributes:
        lies: the function by which it falsifies every count. uncountable: tasks that it cannot
            count. slow: whether it answers a count only when time passes (except one that `Ended`
            requests).
    """

    def __init__(self, world: World, identity: Identity) -> None:
        self.world = world
        self.identity = identity
        self.connection = sqlite3.connect(":memory:", factory=CrashingConnection)
        prepare(self.connection, Path("ledger"))
        self.lies = lambda rows: rows
        self.uncountable: set[str] = set()
        self.slow = False
        self.asked: list[Count] = []
        self.disputes: list[Disputed] = []
        self.notes: Counter[str] = Counter()
        self.start()

    @property
    def own(self) -> bytes:
        return self.identity.peer_id

    def start(self) -> None:
        self.connection.countdown = 0
        self.connection.rollback()
        self.asked = []
        path = Path("ledger")
        self.ledger = Ledger(self.connection, path, self.own, FEDERATION, key_of)
        desk = Desk(self.identity, self.ledger, self.world.contracts, key_of, Random(1))
        self.settlement = Settlement(desk, ContractsConfig())

    def crash_soon(self, transactions: int, *, after: bool = False) -> None:
        """Let the peer die at the transaction with that number from now, before or after its
        commit; 0: never."""
        self.connection.countdown = transactions
        self.connection.when = "after" if after else "before"

    def restart(self) -> None:
        """Start the peer again; the driver repeats the events that it had not finished."""
        self.start()
        for placed in self.world.placed:
            if self.own in placed.chain:
                self.agree(placed)
                if placed.end is not None and self.own in {placed.chain[0], placed.chain[-1]}:
                    self.end(placed)

    def agree(self, placed: Placed) -> None:
        """Commit a move once all peers have agreed; a peer that crashes meanwhile is asked
        again."""
        for deal in placed.deals():
            if self.own in {deal.payer, deal.payee}:
                try:
                    self.settlement.agree(deal, self.world.now)
                except Crash:
                    self.restart()

    def end(self, placed: Placed) -> None:
        if placed.end is not None and self.own not in placed.told:
            self.handle(Ended(placed.task, placed.term_number, placed.end))
            placed.told.add(self.own)

    def handle(self, event: Event) -> None:
        """Handle the event and its effects; a crash loses the messages that were not sent yet."""
        try:
            effects = self.settlement.handle(event, self.world.now)
        except Crash:
            self.restart()
            return
        for effect in effects:
            if isinstance(effect, Count) and self.slow and not isinstance(event, Ended):
                self.asked.append(effect)
            else:
                self.perform(effect)

    def answer(self) -> None:
        """Answer the counts that a slow node has postponed."""
        asked, self.asked = self.asked, []
        for count in asked:
            self.handle(self.count(count))

    def perform(self, effect: Effect) -> None:
        match effect:
            case Send(peer, message):
                self.world.wire.append((self.own, peer, message))
            case Count():
                self.handle(self.count(effect))
            case Disputed():
                self.disputes.append(effect)
            case Note(_, text):
                self.notes[text] += 1

    def count(self, asked: Count) -> Counted:
        deal = asked.deal
        placed = self.world.find(deal.task, deal.term_number)
        upto = placed.boundary if asked.upto is None else asked.upto
        gone = self.own == placed.chain[-1] and self.own in placed.told
        here = placed.delivered if self.own == placed.chain[0] else placed.boundary
        if upto > here or gone or deal.task in self.uncountable:
            return Counted(asked.number, upto, None)
        return Counted(asked.number, upto, self.lies(tuples(deal.task, asked.after, upto)))


class World:
    """All peers, the wire between them, and the time (seconds)."""

    def __init__(self, contracts: Contracts | None = None, names: str = "acd") -> None:
        self.now = NOW
        self.contracts = contracts or standard_contracts()
        self.wire: list[tuple[bytes, bytes, Message]] = []
        self.placed: list[Placed] = []
        self.term_number = 0
        self.nodes = {PEERS[name].peer_id: Node(self, PEERS[name]) for name in names}

    def node(self, peer: bytes) -> Node:
        return self.nodes[peer]

    def find(self, task: str, term_number: int) -> Placed:
        (found,) = [p for p in self.placed if (p.task, p.term_number) == (task, term_number)]
        return found

    def place(self, task: str, *chain: bytes, lag: float = 0) -> Placed:
        """Move a task to the end of that chain of peers; it continues from its last boundary."""
        boundary = 10 * S
        for before in self.placed:
            if before.task == task:
                if before.end is None:
                    self.end(before)
                assert before.end is not None
                boundary = max(boundary, before.end)
        self.term_number += 1
        placed = Placed(
            task, self.term_number, chain, boundary, boundary, lag=int(lag * S), agreed_at=self.now
        )
        self.placed.append(placed)
        for peer in chain:
            self.node(peer).agree(placed)
        return placed

    def end(self, placed: Placed, *notify: bytes) -> None:
        """End the placement. The owner knows at once. notify: the other peers that learn of it."""
        placed.end = placed.delivered
        for peer in (placed.chain[0], *notify):
            self.node(peer).end(placed)

    def run(self, seconds: float) -> None:
        """Let tasks make progress and time pass, in one step."""
        self.now += seconds
        for placed in self.placed:
            if placed.end is None:
                placed.boundary += int(seconds * S)
        for node in self.nodes.values():
            node.answer()
            if node.settlement.wake_at <= self.now:
                node.handle(Tick())

    def deliver(self, index: int = 0, *, keep: bool = False) -> None:
        """Deliver one message. keep: leave a second copy under way."""
        sender, to, message = self.wire[index] if keep else self.wire.pop(index)
        if to in self.nodes:
            self.node(to).handle(Received(sender, message))

    def settle(self, seconds: float = 2_000.0) -> None:
        """Deliver everything for so long, with `run` and `deliver` in small steps."""
        until = self.now + seconds
        while self.now < until or self.wire:
            steps = 0
            while self.wire:
                self.deliver()
                steps += 1
                assert steps < 10_000, "they never stop talking"
            self.run(5.0)

    def both_ledgers_agree(self) -> None:
        """Check that both ledgers have every receipt, signed by both, with equal sums and valid
        chains."""
        ends: dict[Account, list[list[bytes]]] = {}
        for node in self.nodes.values():
            node.ledger.verify()
            rows = node.connection.execute(
                "SELECT contract, payer, payee, data FROM entries WHERE kind = 'receipt' "
                "ORDER BY position"
            ).fetchall()
            own: dict[Account, list[bytes]] = {}
            for contract, payer, payee, data in rows:
                own.setdefault(Account(contract, payer, payee), []).append(data)
            for account, data in own.items():
                ends.setdefault(account, []).append(data)
        for account, both in ends.items():
            assert len(both) == 2, f"{account} is known at one end only"
            assert both[0] == both[1]
        for contract in self.contracts.known:
            sums = [node.ledger.balance(contract) for node in self.nodes.values()]
            assert sum(b.earned for b in sums) == sum(b.spent for b in sums)

    def paid_tuples(self, deal: Deal) -> int:
        """Return how many tuples of that placement were paid for, by the payer's ledger."""
        return self.node(deal.payer).ledger.rows_paid(deal.key, -(2**62))


def deal_of(rate: Rate = RATE, task: str = TASK, term_number: int = 1, start: int = 10 * S) -> Deal:
    """Return a deal in which A pays C."""
    return Deal(AC, A, C, task, term_number, start, rate, int(NOW * S))
