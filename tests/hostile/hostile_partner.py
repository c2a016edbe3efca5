"""A peer of the federation that breaks the rules in one method, and is honest in all others."""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable

from msgspec import Struct

from medusa.contracts.desk import Effect, Event, Received, Send
from medusa.contracts.receipts import Message, Proposal, Receipt, Refusal, read_receipt
from medusa.overlay.rpc import Caller, Duplex
from medusa.tools.daemon.peer import Peer
from medusa.tools.market.settler import Settler

Lie = Callable[[Caller, Struct, bytes, Duplex], Awaitable[None]]


def answer_with(peer: Peer, method: str, lie: Lie) -> None:
    """Let that peer answer a method with this handler from now on."""
    methods = peer.engine.overlay.service._methods
    methods[method] = dataclasses.replace(methods[method], answer=lie)


def say(peer: Peer, method: str, *messages: Struct | bytes) -> None:
    """Let that peer answer a method with these messages from now on, bytes unchanged."""

    async def lie(_: Caller, __: Struct, ___: bytes, duplex: Duplex) -> None:
        for message in messages:
            if isinstance(message, Struct):
                await duplex.send(message)
            else:
                await duplex.send_raw(message)

    answer_with(peer, method, lie)


class Bookkeeper:
    """The settlement of a peer that lies about money: it answers bills as the test says.

    Attributes:
        billed: the receipts that were proposed to it. heard: every received letter, with its
            sender.
    """

    def __init__(self, peer: Peer) -> None:
        self._settler: Settler = peer.engine.mover.agree._decide.__self__  # type: ignore[attr-defined]
        self._payer = self._settler._settlement._payer
        self.key = peer.engine.overlay.identity.private_key
        self.billed: list[tuple[Proposal, Receipt]] = []
        self.heard: list[tuple[bytes, Message]] = []
        self._handle = self._settler.handle
        vars(self._settler)["handle"] = self._listen

    def answer(self, lie: Callable[[Proposal, Receipt], list[Message]]) -> None:
        """Let the peer answer each bill in this way from now on."""

        def proposed(payee: bytes, proposal: Proposal, _: float) -> list[Effect]:
            receipt = read_receipt(proposal.payload)
            self.billed.append((proposal, receipt))
            return [Send(payee, message) for message in lie(proposal, receipt)]

        vars(self._payer)["proposed"] = proposed

    def be_honest(self) -> None:
        vars(self._payer).pop("proposed", None)

    def _listen(self, event: Event) -> None:
        if isinstance(event, Received):
            self.heard.append((event.peer, event.message))
        self._handle(event)


def refusal(receipt: Receipt, **said: object) -> Refusal:
    """Return a refusal of that receipt. said: the reason, in place of "not to be paid now"."""
    fields = {"have": receipt.number - 1, "reason": "no money today"} | said
    return Refusal(receipt.contract, receipt.task, receipt.term_number, **fields)  # type: ignore[arg-type]
