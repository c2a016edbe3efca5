"""Drives the Brain: reports the tasks here and their loads, and carries out its decisions."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from random import SystemRandom
from typing import Final

import msgspec
import trio
from msgspec import Struct

from medusa.contracts.config import ContractsConfig
from medusa.contracts.delivery import Contracts
from medusa.contracts.market.brain import Brain
from medusa.contracts.market.cost import QueueingCost
from medusa.contracts.market.events import (
    Effect,
    Event,
    GiveBack,
    Move,
    MoveEnded,
    Note,
    Partner,
    PartnersChanged,
    Recall,
    Received,
    Send,
    TaskBack,
    TaskGone,
    TaskHere,
    TaskOut,
    Tick,
    Unreachable,
)
from medusa.contracts.market.messages import Answer, Item, Message, Offer
from medusa.contracts.market.prices import MAX_PRICE
from medusa.contracts.terms import UNITS_PER_CORE, LoadTerms
from medusa.engine.replication.moves.messages import Assignment, MoveRecord, PassOn
from medusa.engine.replication.moves.mover import KEPT_RECORDS
from medusa.engine.replication.records.placements import Deal, Placement
from medusa.engine.streams.messages import Done
from medusa.engine.tasks.plan import Task
from medusa.overlay.clock import MILLIS, latest_number
from medusa.overlay.concurrency import Bell, next_beat
from medusa.overlay.errors import InvalidInputError, MedusaError, NotAuthorisedError, NotFoundError
from medusa.overlay.identity import parse_peer_id
from medusa.overlay.names import PeerId
from medusa.overlay.node.node import Overlay
from medusa.overlay.rpc import MAX_STRUCT_BYTES, Caller
from medusa.tools.market.admission import Admission
from medusa.tools.market.settler import Settler
from medusa.tools.market.tasks import Tasks

MESSAGE: Final = "market.message"

CALL_S: Final = 5.0
"""Seconds for a message to a partner, which has only to take it."""


LEAST_S: Final = 0.02
"""Least seconds between two runs of the Brain."""

SAME: Final = 0.01
"""Share of a load below which a difference is noise."""


class BrainMessage(Struct, frozen=True):
    """The request of "market.message": one Brain's message to another."""

    message: Message


class Trader:
    """The driver of a peer's Brain.

    Args:
        nursery: carries out the Brain's decisions.

    Attributes:
        brain: decides. cost, capacity: cost and capacity of this peer; the capacity is in units.
        offered_at: when it last sent an offer, on trio's clock, seconds.
        passed: the last tasks of others that it passed on, each at the price that it pays.
    """

    def __init__(
        self,
        *,
        overlay: Overlay,
        tasks: Tasks,
        contracts: Contracts,
        settler: Settler,
        config: ContractsConfig,
        capacity_cores: float,
        nursery: trio.Nursery,
    ) -> None:
        self._overlay = overlay
        self._tasks = tasks
        self._contracts = contracts
        self._settler = settler
        self._trade = config.trade
        self._sample_s = config.timing.sample_s
        self._nursery = nursery
        self._participant = overlay.identity.participant
        self._here = overlay.identity.peer_id.hex()
        self.capacity = capacity_cores * UNITS_PER_CORE
        self.cost = QueueingCost(self.capacity, config.price)
        market = replace(config.market, confirm_s=config.confirm_s, stay_s=config.stay_s)
        self._admission = Admission(self._participant, contracts, market.reserve_s)
        self.brain = Brain(
            self._here,
            self.cost,
            self.capacity,
            market,
            SystemRandom(),
            number=int(overlay.clock() * MILLIS),  # above those of every earlier run
        )
        self._told: dict[str, TaskHere | TaskOut] = {}
        self._partners: tuple[Partner, ...] = ()
        self._changed = Bell()
        self.offered_at = 0.0
        self.passed: deque[MoveRecord] = deque(maxlen=KEPT_RECORDS)

    def register(self) -> None:
        """Serve partners, and listen to changes of contracts."""
        self._overlay.service.unary(MESSAGE, BrainMessage, self._on_message, limit=MAX_STRUCT_BYTES)
        self._contracts.changed.add(self._find_partners)

    def _wake(self) -> None:
        self._changed.ring()

    async def run(self) -> None:
        """Report loads, and wake the Brain when it is due; for ever."""
        sample_at = trio.current_time()
        while True:
            now = trio.current_time()
            if now >= sample_at:
                sample_at = next_beat(self._sample_s)
                self._find_partners()
                self.sample()
            if now >= self.brain.wake_at:
                self._handle(Tick())
            with trio.move_on_at(min(sample_at, self.brain.wake_at)):
                await self._changed.wait()
            await trio.sleep_until(now + LEAST_S)
            self._changed.clear()

    async def _on_message(self, caller: Caller, request: BrainMessage, _: bytes) -> Done:
        await trio.lowlevel.checkpoint()
        assert caller.peer_id is not None, "clients may not call this"
        peer = caller.peer_id.hex()
        if isinstance(request.message, Offer):
            self._check_number(peer, request.message)
        if isinstance(request.message, Offer) and request.message.items:
            self._check_partner(peer, request.message.contract)
            self._admission.offered(peer, request.message)
        self._handle(Received(peer, request.message))
        return Done()

    def _check_number(self, peer: str, offer: Offer) -> None:
        """
        Raises:
            InvalidInputError: a partner's offer number is from the future: no later one would
                count.
        """
        if (peer, offer.contract) not in self.brain.partners:
            return
        if offer.number > latest_number(self._overlay.clock(), MILLIS):
            raise InvalidInputError(f"offer {offer.number} is of the future: check your clock")

    def _check_partner(self, peer: str, contract: str) -> None:
        """Check that a peer may offer under that contract. An offer may overtake the contract, or
        come from an unknown peer. It is refused as unauthorised, not for lack of room: a peer that
        is refused for lack of room goes to dearer partners for a while.

        Raises:
            NotAuthorisedError: the peer may not offer yet, or not any more.
        """
        if (peer, contract) not in self.brain.partners:
            self._find_partners()
        if (peer, contract) not in self.brain.partners:
            raise NotAuthorisedError("there is no such contract in force between us")
        if self._settler.owing(contract):
            raise NotAuthorisedError(f"contract {contract[:8]}: what ran for you is not paid yet")

    # -- what the Brain receives ----------------------------------------------------------------

    def _handle(self, event: Event) -> None:
        for effect in self.brain.handle(event, trio.current_time()):
            self._perform(effect)
        self._wake()

    def _find_partners(self) -> None:
        partners = tuple(self._all_partners()) if self._trade else ()
        if partners != self._partners:
            self._partners = partners
            self._handle(PartnersChanged(partners))

    def _all_partners(self) -> Iterator[Partner]:
        peers = [each for each in self._overlay.peers.all() if each.peer_id.hex() != self._here]
        for contract in self._contracts.in_force():
            other = contract.counterparty(self._participant)
            for record in peers:
                if record.participant == other:
                    partner = contract.partner(self._participant, record.peer_id.hex())
                    if partner is not None:
                        yield replace(
                            partner,
                            gives=Gives(partner.gives, other, self._tasks.may_work),
                            takes=Takes(partner.takes, self._settler.passes_on),
                        )
        for record in peers:
            if record.participant == self._participant:
                yield Partner(record.peer_id.hex(), "", 0, MAX_PRICE)

    def sample(self) -> None:
        """Report every task that is new, gone, or whose load has changed to the Brain."""
        seen: dict[str, TaskHere | TaskOut] = {}
        for event in (*self._tasks.own(self._here), *self._tasks.guests()):
            seen[event.item.task] = event
        for task, before in tuple(self._told.items()):
            if type(seen.get(task)) is not type(before):
                del self._told[task]
                self._handle(TaskGone(task) if isinstance(before, TaskHere) else TaskBack(task))
        for task, event in seen.items():
            if not _same(self._told.get(task), event):
                self._told[task] = event
                self._handle(event)

    # -- what it decides ----------------------------------------------------------------------

    def _perform(self, effect: Effect) -> None:
        match effect:
            case Send(peer, message):
                if isinstance(message, Answer):
                    self._admission.answered(peer, message, trio.current_time())
                else:
                    self.offered_at = trio.current_time()
                self._nursery.start_soon(self._send, peer, message)
            case Move():
                self._nursery.start_soon(self._move, effect)
            case Recall(task):
                self._nursery.start_soon(self._recall, task)
            case GiveBack(task):
                self._nursery.start_soon(self._give_back, task)
            case Note(level, text):
                self._overlay.events.note("warning" if level == "warning" else "info", text)

    async def _send(self, peer: str, message: Message) -> None:
        try:
            connection = await self._overlay.connect(parse_peer_id(peer))
            await connection.call(MESSAGE, BrainMessage(message), Done, timeout_s=CALL_S)
        except MedusaError:
            self._handle(Unreachable(peer))

    async def _move(self, effect: Move) -> None:
        item = effect.item
        deal = Deal(
            contract=effect.contract,
            giver=self._here,
            price=effect.price if effect.contract else 0,
            cost_ns=item.cost_ns,
            availability_s=self._availability(effect.contract),
        )
        try:
            if item.owner == self._here:
                await self._tasks.mover.move(item.task, parse_peer_id(effect.to), deal)
            else:
                await self._pass_on(item.task, effect.to, deal)
        except MedusaError as error:
            self._overlay.events.note("warning", f"could not move {item.task}: {error}")
            self._handle(MoveEnded(item.task, ok=False, reason=str(error)))
        else:
            self.sample()
            self._handle(MoveEnded(item.task, ok=True))

    async def _pass_on(self, task: str, to: str, deal: Deal) -> None:
        assigned = self._tasks.assignments.of_task(task)
        request = PassOn(task, assigned.stored.assignment.term_number, to, deal)
        self._settler.passing.asked(request)
        record = await self._tasks.returning.pass_on(task, request)
        self._settler.passed_on(assigned.stored, record, deal)
        mine = msgspec.structs.replace(record, contract=deal.contract, price=deal.price)
        self.passed.append(mine)

    async def _recall(self, task: str) -> None:
        try:
            await self._tasks.mover.take_back(task)
        except MedusaError as error:
            self._overlay.events.note("warning", f"could not take home {task}: {error}")
        self.sample()

    async def _give_back(self, task: str) -> None:
        try:
            await self._tasks.returning.give_back(task)
        except MedusaError as error:
            self._overlay.events.note("warning", f"could not give back {task}: {error}")
        self.sample()

    def _availability(self, contract: str) -> int:
        try:
            terms = self._contracts.book.get(contract).proposal.terms
        except NotFoundError:
            return 0
        return terms.availability_s if isinstance(terms, LoadTerms) else 0

    # -- what the engine asks -----------------------------------------------------------------

    def expect(self, owner: PeerId, participant: str, request: Assignment) -> None:
        """See `Admission.expected`."""
        self._admission.expected(owner.hex(), participant, request, trio.current_time())

    def admit(self, owner: PeerId, participant: str, request: Assignment, task: Task) -> None:
        """Check that the task may run here for that peer.

        Raises:
            NotAuthorisedError: the task may not run here; the message has the reason.
        """
        now = trio.current_time()
        self._admission.admit(owner.hex(), participant, request, task, now)

    def check_pass_on(self, placement: Placement) -> None:
        """See `Admission.check_pass_on`."""
        self._admission.check_pass_on(placement)

    def missed(self, worker: PeerId) -> None:
        """A worker of ours does not answer: the Brain treats it as unreachable."""
        self._handle(Unreachable(worker.hex()))


@dataclass(frozen=True)
class Gives:
    """A predicate: whether a partner may get a task. Its menu must cover the task, and it may read
    the inputs."""

    menu: Callable[[Item], bool]
    participant: str
    may_work: Callable[[Item, str], bool]

    def __call__(self, item: Item) -> bool:
        return self.menu(item) and self.may_work(item, self.participant)


@dataclass(frozen=True)
class Takes:
    """A predicate: whether this peer runs a task for a partner. Our menu must cover it, and we must
    not have passed it on ourselves, because payments would go in a circle."""

    menu: Callable[[Item], bool]
    passed_on: Callable[[str], bool]

    def __call__(self, item: Item) -> bool:
        return self.menu(item) and not self.passed_on(item.task)


def _same(before: TaskHere | TaskOut | None, now: TaskHere | TaskOut) -> bool:
    """Whether two reports of a task are equal, apart from noise in load and cost."""
    if before is None or type(before) is not type(now):
        return False
    close = abs(before.item.load - now.item.load) <= SAME * max(before.item.load, now.item.load)
    return close and now == replace(now, item=now.item) and _terms(before) == _terms(now)


def _terms(event: TaskHere | TaskOut) -> tuple[str, str, int]:
    peer = event.giver if isinstance(event, TaskHere) else event.worker
    return peer, event.contract, event.price
