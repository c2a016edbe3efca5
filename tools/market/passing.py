"""Tasks that were passed on, and that move again: each peer of the chain notifies the next one.

A peer in the middle is paid for the task and pays for it. It learns of a new placement from the
peer that pays it, makes the same two deals for it, and notifies the peer that it pays.
"""

from __future__ import annotations

from typing import Final, Protocol

import trio
from msgspec import Struct

from medusa.contracts.config import MarketTiming
from medusa.contracts.deals import Account, LoadRate, Rate
from medusa.contracts.ledger import Ledger, Standing
from medusa.contracts.settlement import Ended
from medusa.engine.replication.moves.messages import PassOn
from medusa.engine.replication.records.placements import Deal
from medusa.engine.streams.messages import Done
from medusa.overlay.errors import MedusaError, NotAuthorisedError
from medusa.overlay.identity import parse_peer_id
from medusa.overlay.names import PeerId
from medusa.overlay.node.node import Overlay
from medusa.overlay.rpc import Caller
from medusa.tools.market.boundaries import clamped

PASSED: Final = "contract.passed"

CALL_S: Final = 10.0
"""Seconds for one call; a lost message is sent again."""


class Passed(Struct, frozen=True):
    """The request of "contract.passed", sent by the paying peer: a task that the receiver passed on
    has a new placement, on the same terms.

    Attributes:
        before: the term of the placement that ended at `since`.
        term_number: the number of the new placement's term; None: the task has left the receiver
            and its workers.
        worker: peer id (hex) of the present worker; "" with term None.
    """

    task: str
    before: int
    since: int
    term_number: int | None = None
    worker: str = ""


class Deals(Protocol):
    """Begins and ends deals: the `Settler`."""

    def agree_on(
        self, account: Account, rate: Rate, task: str, *, term_number: int, since: int
    ) -> None: ...

    def handle(self, event: Ended) -> None: ...


class Passing:
    """The news of passed-on tasks, to and from partners.

    Args:
        nursery: sends the messages.
    """

    def __init__(
        self,
        overlay: Overlay,
        deals: Deals,
        ledger: Ledger,
        timing: MarketTiming,
        nursery: trio.Nursery,
    ) -> None:
        self._overlay = overlay
        self._deals = deals
        self._ledger = ledger
        self._timing = timing
        self._nursery = nursery
        self._own = overlay.identity.peer_id
        self._asked: dict[str, PassOn] = {}
        self._followed: dict[tuple[str, int], int | None] = {}

    def register(self) -> None:
        """Serve partners."""
        self._overlay.service.unary(PASSED, Passed, self._on_passed)

    def asked(self, request: PassOn) -> None:
        """Remember our request to pass a task on: if its answer is lost, the owner's message shows
        that it was granted."""
        self._asked[request.task] = request

    def notify(self, peer: PeerId, news: Passed) -> None:
        """Send the news to a peer that we pay, in a while if it is away."""
        self._nursery.start_soon(self._notify, peer, news)

    async def _on_passed(self, caller: Caller, request: Passed, _: bytes) -> Done:
        await trio.lowlevel.checkpoint()
        standings = self._ledger.deals_of(request.task, request.before)
        if not any(standing.deal.payer == caller.peer_id for standing in standings):
            raise NotAuthorisedError(f"{request.task}: we have no such deal with you")
        for standing in standings:
            if request.term_number is not None and self._is_news(standing, request):
                deal = standing.deal  # the same deal for the next placement
                self._deals.agree_on(
                    deal.account,
                    deal.rate,
                    deal.task,
                    term_number=request.term_number,
                    since=request.since,
                )
            if standing.deal.payer == self._own:
                self._forward(standing, request)
        self._pay_next(request)
        self._deals.handle(Ended(request.task, request.before, clamped(request.since)))
        return Done()

    def _is_news(self, standing: Standing, news: Passed) -> bool:
        """Whether the message agrees with what this peer knows: no earlier message named another
        next placement, and the old placement ended where the message says, as far as its end is
        known here."""
        key = news.task, news.before
        if standing.end not in {None, clamped(news.since)}:
            return False
        if key not in self._followed:
            known = self._followed.items()
            self._followed = {
                k: term_number for k, term_number in known if self._ledger.deals_of(*k)
            }
        return self._followed.setdefault(key, news.term_number) == news.term_number

    def _pay_next(self, news: Passed) -> None:
        """Agree with the present worker, to which we passed the task on."""
        asked = self._asked.pop(news.task, None)
        if asked is None or news.term_number is None or not asked.deal.contract:
            return
        if (asked.term_number, asked.to) == (news.before, news.worker):
            account = Account(asked.deal.contract, self._own, parse_peer_id(asked.to))
            rate = rate_of_deal(asked.deal)
            self._deals.agree_on(
                account, rate, news.task, term_number=news.term_number, since=news.since
            )

    def _forward(self, standing: Standing, news: Passed) -> None:
        """Send the message on to the peer that we pay, unless that is the worker, which knows it
        from the owner."""
        payee = standing.deal.payee
        if news.worker != payee.hex():
            self.notify(payee, news)

    async def _notify(self, peer: PeerId, news: Passed) -> None:
        for wait_s in (*self._timing.passed_tries_s, 0.0):
            try:
                connection = await self._overlay.connect(peer)
                await connection.call(PASSED, news, Done, timeout_s=CALL_S)
            except NotAuthorisedError:
                return  # the worker itself, which knows it from the owner
            except MedusaError:
                await trio.sleep(wait_s)
            else:
                return
        self._overlay.events.note("warning", f"could not tell {peer.hex()[:8]} of {news.task}")


def rate_of_deal(deal: Deal) -> LoadRate:
    return LoadRate(deal.cost_ns, deal.price)
