"""The peers of the demonstration and their clients: traffic, questions, answers."""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack

import pyarrow as pa
import pyarrow.compute as pc
import trio

from medusa.engine.objects.query import QueryStatus
from medusa.engine.objects.schema import END
from medusa.overlay.errors import InternalError
from medusa.testnet.connections.conn import conn_schema
from medusa.testnet.connections.query import Row, source_schema
from medusa.testnet.kit.patience import while_moving
from medusa.testnet.kit.peers import Federation, Peer
from medusa.testnet.kit.traffic import POST_ROWS, TICK_S
from medusa.testnet.load.board import LoadBoard
from medusa.testnet.load.script import AHEAD_S, WINDOW_S, Place, Watch, expected
from medusa.tools.client.async_client import AsyncMedusaClient, open_medusa


class Tape:
    """A trace that repeats from its beginning, later by whole windows, so that every round gives
    the same answers at other times.

    Args:
        trace: connections by ascending ts; at least one.
        ahead: seconds of trace that come at once.
    """

    def __init__(self, trace: pa.Table, ahead: float = 0.0) -> None:
        self._trace = trace.combine_chunks()
        self._times: list[float] = trace.column("ts").to_pylist()
        self._start = math.floor(self._times[0] / WINDOW_S) * WINDOW_S
        end = math.floor(self._times[-1] / WINDOW_S + 1) * WINDOW_S
        self._span = end - self._start
        self._next = 0
        self._round = 0
        self._at = ahead

    def forward(self, seconds: float) -> Iterator[pa.Table]:
        """The connections of the next so many seconds of trace, in parts of the size of posts."""
        self._at += seconds
        while self._at >= (self._round + 1) * self._span:
            yield from self._upto(len(self._times))
            self._round, self._next = self._round + 1, 0
        until = self._start + self._at - self._round * self._span
        yield from self._upto(bisect.bisect_left(self._times, until))

    def _upto(self, end: int) -> Iterator[pa.Table]:
        for first in range(self._next, end, POST_ROWS):
            part = self._trace.slice(first, min(POST_ROWS, end - first))
            later = pc.add(part.column("ts"), float(self._round * self._span))
            yield part.set_column(0, "ts", later).cast(part.schema)
        self._next = max(self._next, end)


class Player:
    """Posts a tape to a stream until `end`.

    Attributes:
        speed: seconds of trace per second; may be changed at any time.
        posted: the posted connections, for the batch run; they share their memory with the trace.
    """

    def __init__(
        self,
        tape: Tape,
        client: AsyncMedusaClient,
        stream: str,
        speed: float,
        count: Callable[[int], None] = lambda rows: None,
    ) -> None:
        """count: called with the rows of each post."""
        self.speed = speed
        self.posted: list[pa.Table] = []
        self._tape = tape
        self._client = client
        self._stream = stream
        self._count = count
        self._ending = trio.Event()

    def end(self) -> None:
        """Stop posting, and end the stream."""
        self._ending.set()

    async def run(self) -> None:
        """Play until `end`.

        Raises:
            MedusaError: a post has failed for good.
        """
        due = trio.current_time()
        while not self._ending.is_set():
            for part in self._tape.forward(self.speed * TICK_S):
                await self._client.post_event(self._stream, part)
                self.posted.append(part)
                self._count(part.num_rows)
            # time lost by a slow peer is not made up for
            due = max(due + TICK_S, trio.current_time())
            with trio.move_on_at(due):
                await self._ending.wait()
        await self._client.post_event(self._stream, None, end=True)
        await self._client.flush()


class Cast:
    """The peers of the demonstration.

    Args:
        nursery: runs the posting and the receiving.

    Attributes:
        clients: of each running peer, by participant.
        players: the posters, sensor by sensor.
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
        """Start the peer of a place: the first one founds the federation."""
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
            tape = Tape(trace, number * AHEAD_S)
            player = Player(tape, client, stream.name, speed, self._count)
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
            DeadlineError: some answers did not end; names them.
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
        """The answers that differ from a batch run over the posted connections. Blocking."""
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
