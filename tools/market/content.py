"""Content contracts: both sides count the tuples of a stream in their own logs, and settle as for
load."""

from __future__ import annotations

import trio

from medusa.contracts.config import MarketTiming
from medusa.contracts.delivery import Contracts
from medusa.engine.objects.readers import Readers
from medusa.engine.replication.following.book import Followers
from medusa.overlay.concurrency import Bell, next_beat
from medusa.overlay.names import ObjectName
from medusa.tools.market.content_deals import content_contracts
from medusa.tools.market.content_receiver import ContentReceiver
from medusa.tools.market.content_sender import ContentSender
from medusa.tools.market.meters import PaidStreams


class Content:
    """Begins and ends the deals for streams, on both sides, as contracts come and go."""

    def __init__(
        self,
        *,
        contracts: Contracts,
        readers: Readers,
        followers: Followers,
        streams: PaidStreams,
        sender: ContentSender,
        receiver: ContentReceiver,
        timing: MarketTiming,
    ) -> None:
        self._contracts = contracts
        self._readers = readers
        self._followers = followers
        self._streams = streams
        self._sender = sender
        self._receiver = receiver
        self._timing = timing
        self._changed = Bell()
        self._in_force: set[str] | None = None

    def register(self) -> None:
        """Serve receivers, and listen to changes of contracts."""
        self._sender.register()
        self._contracts.changed.add(self._wake)
        self._streams.hold_for_bills()  # before retention drops tuples for the first time
        self._receiver.resume()

    def _wake(self) -> None:
        self._changed.ring()

    async def run(self) -> None:
        """Begin and end deals as contracts come and go, for ever."""
        await self._followers.drop_unused()
        while True:
            self._changed.clear()
            in_force = {contract.id for contract, _ in content_contracts(self._contracts)}
            if in_force != self._in_force:
                self._in_force = in_force
                self._readers.changed.notify()
            self._sender.look(in_force)
            await self._receiver.look(in_force)
            self._streams.hold_for_bills()
            with trio.move_on_at(next_beat(self._timing.content_look_s)):
                await self._changed.wait()

    def pays(self, participant: str, stream: str) -> bool:
        """Whether that participant has a contract in force with the owner of a stream, for it.
        Contracts between two others are not known here."""
        owner = ObjectName.parse(stream).participant
        return any(
            (terms.stream, terms.sender) == (stream, owner)
            and contract.counterparty(owner) == participant
            for contract, terms in content_contracts(self._contracts)
        )
