"""The poster's demonstration: a chain of servers loses all its primaries at once, mode by mode."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import trio

from medusa.engine.objects.availability import Mode
from medusa.engine.objects.schema import END, STIME
from medusa.engine.replication.records.status import PeerStatus, Snapshot
from medusa.overlay.errors import DeadlineError, MedusaError, UnavailableError
from medusa.overlay.events import wall_clock
from medusa.testnet.ha import chain
from medusa.testnet.ha.figures import Cost, HaResult, ModeResult, Observations, figures, judge
from medusa.testnet.ha.screen import HaBoard, write_plot
from medusa.testnet.kit.cast import all_at_once, cpu_seconds, enter, publish, until_status
from medusa.testnet.kit.patience import until, while_moving
from medusa.testnet.kit.peers import CONFIG, Federation, Peer, open_federation
from medusa.testnet.kit.picture import draw
from medusa.tools.client.async_client import AsyncMedusaClient, open_medusa

TRIES: Final = 5
"""Tries of a request: a busy peer answers late."""


async def measure(peers: Iterable[Peer], client: AsyncMedusaClient) -> Cost:
    """The resources that the peers have used so far.

    Args:
        client: a client of any one of them, which asks the others.

    Raises:
        UnavailableError: one does not answer.
    """
    pids = [peer.pid for peer in peers]
    sent = await _sent(client, len(pids))
    at = wall_clock()
    cpu = await trio.to_thread.run_sync(cpu_seconds, pids)
    return Cost(at, cpu, sent)


async def _sent(client: AsyncMedusaClient, count: int) -> int:
    silent: list[str] = []
    for _ in range(TRIES):
        peers = (await client.status()).peers
        silent = [peer.peer[:8] for peer in peers if peer.state == "unreachable"]
        if len(peers) == count and not silent:
            return sum(peer.sent_bytes for peer in peers)
    raise UnavailableError(f"these peers do not tell what they sent: {', '.join(silent)}")


EPOCH_S: Final = 1.0
"""Shortest epoch of the chain, seconds. With active standbys there are eight tasks on six JVMs; at
half a second they need more than two cores."""
STANDBYS: Final = ("S1", "S2")
"""Peers with the secondaries, two each: fewer processes than servers, and none is killed."""

ROLES: Final = {
    "A": chain.SOURCE_OWNER,
    "client": chain.CLIENT_OWNER,
    **dict.fromkeys((*chain.SERVERS, *STANDBYS), chain.CHAIN_OWNER),
}
"""The participant of each role."""

CHAIN_CONFIG: Final = f"{CONFIG}\n[engine]\nepoch_s = {EPOCH_S}\n\n[contracts]\ntrade = false\n"
"""medusa.toml of every peer. No market: only a kill shall move a task."""


class Cast:
    """The peers of one run.

    Attributes:
        source: A, for posting. client: the client's peer.
        primaries: B, C, D, E. standbys: the peers of the secondaries.
    """

    def __init__(self, federation: Federation) -> None:
        self._federation = federation
        self._federation.config = CHAIN_CONFIG
        self.primaries: dict[str, Peer] = {}
        self.standbys: list[Peer] = []
        self.source: Peer
        self.client: Peer

    @property
    def all(self) -> tuple[Peer, ...]:
        return (self.source, self.client, *self.primaries.values(), *self.standbys)

    async def enter(self, report: Callable[[str], None]) -> None:
        """Start all peers, and wait until they know each other."""
        peers = await enter(self._federation, ROLES, report)
        self.source, self.client = peers["A"], peers["client"]
        self.primaries = {server: peers[server] for server in chain.SERVERS}
        self.standbys = [peers[standby] for standby in STANDBYS]

    async def define(self, variant: chain.Variant) -> None:
        """Publish the source and a query on each server, and start all."""
        await publish(self.source, (chain.SCHEMA,), (chain.SOURCE,))
        for number, (server, peer) in enumerate(self.primaries.items()):
            standby = self.standbys[number % len(self.standbys)]
            work = chain.query(server, variant.availability(standby.id))
            await publish(peer, queries=(work,))

    async def progress(self) -> str:
        """The state of the chain in words: servers with a running Spark, and the boundaries of
        their answers."""
        told = {}

        async def ask(server: str, peer: Peer) -> None:
            try:
                async with open_medusa(peer.home.folder) as client:
                    (status,) = (await client.status(federation=False)).peers
            except MedusaError:
                told[server] = f"{server} does not answer"
                return
            name = chain.output(server)
            written = any(each.name == name and each.rows for each in status.streams)
            told[server] = f"{server}'s Spark is {status.spark}" + ", it answers" * written

        await all_at_once(partial(ask, *each) for each in self.primaries.items())
        return "; ".join(told[server] for server in chain.SERVERS)

    async def kill(self) -> None:
        """SIGKILL to B, C, D and E and to their JVMs, all at once."""
        await all_at_once(peer.kill_9 for peer in self.primaries.values())

    async def restart(self) -> None:
        """Start the killed peers again, in their homes."""
        await all_at_once(peer.restart for peer in self.primaries.values())

    def returned(self, peers: Sequence[PeerStatus], variant: chain.Variant) -> int:
        """Number of B, C, D and E that run again and do not believe that they are still primary."""
        ids = {peer.id for peer in self.primaries.values() if peer.alive}
        return sum(
            peer.peer in ids
            and peer.state == "running"
            and (variant.mode is Mode.NONE or not primaries_of(peer))
            for peer in peers
        )


def secured(peers: Sequence[PeerStatus]) -> int:
    """Number of queries whose secondary is caught up, by the primaries' reports."""
    return len(
        {
            replica.query
            for peer in peers
            for replica in peer.replicas
            if replica.role == "primary" and replica.secondary and replica.state == "caught up"
        }
    )


def primaries_of(peer: PeerStatus) -> set[str]:
    """The queries of which a peer believes to be the primary."""
    return {replica.query for replica in peer.replicas if replica.role == "primary"}


OUTAGE_S: Final = 5.0
"""Seconds after which, without secondaries, the killed peers are started again."""
LOOK_S: Final = 0.1
ASK_S: Final = 2.0
"""Seconds between two status requests to the servers, which need the cores."""


@dataclass(frozen=True)
class Lengths:
    """Durations of a run's phases, seconds.

    Attributes:
        warm_s: the time after the first answer that is not measured: a JVM is slow at its start.
        steady_s: the time in which delay and costs are measured. watch_s: the time after the kill.
        return_s: the time until the killed peers have become standbys.
    """

    warm_s: float = 10.0
    steady_s: float = 12.0
    watch_s: float = 6.0
    return_s: float = 8.0


SHORT: Final = Lengths(5.0, 6.0, 4.0, 4.0)


class Play:
    """Carries out one run: fills `run`, and updates the board."""

    def __init__(
        self, cast: Cast, run: Observations, board: HaBoard, lengths: Lengths | None = None
    ) -> None:
        self._lengths = lengths or Lengths()
        self._cast = cast
        self._run = run
        self._board = board
        self._ended = trio.Event()
        self._all_posted = False

    async def run(self) -> None:
        """
        Raises:
            MedusaError: the run failed before the kill, or a call failed for good.
        """
        with self._board.stage("start"):
            await self._cast.enter(partial(self._board.say, "start"))
        with self._board.stage("define") as stage:
            await self._cast.define(self._run.variant)
            stage.detail = self._run.variant.label
        async with (
            open_medusa(self._cast.source.home.folder) as poster,
            open_medusa(self._cast.client.home.folder) as client,
            trio.open_nursery() as nursery,
        ):
            sensor = chain.source_sensor(poster, self._run.posted)
            nursery.start_soon(self._receive, client)
            nursery.start_soon(sensor.run)
            await self._before(client)
            await self._after(client)
            with self._board.stage("end") as stage:
                sensor.end()
                await sensor.ended.wait()
                self._all_posted = True
                await self._until(self._ended.is_set, "until the answers end")
                stage.detail = self._run.failure
            nursery.cancel_scope.cancel()

    async def _before(self, client: AsyncMedusaClient) -> None:
        run = self._run
        with self._board.stage("warm") as stage:
            await self._until(lambda: bool(run.arrivals), "until the chain's first answer")
            if not run.arrivals:
                raise DeadlineError(f"{run.failure}; {await _said(client)}")
            stage.detail = f"first answer after {self._board.now - stage.began:.0f} s"
            if run.variant.mode is not Mode.NONE:
                await self._until_secured(client)
            await trio.sleep(self._lengths.warm_s)
        with self._board.stage("steady"):
            run.before = await measure(self._cast.all, client)
            await trio.sleep(self._lengths.steady_s)
            run.after = await measure(self._cast.all, client)

    async def _after(self, client: AsyncMedusaClient) -> None:
        run = self._run
        with self._board.stage("kill") as stage:
            run.killed_at = wall_clock()
            await self._cast.kill()
            if run.variant.mode is Mode.NONE:
                await trio.sleep(OUTAGE_S)
                stage.detail = f"nobody takes over: started again after {OUTAGE_S:.0f} s"
                await self._cast.restart()
            await self._until(
                lambda: run.first_new() is not None, "until the first answer of after the kill"
            )
            first_new = run.first_new()
            if first_new is None:
                stage.detail = f"no answer: {await _said(client)}"
            else:
                stage.detail = f"answers after {first_new - run.killed_at:.2f} s"
                await trio.sleep(self._lengths.watch_s)
            run.watched_at = wall_clock()
        with self._board.stage("return") as stage:
            if run.variant.mode is not Mode.NONE:
                await self._cast.restart()
                await trio.sleep(self._lengths.return_s)
            await self._until_returned(client)
            stage.detail = (
                f"{run.returned} of {len(chain.SERVERS)}; {run.secured} queries have a standby"
            )

    async def _receive(self, client: AsyncMedusaClient) -> None:
        """Receive the answers to their end; a final failure fails the run."""
        upto = None
        try:
            async for epoch in client.subscribe(
                chain.output(chain.SERVERS[-1]), subscriber="testnet-ha"
            ):
                at = wall_clock()
                stimes = epoch.table.column(STIME).to_pylist()
                self._run.received(at, stimes, chain.answers_in(epoch.table))
                upto = epoch.upto
        except MedusaError as error:
            self._fail(f"the subscription failed: {error}")
        if upto == END:
            self._ended.set()

    async def _until_secured(self, client: AsyncMedusaClient) -> None:
        """Wait until every query has a secondary that is caught up: its Spark may start last.

        Raises:
            DeadlineError: they do not catch up.
        """
        found = 0

        def all_secured(told: Snapshot) -> bool:
            nonlocal found
            found = secured(told.peers)
            return found == len(chain.SERVERS)

        async with while_moving("until the standbys have caught up", lambda: f"{found} have"):
            await until_status(client, all_secured)

    async def _until_returned(self, client: AsyncMedusaClient) -> None:
        run = self._run

        def stands() -> str:
            return f"{run.returned} are, {run.secured} queries have a standby"

        def all_returned(told: Snapshot) -> bool:
            run.returned = self._cast.returned(told.peers, run.variant)
            run.secured = secured(told.peers)
            return run.returned == len(chain.SERVERS)

        with suppress(DeadlineError):  # the run's figures have this number
            async with while_moving("until the killed are back", stands):
                await until_status(client, all_returned)

    def _fail(self, reason: str) -> None:
        self._run.failure = self._run.failure or reason

    async def _until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait until the condition holds or the run has failed; gives up when nothing changes any
        more."""
        progress = ""

        def stands() -> str:
            # while readings come, answers to earlier ones may come too; afterwards the number of
            # answers is the progress
            answers = f"{len(self._run.answers):,} answers; " if self._all_posted else ""
            return f"{answers}{progress}"

        async def ask() -> None:
            nonlocal progress
            while True:
                progress = await self._cast.progress()
                await trio.sleep(ASK_S)

        try:
            async with while_moving(what, stands), trio.open_nursery() as asking:
                asking.start_soon(ask)
                await until(lambda: condition() or bool(self._run.failure), LOOK_S)
                asking.cancel_scope.cancel()
        except DeadlineError as error:
            self._fail(str(error))


async def _said(client: AsyncMedusaClient) -> str:
    """The errors of tasks that another participant can see."""
    try:
        peers = (await client.status()).peers
    except MedusaError as error:
        return str(error)
    tasks = [task for peer in peers for task in peer.tasks if task.state == "failing"]
    return "; ".join(f"{task.name} is failing" for task in tasks) or "no word"


@dataclass(frozen=True)
class Options:
    """The options of the command.

    Attributes:
        variants: the runs; if there are several, the one without secondaries first.
        keep: keep homes and logs. plot: the file of the picture, if any.
        short: observe for a shorter time.
    """

    variants: Sequence[chain.Variant] = chain.VARIANTS
    keep: bool = False
    plot: Path | None = None
    short: bool = False


async def run_ha(options: Options, board: HaBoard) -> HaResult:
    """Run every variant in a federation of its own, and compare.

    Raises:
        InvalidInputError: the picture cannot be written.
        MedusaError: the first run failed; a note has the ends of the peers' logs. If another one
            fails, the result says so.
    """
    alone = len(options.variants) == 1
    assert alone or options.variants[0] == chain.NONE, (
        "what it costs is more than without secondaries"
    )
    board.planned = options.variants
    folders: list[str] = []
    for variant in options.variants:
        folder = await _run(variant, options, board)
        if options.keep:
            folders.append(folder)
    plot = await draw(options.plot, write_plot, board.runs, board.results)
    return HaResult(
        modes=tuple(board.results),
        checks=judge(board.results),
        rate=chain.RATE,
        seconds=round(board.now, 1),
        plot=plot,
        folders=tuple(folders),
    )


async def _run(variant: chain.Variant, options: Options, board: HaBoard) -> str:
    """Run one variant; returns the folder of its peers."""
    run = Observations(variant, began=wall_clock())
    board.begin(run)
    folder = ""
    try:
        async with open_federation(keep=options.keep) as federation:
            folder = str(federation.folder)
            lengths = SHORT if options.short else Lengths()
            await Play(Cast(federation), run, board, lengths).run()
    except MedusaError as error:
        if variant == options.variants[0]:
            raise
        run.failure = str(error)
    run.ended = wall_clock()
    board.results.append(await trio.to_thread.run_sync(_figures, run, board.results))
    return folder


def _figures(run: Observations, earlier: Sequence[ModeResult]) -> ModeResult:
    return figures(run, chain.expected(run.posted), earlier[0] if earlier else None)
