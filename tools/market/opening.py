"""The market of a running peer, opened and closed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import trio

from contracts.agreements import BookAgreements
from contracts.config import ContractsConfig
from contracts.delivery import open_contracts
from contracts.ledger import LEDGER_FILE, open_ledger
from contracts.settlement import Desk, Settlement
from engine.engine import Engine
from tools.market.content import Content
from tools.market.members import Members
from tools.market.settler import Settler
from tools.market.status import MarketCalls
from tools.market.suggestions import Suggestions
from tools.market.trader import Trader


@asynccontextmanager
async def open_market(engine: Engine, home: Path, config: ContractsConfig) -> AsyncIterator[Trader]:
    """Contracts, ledger and Brain of the peer in `home`, at work until the block ends.

    Raises:
        InvalidInputError: the contracts' folder or the ledger cannot be read.
        StorageFullError: the disk is full.
    """
    overlay = engine.overlay
    members = Members(overlay)
    own = overlay.identity
    path = home / LEDGER_FILE
    with open_ledger(path, own.peer_id, overlay.membership.federation, members.key_of) as ledger:
        async with open_contracts(overlay, home) as contracts, trio.open_nursery() as nursery:
            agreements = BookAgreements(contracts.book, members.participant_of)
            desk = Desk(own, ledger, agreements, members.key_of)
            settlement = Settlement(desk, config.settle_s)
            settler = Settler(engine, settlement, ledger, path, nursery)
            settler.register()
            trader = Trader(engine, contracts, settler, config, nursery)
            trader.register()
            MarketCalls(engine, contracts, ledger, trader).register()
            content = Content(engine, contracts, settler, nursery)
            content.register()
            suggestions = Suggestions(engine, contracts)
            suggestions.register()
            nursery.start_soon(settler.run)
            nursery.start_soon(trader.run)
            nursery.start_soon(content.run)
            nursery.start_soon(suggestions.run)
            try:
                yield trader
            finally:
                nursery.cancel_scope.cancel()
