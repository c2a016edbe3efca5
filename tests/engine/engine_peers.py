"""Complete peers in one process, composed as the daemon composes them: real TLS and UDP on
loopback."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import pyarrow as pa
import trio
from deadline import DEADLINE_S
from field_texts import fields_of

from medusa.contracts.config import ContractsConfig
from medusa.engine.functions.computation import CallingExecutor
from medusa.engine.objects.definitions import ANY, StreamDefinition
from medusa.engine.objects.query import Filter, Query
from medusa.engine.objects.schema import END, Schema
from medusa.engine.spark.workforce import Patience
from medusa.engine.streams.config import EngineConfig, Timing
from medusa.engine.streams.store.stream_state import StreamState
from medusa.engine.tasks.execution import Executor
from medusa.overlay.events import wall_clock
from medusa.overlay.gossip.config import Preset
from medusa.overlay.identity import parse_peer_id
from medusa.overlay.names import PeerId
from medusa.overlay.timing import OverlayTiming
from medusa.testnet.kit.ports import port_to_keep
from medusa.testnet.simulation.determinism import Signatures
from medusa.tools.client.async_client import AsyncMedusaClient, Subscription, open_medusa
from medusa.tools.commands.peer.admission import invite
from medusa.tools.commands.peer.joining import join
from medusa.tools.daemon.peer import Peer, open_peer
from medusa.tools.home.addresses import Address
from medusa.tools.home.config import Config, load_config
from medusa.tools.home.folder import Home
from medusa.tools.home.founding import make_peer, make_sibling

PATIENCE_S = 10.0

LOOK_S, LONGER, LONGEST_S = 0.005, 1.2, 0.04
"""The first pause between two looks at a state, the factor by which each pause is longer than the
one before, and the longest pause."""

T = TypeVar("T")


Row = tuple[int, int]
"""(stime, value)."""


def schema_of(participant: str, path: str = "event") -> Schema:
    return Schema(
        f"medusa://{participant}/{path}", fields_of("t long, name string(8)?, value int"), time="t"
    )


def rows(pairs: Iterable[Row], name: str | None = "x") -> pa.Table:
    pairs = list(pairs)
    return pa.table(
        {
            "t": pa.array([stime for stime, _ in pairs], pa.int64()),
            "name": pa.array([name] * len(pairs), pa.string()),
            "value": pa.array([value for _, value in pairs], pa.int32()),
        }
    )


def executor_of(place: Place) -> Executor:
    """Return the executor of a peer's tasks that call no functions of users."""
    executor = place.up.engine.executor
    assert isinstance(executor, CallingExecutor)
    return executor.executor


def scattered(number: int) -> int:
    """Return a value that takes its full four bytes in a log, which stores differences of
    integers."""
    return number * 2_654_435_761 % 2**31


def pairs_of(table: pa.Table) -> list[Row]:
    return list(
        zip(table.column("stime").to_pylist(), table.column("value").to_pylist(), strict=True)
    )


async def until(condition: Callable[[], bool | Awaitable[bool]], what: str = "") -> None:
    """Poll, with a deadline, a state for which there is no event."""
    pause_s = LOOK_S
    with trio.move_on_after(DEADLINE_S):
        while not await _holds(condition()):
            await trio.sleep(pause_s)
            pause_s = min(LONGER * pause_s, LONGEST_S)
        return
    raise AssertionError(f"it never became true: {what or condition}")


async def _holds(found: bool | Awaitable[bool]) -> bool:
    return await found if isinstance(found, Awaitable) else found


async def next_rows(subscription: Subscription) -> pa.Table:
    """Return the rows of the next epoch that is not empty."""
    with trio.fail_after(DEADLINE_S):
        async for epoch in subscription:
            if epoch.table.num_rows:
                return epoch.table
    raise AssertionError("it ended")


async def received(subscription: Subscription, rows_wanted: int) -> list[Row]:
    """Return the next rows of a subscription, however they are cut into epochs."""
    found: list[Row] = []
    with trio.move_on_after(DEADLINE_S):
        while len(found) < rows_wanted:
            found += pairs_of((await anext(subscription)).table)
        return found
    raise AssertionError(f"of {rows_wanted} rows no more than {found} came: are others late?")


async def to_the_end(subscription: Subscription) -> list[Row]:
    """Return all rows until the stream ends."""
    found: list[Row] = []
    with trio.fail_after(DEADLINE_S):
        async for epoch in subscription:
            found += pairs_of(epoch.table)
    assert subscription.boundary == END
    return found


@dataclass
class Place:
    """A home, with the peer that runs in it, if any."""

    home: Home
    participant: str
    engine_config: EngineConfig
    contracts_config: ContractsConfig | None = None
    overlay_timing: OverlayTiming = field(default=OverlayTiming())
    listen: Address = field(default_factory=lambda: ("127.0.0.1", port_to_keep()))
    peer: Peer | None = None
    spark_patience: Patience = field(default=Patience())
    clock_off_s: float = 0.0
    """Seconds by which its machine's clock is wrong; a test may set it at any time."""

    @property
    def up(self) -> Peer:
        assert self.peer is not None, f"{self.participant} is not running"
        return self.peer

    @property
    def id(self) -> str:
        return self.up.running.peer

    @property
    def peer_id(self) -> PeerId:
        return parse_peer_id(self.id)

    def wall(self) -> float:
        return wall_clock() + self.clock_off_s

    def errors(self) -> list[str]:
        """Return the troubles that the peer reports."""
        events = self.up.engine.overlay.events.recent()
        return [event.text for event in events if event.level == "error"]

    @property
    def config(self) -> Config:
        config = load_config(self.home)
        overlay = dataclasses.replace(
            config.overlay, listen=self.listen, preset=Preset.LOCAL, timing=self.overlay_timing
        )
        contracts = self.contracts_config or config.contracts
        return dataclasses.replace(
            config,
            overlay=overlay,
            engine=self.engine_config,
            contracts=contracts,
            spark=dataclasses.replace(config.spark, patience=self.spark_patience),
        )

    def name(self, path: str) -> str:
        return f"medusa://{self.participant}/{path}"

    def state(self, path: str, variant: str = "") -> StreamState:
        """Return the peer's state of a stream; `path` may be a whole name."""
        name = path if path.startswith("medusa://") else self.name(path)
        state = self.up.engine.store.get(name, variant)
        assert state is not None, f"{name} is not kept by {self.participant}"
        return state

    def client(
        self, *, producer: str | None = None, patience_s: float = PATIENCE_S
    ) -> AbstractAsyncContextManager[AsyncMedusaClient]:
        return open_medusa(self.home.folder, producer=producer, patience_s=patience_s)


Switch = tuple[trio.Event, trio.Event]
"""Two events for the task of a context: the first tells it to leave the context, the second is set
once it has left."""


async def _close(switch: Switch) -> None:
    told, over = switch
    told.set()
    with trio.fail_after(DEADLINE_S):
        await over.wait()


class Cluster:
    """Peers that the test starts and stops one by one; the first participant founds the
    federation."""

    def __init__(self, folder: Path, engine: EngineConfig, overlay: OverlayTiming) -> None:
        self._folder = folder
        self._engine = engine
        self._overlay = overlay
        self._first: Place | None = None
        self._running: dict[str, Switch] = {}
        self._clients: list[Switch] = []
        self.nursery: trio.Nursery

    async def settle(
        self,
        participant: str,
        *,
        sibling: bool = False,
        contracts: ContractsConfig | None = None,
        **engine: float,
    ) -> Place:
        """Start a new peer of a participant and admit it. engine: settings of its own."""
        number = len(list(self._folder.iterdir()))
        home = Home(self._folder / f"{number}-{participant}")
        if self._first is None:
            make_peer(home, participant, "cluster")
        elif sibling:
            make_sibling(home, self._home_of(participant))
        else:
            make_peer(home, participant, None)
            at = self._first.up.running.overlay
            founder = self._first.home
            certificate = home.root_certificate
            invited = await trio.to_thread.run_sync(
                invite, founder, participant, certificate, (at,)
            )
            assert invited.token is not None
            join(home, invited.token)
        config = dataclasses.replace(self._engine, **engine)  # type: ignore[arg-type]
        place = Place(home, participant, config, contracts, self._overlay)
        self._first = self._first or place
        await self.start(place)
        return place

    async def settle_all(self, *participants: str) -> list[Place]:
        """Start a peer for each name, and wait until the peers know each other; a repeated name
        gives a sibling."""
        places: list[Place] = []
        for participant in participants:
            known = any(place.participant == participant for place in places)
            places.append(await self.settle(participant, sibling=known))
        await self.acquainted(*places)
        return places

    async def siblings(self, count: int) -> list[Place]:
        """Start peers of mit.edu that know each other."""
        return await self.settle_all(*["mit.edu"] * count)

    def _home_of(self, participant: str) -> Home:
        return next(
            Home(path)
            for path in sorted(self._folder.iterdir())
            if path.name.endswith(f"-{participant}") and Home(path).root_key.exists()
        )

    async def start(self, place: Place) -> None:
        """Start the peer of a place, at its former port if it had one."""
        opened = open_peer(place.home, place.config, wall=place.wall)
        with trio.fail_after(DEADLINE_S):
            place.peer, switch = await self._enter(opened)
        place.listen = place.up.running.overlay
        self._running[str(place.home.folder)] = switch

    async def stop(self, place: Place) -> None:
        """Stop the peer in order, as on SIGTERM."""
        await _close(self._running.pop(str(place.home.folder)))
        place.peer = None

    async def open(self, opened: AbstractAsyncContextManager[T]) -> T:
        """Enter the context of a client. The cluster leaves it before its peers stop."""
        inside, switch = await self._enter(opened)
        self._clients.append(switch)
        return inside

    async def client(self, place: Place) -> AsyncMedusaClient:
        return await self.open(place.client())

    async def founder(self) -> tuple[Place, AsyncMedusaClient]:
        """Start mit.edu; return it with a client."""
        mit = await self.settle("mit.edu")
        return mit, await self.client(mit)

    async def founder_with_stream(self, **options: object) -> tuple[Place, AsyncMedusaClient, str]:
        """Start mit.edu; return it with a client and a stream `s` of its own."""
        mit, client = await self.founder()
        return mit, client, await make_stream(client, mit, "s", **options)

    async def owner_and_guest(
        self, **options: object
    ) -> tuple[Place, Place, AsyncMedusaClient, AsyncMedusaClient, str]:
        """Start mit.edu and utah.edu; return them, a client of each, and a stream `s` of the
        first."""
        mit, utah = await self.settle_all("mit.edu", "utah.edu")
        owner, guest = await self.clients(mit, utah)
        return mit, utah, owner, guest, await make_stream(owner, mit, "s", **options)

    async def clients(self, *places: Place) -> list[AsyncMedusaClient]:
        """Open a client of each peer."""
        return [await self.client(place) for place in places]

    async def close_clients(self) -> None:
        """Close the clients, which wait until all their posts are stored."""
        while self._clients:
            await _close(self._clients.pop())

    async def _enter(self, opened: AbstractAsyncContextManager[T]) -> tuple[T, Switch]:
        """Enter the context in a task of its own, which leaves the context when the first event is
        set."""
        told, over = switch = trio.Event(), trio.Event()

        async def run(task_status: trio.TaskStatus[T]) -> None:
            try:
                async with opened as inside:
                    task_status.started(inside)
                    await told.wait()
            finally:
                over.set()

        return await self.nursery.start(run), switch

    async def restart(self, place: Place) -> None:
        await self.stop(place)
        await self.start(place)

    async def acquainted(self, *places: Place) -> None:
        """Wait until these peers know one another's addresses and each has met another's node."""
        for place in places:
            peers = place.up.engine.overlay.peers
            others = [bytes.fromhex(other.id) for other in places if other is not place]
            await until(lambda p=peers, o=others: all(p.get(i) is not None for i in o))


@asynccontextmanager
async def open_cluster(
    folder: Path,
    *,
    epoch_s: float = 0.05,
    lease_s: float = 3600.0,
    overlay: OverlayTiming | None = None,
    **engine: float | Timing,
) -> AsyncIterator[Cluster]:
    """Give peers under `folder`, and stop all of them at the end of the block. Signatures that one
    of them made are not verified again: see `Signatures`."""
    config = EngineConfig(epoch_s=epoch_s, lease_s=lease_s, **engine)  # type: ignore[arg-type]
    cluster = Cluster(folder, config, overlay or OverlayTiming())
    with Signatures().remembered():
        async with trio.open_nursery() as nursery:
            cluster.nursery = nursery
            yield cluster
            await cluster.close_clients()
            nursery.cancel_scope.cancel()


async def make_stream(client: AsyncMedusaClient, place: Place, path: str, **options: object) -> str:
    """Create a stream of `schema_of`, led by the peer that is asked or by `leader`, and readable by
    every member or by `readers`."""
    schema = schema_of(place.participant)
    await client.create_schema(schema)
    name = place.name(path)
    await client.create_stream(
        StreamDefinition(name, schema.name, **{"readers": (ANY,), **options})  # type: ignore[arg-type]
    )
    return name


async def send_rows(
    client: AsyncMedusaClient,
    stream: str,
    tuples: pa.Table | Iterable[Row] | None = None,
    *,
    boundary: int | None = None,
    end: bool = False,
) -> None:
    """Post tuples, and wait until the stream has them; None promises a boundary, or the end."""
    table = tuples if tuples is None or isinstance(tuples, pa.Table) else rows(tuples)
    await client.post_event(stream, table, boundary=boundary, end=end)
    await client.flush()


def passing(
    place: Place, name: str, source: str, output: str, predicate: str = "value > 1"
) -> Query:
    """Return a query of one box."""
    return Query(place.name(name), (Filter("pass", source, (output,), (predicate,)),))


async def known(client: AsyncMedusaClient) -> dict[str, tuple[str, ...]]:
    """Return the names of all objects that the peer knows, by kind."""
    return (await client.list_objects()).names


def files(place: Place) -> list[str]:
    """Return the folders and files of a peer's streams and queries, without those of their logs."""
    data = place.home.data
    return sorted(
        str(path.relative_to(data))
        for folder in (data / "streams", data / "queries")
        for path in folder.iterdir()
    )


async def begin(client: AsyncMedusaClient, query: Query) -> None:
    """Create the query and start it."""
    await client.create_query(query)
    await client.start_query(query.name)
