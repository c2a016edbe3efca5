"""Decides which tasks of others may run here: each that our Brain accepted, on its terms, once."""

from __future__ import annotations

from dataclasses import dataclass

from medusa.contracts.contract import Contract, covers
from medusa.contracts.delivery import Contracts
from medusa.contracts.market.messages import Answer, Item, Offer
from medusa.contracts.terms import UNITS_PER_CORE, LoadTerms
from medusa.engine.replication.moves.messages import Assignment
from medusa.engine.replication.records.placements import Placement
from medusa.engine.tasks.plan import Task
from medusa.overlay.errors import NotAuthorisedError
from medusa.tools.market.tasks import item_of


@dataclass(frozen=True)
class Accepted:
    """A task that we accepted, with its giver and terms. until: seconds."""

    giver: str
    contract: str
    price: int
    item: Item
    until: float


class Admission:
    """The tasks that our Brain has accepted and their owners have not yet placed here.

    Args:
        keep_s: how long an accepted task is awaited, seconds: as long as room is kept for it.
    """

    def __init__(self, participant: str, contracts: Contracts, keep_s: float) -> None:
        self._participant = participant
        self._contracts = contracts
        self._keep_s = keep_s
        self._offers: dict[tuple[str, str], Offer] = {}
        self._accepted: dict[str, Accepted] = {}
        self._answered: dict[str, int] = {}

    def offered(self, peer: str, offer: Offer) -> None:
        """Note an offer of a peer (hex). Under each contract our Brain answers the latest offer, in
        its first form; an answered one is not accepted again."""
        known = self._offers.get((peer, offer.contract))
        heard = self._answered.get(peer, -1) if known is None else known.number
        if offer.number > heard:
            self._offers[peer, offer.contract] = offer

    def answered(self, peer: str, answer: Answer, now: float) -> None:
        """Note our Brain's answer to an offer."""
        offer = next((o for o in self._offers_of(peer) if o.number == answer.number), None)
        if offer is not None:
            del self._offers[peer, offer.contract]
        self._answered[peer] = max(answer.number, self._answered.get(peer, -1))
        for task in [task for task, each in self._accepted.items() if each.until <= now]:
            del self._accepted[task]
        for item in offer.items if offer is not None else ():
            if item.task in answer.accepted:
                assert offer is not None
                until = now + self._keep_s
                self._accepted[item.task] = Accepted(peer, offer.contract, offer.price, item, until)

    def expected(
        self, owner: str, participant: str, request: Assignment, now: float
    ) -> Accepted | None:
        """The acceptance of a task, by its name; None: a task of our own participant needs none.

        Raises:
            NotAuthorisedError: we have not accepted it.
        """
        if not request.deal.contract and participant == self._participant:
            return None
        accepted = self._accepted.get(request.task)
        if accepted is None or accepted.item.owner != owner or accepted.until <= now:
            raise NotAuthorisedError(f"{request.task}: we have not accepted it")
        return accepted

    def admit(
        self, owner: str, participant: str, request: Assignment, task: Task, now: float
    ) -> None:
        """Check that the task may run here for that peer, and use up its acceptance. A task taken
        from another peer of ours comes on the terms of the contract under which that peer ran it.

        Raises:
            NotAuthorisedError: the task may not run here; the message has the reason.
        """
        deal = request.deal
        accepted = self.expected(owner, participant, request, now)
        if accepted is None:
            return
        terms = (accepted.contract, accepted.price, accepted.item.cost_ns)
        if accepted.contract and terms != (deal.contract, deal.price, deal.cost_ns):
            raise NotAuthorisedError(f"{task.name}: not accepted on these terms")
        if not deal.contract:
            raise NotAuthorisedError(f"{task.name}: there is no contract to run it under")
        contract = self._in_force(deal.contract)
        # the giver may be a peer of the owner's participant, for which the owner pays
        theirs = contract.counterparty(self._participant) == participant and deal.giver == owner
        if accepted.contract and not theirs and deal.giver != accepted.giver:
            raise NotAuthorisedError(f"{task.name}: not accepted from whom it is to be billed to")
        load = accepted.item.load / UNITS_PER_CORE
        item = item_of(task, owner=owner, load=load, cost_ns=deal.cost_ns)
        why = covers(contract.menu_of(self._participant), item)
        if why:
            raise NotAuthorisedError(why)
        del self._accepted[task.name]

    def check_pass_on(self, placement: Placement) -> None:
        """Check that the worker of a task of ours may pass it on.

        Raises:
            NotAuthorisedError: the worker may not pass the task on; the message has the reason.
        """
        if not placement.owed.contract:
            return
        terms = self._in_force(placement.owed.contract).proposal.terms
        if not isinstance(terms, LoadTerms) or not terms.sublet:
            raise NotAuthorisedError("the contract does not let it be passed on")

    def _offers_of(self, peer: str) -> list[Offer]:
        return [offer for (by, _), offer in self._offers.items() if by == peer]

    def _in_force(self, contract: str) -> Contract:
        for each in self._contracts.in_force():
            if each.id == contract:
                return each
        raise NotAuthorisedError(f"contract {contract[:8]} is not in force")
