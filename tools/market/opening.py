"""Opens and closes the market of a running peer."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import SystemRandom

import trio
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from medusa.contracts.config import ContractsConfig
from medusa.contracts.delivery import open_contracts
from medusa.contracts.desk import BookAgreements
from medusa.contracts.ledger import LEDGER_FILE, open_ledger
from medusa.contracts.settlement import Desk, Settlement
from medusa.engine.engine import Engine
from medusa.overlay.certificates import public_key_of
from medusa.overlay.errors import UntrustedError
from medusa.overlay.names import PeerId
from medusa.overlay.node.node import Overlay
from medusa.overlay.peer_records import PeerRecord
from medusa.tools.market.content import Content
from medusa.tools.market.content_receiver import ContentReceiver
from medusa.tools.market.content_sender import ContentSender
from medusa.tools.market.meters import PaidStreams
from medusa.tools.market.settler import Settler
from medusa.tools.market.status import MarketCalls
from medusa.tools.market.suggestions import Suggestions
from medusa.tools.market.tasks import Tasks
from medusa.tools.market.trader import Trader


@asynccontextmanager
async def open_market(engine: Engine, home: Path, config: ContractsConfig) -> AsyncIterator[Trader]:
    """Run contracts, ledger and Brain of the peer in `home` until the block ends.

    Raises:
        InvalidInputError: the contracts' folder or the ledger cannot be read.
        StorageFullError: the disk is full.
    """
    overlay = engine.overlay
    members = Members(overlay)
    own = overlay.identity
    path = home / LEDGER_FILE
    with open_ledger(path, own.peer_id, overlay.membership.federation, members.key_of) as ledger:
        async with (
            open_contracts(overlay, home, config.timing) as contracts,
            trio.open_nursery() as nursery,
        ):
            agreements = BookAgreements(contracts.book, members.participant_of)
            desk = Desk(own, ledger, agreements, members.key_of, SystemRandom())
            tasks = Tasks(
                queries=engine.queries,
                mover=engine.mover,
                assignments=engine.assignments,
                returning=engine.returning,
                readers=engine.readers,
            )
            streams = PaidStreams(
                own=own.peer_id,
                ledger=ledger,
                store=engine.store,
                followers=engine.followers,
                lease_s=engine.config.lease_s,
                clock=overlay.clock,
            )
            settler = Settler(
                overlay=overlay,
                tasks=tasks,
                settlement=Settlement(desk, config),
                ledger=ledger,
                content_meter=streams.meter,
                timing=config.timing,
                nursery=nursery,
            )
            trader = Trader(
                overlay=overlay,
                tasks=tasks,
                contracts=contracts,
                settler=settler,
                config=config,
                capacity_cores=engine.config.capacity_cores,
                nursery=nursery,
            )
            calls = MarketCalls(overlay, engine.mover, contracts, ledger, trader)
            receiver = ContentReceiver(
                overlay=overlay,
                directory=engine.directory,
                contracts=contracts,
                settler=settler,
                streams=streams,
                timing=config.timing,
                nursery=nursery,
            )
            content = Content(
                contracts=contracts,
                readers=engine.readers,
                followers=engine.followers,
                streams=streams,
                sender=ContentSender(overlay, contracts, settler, streams),
                receiver=receiver,
                timing=config.timing,
            )
            suggestions = Suggestions(
                overlay=overlay,
                store=engine.store,
                directory=engine.directory,
                followers=engine.followers,
                contracts=contracts,
                timing=config.timing,
            )
            _let_decide(tasks, trader)
            _let_bill(tasks, settler)
            _let_read(engine, content, receiver, suggestions)
            for part in (settler, trader, calls, content, suggestions):
                part.register()
            for run in (settler.run, trader.run, content.run, suggestions.run):
                nursery.start_soon(run)
            try:
                yield trader
            finally:
                nursery.cancel_scope.cancel()


def _let_decide(tasks: Tasks, trader: Trader) -> None:
    """Let the trader decide which tasks of others run here, and which workers may pass ours on."""
    tasks.assignments.expect.made_by(trader.expect)
    tasks.assignments.admit.made_by(trader.admit)
    tasks.mover.may_pass_on.made_by(trader.check_pass_on)
    tasks.mover.home.missed.add(trader.missed)


def _let_bill(tasks: Tasks, settler: Settler) -> None:
    """Let the settler learn of the placements of tasks."""
    tasks.mover.agree.made_by(settler.agree)
    tasks.queries.changed.add(settler.changed)
    tasks.assignments.activated.add(settler.activated)
    tasks.assignments.ended.add(settler.ended)


def _let_read(
    engine: Engine, content: Content, receiver: ContentReceiver, suggestions: Suggestions
) -> None:
    """Let the contracts decide which participants may read paid streams, and from which peers our
    queries read."""
    engine.readers.pays.made_by(content.pays)
    engine.followers.reach.opening.made_by(receiver.opening)
    engine.followers.left.add(receiver.left)
    engine.followers.reach.choose.made_by(suggestions.choose)
    engine.followers.reach.failed.add(suggestions.failed)


class Members:
    """The peers that are members now."""

    def __init__(self, overlay: Overlay) -> None:
        self._overlay = overlay

    def key_of(self, peer: PeerId) -> Ed25519PublicKey:
        """
        Raises:
            UntrustedError: there is no such member.
        """
        return public_key_of(self._record(peer).certificate)

    def participant_of(self, peer: PeerId) -> str:
        """
        Raises:
            UntrustedError: there is no such member.
        """
        return self._record(peer).participant

    def _record(self, peer: PeerId) -> PeerRecord:
        record = self._overlay.peers.get(peer)
        if record is None:
            raise UntrustedError(f"peer {peer.hex()} is unknown or revoked")
        return record
