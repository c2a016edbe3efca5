"""The peers of the demonstration and all they do: post traffic, ask questions, keep answers."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AsyncExitStack

import pyarrow as pa
import trio

from engine.objects.query import QueryStatus
from engine.objects.schema import END
from overlay.errors import InternalError
from testnet.conn import conn_schema
from testnet.load.board import LoadBoard
from testnet.load.places import AHEAD_S, Place
from testnet.load.traffic import Player, Tape
from testnet.load.watches import Watch, expected
from testnet.network import source_schema
from testnet.oracle import Row
from testnet.patience import while_moving
from testnet.peers import Federation, Peer
from tools.client.async_client import AsyncMedusaClient, open_medusa


class Cast:
    """
    Args:
        nursery: runs the posting and the receiving.

    Attributes:
        clients: of each peer that runs, by participant.
        players: what is posted there, sensor by sensor.
    """

    def __init__(
        self,
        federation: Federation,
        closing: AsyncExitStack,
        nursery: trio.Nursery,
        board: LoadBoard,
    ) -> None:
        self._federation = federation
        self._closing = closing
        self._nursery = nursery
        self._board = board
        self.clients: dict[str, AsyncMedusaClient] = {}
        self.players: dict[str, list[Player]] = {}
        self._peers: dict[str, Peer] = {}
        self._answers: dict[Watch, list[Row]] = {}
        self._ended: dict[Watch, trio.Event] = {}

    def peer(self, place: Place) -> Peer:
        return self._peers[place.participant]

    async def enter(self, place: Place) -> None:
        """Start its peer: the first one founds the federation."""
        self._federation.config = place.config
        make = self._federation.admit if self._federation.peers else self._federation.found
        peer = await make(place.participant)
        await peer.ready()
        client = await self._closing.enter_async_context(open_medusa(peer.home.folder))
        self._peers[place.participant] = peer
        self.clients[place.participant] = client
        await self._federation.together()

    async def perform(self, place: Place, traces: Sequence[pa.Table], speed: float) -> None:
        """Publish its streams, start its queries, receive their answers, and post.

        Args:
            traces: of its sensors.
        """
        client = self.clients[place.participant]
        await client.create_schema(conn_schema(source_schema(place.participant)))
        streams = [place.stream(sensor) for sensor in range(len(traces))]
        for stream in streams:
            await client.create_stream(stream)
        for watch in place.watches:
            await client.create_query_xml(watch.document(streams[watch.sensor].name))
            await client.set_query_status(watch.query, QueryStatus.RUNNING)
            self._answers[watch], self._ended[watch] = [], trio.Event()
            self._nursery.start_soon(self._receive, client, watch)
        self.players[place.participant] = []
        for number, (trace, stream) in enumerate(zip(traces, streams, strict=True)):
            player = Player(Tape(trace, number * AHEAD_S), client, stream.name, speed)
            player.on_rows = self._count
            self.players[place.participant].append(player)
            self._nursery.start_soon(player.run)

    async def _receive(self, client: AsyncMedusaClient, watch: Watch) -> None:
        upto = None
        async for epoch in client.subscribe(watch.answer, subscriber="testnet-load"):
            rows = watch.rows_of(epoch.table)
            self._answers[watch] += rows
            self._board.answers += len(rows)
            upto = epoch.upto
        if upto != END:
            raise InternalError(f"the subscription to {watch.answer} ended before the stream")
        self._ended[watch].set()

    def _count(self, rows: int) -> None:
        self._board.rows += rows

    async def finish(self) -> None:
        """End the traffic, and wait for the last answers.

        Raises:
            DeadlineError: naming those that did not end.
        """
        for players in self.players.values():
            for player in players:
                player.end()

        def stands() -> str:
            left = [watch.answer for watch, event in self._ended.items() if not event.is_set()]
            return f"{self._board.answers:,} rows of answers; not ended: {', '.join(left)}"

        async with while_moving("until the last answers", stands):
            for event in self._ended.values():
                await event.wait()

    @property
    def questions(self) -> int:
        return len(self._answers)

    def different(self) -> tuple[str, ...]:
        """The answers that are not those of a batch run over what was posted. Blocking."""
        found: list[str] = []
        for participant, players in self.players.items():
            for sensor, player in enumerate(players):
                place = (participant, sensor)
                watches = [each for each in self._answers if (each.owner, each.sensor) == place]
                wanted = expected(player.posted, watches)
                found += [
                    each.answer for each in watches if sorted(self._answers[each]) != wanted[each]
                ]
        return tuple(found)
