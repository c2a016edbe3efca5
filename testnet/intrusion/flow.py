"""The traffic of a scenario: every participant posts, one subscriber receives all answers."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from functools import partial
from typing import Final

import pyarrow as pa
import trio

from medusa.engine.objects.schema import END
from medusa.engine.replication.records.status import Snapshot
from medusa.engine.streams.revisions.corrections import Change
from medusa.overlay.connection import Connection
from medusa.overlay.errors import (
    BusyError,
    DeadlineError,
    InternalError,
    MedusaError,
    UnavailableError,
)
from medusa.testnet.connections.query import COLUMNS, Answers, Row, source_stream
from medusa.testnet.connections.traces import Trace, merge
from medusa.testnet.intrusion.board import Board, Posting
from medusa.testnet.kit.answers import Fold, Received, to_its_end, tuples_in
from medusa.testnet.kit.cast import until_status
from medusa.testnet.kit.patience import while_moving
from medusa.testnet.kit.peers import Federation, Peer
from medusa.testnet.kit.traffic import Part, Timing, paced
from medusa.tools.client.async_client import AsyncMedusaClient, dial_to, open_client_over
from medusa.tools.client.link import Dial
from medusa.tools.home.folder import Home

LOOK_S: Final = 1.0
"""Seconds between two looks at the federation's status."""


async def flow(
    clients: Mapping[str, AsyncMedusaClient],
    by_poster: Mapping[str, Sequence[Trace]],
    streams: Mapping[str, str],
    *,
    speed: float | None,
    board: Board,
    disturb: Callable[[], Awaitable[None]] | None = None,
    hurry: bool = False,
    told: Mapping[str, Fold[Row]] | None = None,
) -> Answers:
    """Post everything while the first client receives; returns the received answers, sorted.

    Args:
        clients: by participant, in the order of the peers.
        by_poster: the traces of each participant.
        streams: for each answer, the stream that has it.
        speed: seconds of trace per second; None posts as fast as the peers take it.
        disturb: runs beside the posting; no stream ends before it does.
        hurry: once it has ended, post as fast as the peers take it.
        told: for each answer, takes the subscriber's changes, tentative answers included; None: the
            subscriber asks only for stable ones.

    Raises:
        DeadlineError: posts and epochs have stopped.
        MedusaError: a call failed for good.
    """
    subscriber = next(iter(clients.values()))
    receivers = [
        _Receiver(name, streams[name], subscriber, board, None if told is None else told[name])
        for name in COLUMNS
    ]
    board.answers = dict.fromkeys(COLUMNS, 0)
    board.posting = {
        participant: Posting(0, sum(trace.rows for trace in traces))
        for participant, traces in by_poster.items()
    }
    zero = min(trace.first for traces in by_poster.values() for trace in traces)

    board.moved = board.seconds()
    moving = while_moving("the traffic", partial(_stands, board))
    async with _with_what_fails(subscriber), moving, trio.open_nursery() as nursery:
        if board.live:
            nursery.start_soon(_watch, subscriber, board)
        for receiver in receivers:
            nursery.start_soon(receiver.run)
        with board.stage("post"):
            timing = Timing(trio.current_time(), hurry=hurry)
            async with trio.open_nursery() as posting:
                posting.start_soon(timing.run, disturb)
                for participant, traces in by_poster.items():
                    parts = paced(merge(traces), zero, speed)
                    client = clients[participant]
                    posting.start_soon(_post, client, participant, parts, timing, board)
        with board.stage("answers"):
            for receiver in receivers:
                await receiver.ended.wait()
        nursery.cancel_scope.cancel()
    return {receiver.name: sorted(receiver.rows) for receiver in receivers}


class _Receiver:
    """Receives one answer, epoch by epoch, until its stream ends.

    Args:
        fold: takes the changes, tentative answers included; None: only stable ones are asked for.
    """

    def __init__(
        self,
        name: str,
        stream: str,
        client: AsyncMedusaClient,
        board: Board,
        fold: Fold[Row] | None,
    ) -> None:
        self.name = name
        self.rows: list[Row] = []
        self.ended = trio.Event()
        self._stream = stream
        self._client = client
        self._board = board
        self._fold = fold

    async def run(self) -> None:
        """
        Raises:
            InternalError: the stream did not reach its end, or corrections are inconsistent.
        """
        label = f"testnet-{self.name}"
        if self._fold is None:
            async for epoch in to_its_end(self._client, self._stream, subscriber=label):
                rows = rows_of(epoch.table, self.name)
                self._take(rows, Received.of(epoch, self._board.seconds()))
        else:
            changes = self._client.follow(self._stream, self._fold.how, subscriber=label)
            async for change in changes:
                self._apply(change, self._fold)
            if self._fold.boundary != END:
                raise InternalError(f"the subscription to {self._stream} ended before the stream")
        self.ended.set()

    def _apply(self, change: Change, fold: Fold[Row]) -> None:
        final = fold.apply(change)
        if fold.fault:
            raise InternalError(f"{self._stream}: {fold.fault}")
        if final is not None:
            received = Received(self._board.seconds(), final.after, final.upto)
            self._take(list(final.rows), received)

    def _take(self, rows: list[Row], received: Received) -> None:
        self.rows += rows
        self._board.received(self.name, len(rows))
        self._board.history.add(self.name, received)


async def _post(
    client: AsyncMedusaClient, participant: str, parts: Iterator[Part], timing: Timing, board: Board
) -> None:
    stream = source_stream(participant).name
    # Not in a thread: the files were read through before, so they are in the page cache.
    for part in parts:
        board.wait(timing.seconds_until(part))
        await timing.until(part)
        await client.post_event(stream, part.table)
        board.posted(participant, part.table.num_rows)
    await timing.disturbed.wait()
    await client.post_event(stream, None, end=True)
    await client.flush()


def rows_of(table: pa.Table, answer: str) -> list[Row]:
    """The rows of an answer as in the CSV; window_start in whole seconds."""
    return [(start // 1_000_000, *row) for start, *row in tuples_in(table, COLUMNS[answer])]


def _stands(board: Board) -> str:
    """The progress in words; a pause that is due counts as progress."""
    moved = board.moved if board.moved <= board.seconds() else board.seconds()
    return (
        f"posted: {board.stages['post'].detail or 'nothing'}; "
        f"received: {board.stages['answers'].detail or 'nothing'}; "
        f"last move after {moved - board.zero:.1f} s"
    )


@contextlib.asynccontextmanager
async def _with_what_fails(client: AsyncMedusaClient) -> AsyncIterator[None]:
    """If progress stops, add the failing tasks to the error."""
    try:
        yield
    except DeadlineError as error:
        raise DeadlineError(f"{error}{await _failing(client)}") from error


async def _failing(client: AsyncMedusaClient) -> str:
    """The failing tasks, with the reasons of the subscriber's own participant's tasks: other
    participants' reasons are not visible."""
    try:
        snapshot = await client.status()
    except MedusaError as error:
        return f"; the subscriber's peer says: {error}"
    tasks = [task for peer in snapshot.peers for task in peer.tasks]
    failing = [task for task in tasks if task.reason or task.state == "failing"]
    return "".join(f"\n{task.name} is {task.state}: {task.reason or '?'}" for task in failing)


async def _watch(client: AsyncMedusaClient, board: Board) -> None:
    """Keep the snapshot fresh; only for the screen, so a busy peer is no fault."""
    while True:
        with contextlib.suppress(BusyError, UnavailableError):
            board.snapshot = await client.status()
        await trio.sleep(LOOK_S)


async def admit(
    federation: Federation,
    participants: Sequence[str],
    siblings: Mapping[str, int],
    clients: AsyncExitStack,
    board: Board,
) -> dict[str, AsyncMedusaClient]:
    """Start the peers of all participants but the founder, whose first runs, and wait until they
    know each other.

    Args:
        siblings: number of further peers for a participant.
        clients: closes the opened clients.

    Returns:
        a client of each participant, at a running peer of it.

    Raises:
        DeadlineError: the peers do not find each other.
        MedusaError: a peer does not start.
    """
    for participant in participants:
        await federation.admit(participant)
    firsts = tuple(federation.peers)
    for peer in firsts:
        await peer.ready()
    for peer in firsts:
        for _ in range(siblings.get(peer.participant, 0)):
            await federation.admit_sibling(peer)
    opened: dict[str, AsyncMedusaClient] = {}
    for participant, homes in homes_of(federation.peers).items():
        dial = dial_running(homes)
        opened[participant] = await clients.enter_async_context(open_client_over(dial))
        board.say("admit", f"{participant} runs")

    def together(told: Snapshot) -> bool:
        board.snapshot = told
        running = sum(peer.state == "running" for peer in told.peers)
        board.say("admit", f"{running} of {len(federation.peers)} peers are together")
        return running == len(federation.peers)

    stage = board.stages["admit"]
    for client in opened.values():
        async with while_moving("until the peers find each other", lambda: stage.detail):
            await until_status(client, together)
    return opened


def homes_of(peers: Sequence[Peer]) -> dict[str, list[Home]]:
    """Return the homes of each participant, in the order of the peers."""
    homes: dict[str, list[Home]] = {}
    for peer in peers:
        homes.setdefault(peer.participant, []).append(peer.home)
    return homes


def dial_running(homes: Sequence[Home]) -> Dial:
    """Dial the first running peer of a participant at every try, as a client that knows several
    does."""

    def dial() -> AbstractAsyncContextManager[Connection]:
        for home in homes[:-1]:
            with contextlib.suppress(MedusaError):
                home.running()
                return dial_to(home.folder, None)()
        return dial_to(homes[-1].folder, None)()

    return dial
