"""The engine of one peer: its streams, its queries, and the loops that tend them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path

import trio

from dht.catalog import Catalog
from engine.objects.files import SchemaFiles
from engine.objects.kinds import SCHEMA, STREAM
from engine.objects.readers import Readers, guard
from engine.replication.announcements import Announcements
from engine.replication.copies import Copies
from engine.replication.copy import Workshop
from engine.replication.digests import Digests
from engine.replication.directory import Directory
from engine.replication.following.book import Followers
from engine.replication.leaders.leaders import Leaders
from engine.replication.mending import Mending
from engine.replication.modifier import Modifier
from engine.replication.moves.assignments import Assignments
from engine.replication.moves.mover import Mover
from engine.replication.moves.returning import Returning
from engine.replication.outputs import Outputs
from engine.replication.queries import QueryHost
from engine.replication.relabelling import AssignedLabels, QueryLabels, Relabelling
from engine.replication.replicas.primaries import Primaries
from engine.replication.replicas.standbys import Standbys
from engine.replication.resuming import Resuming
from engine.replication.sources import Sources
from engine.replication.versions.monitor import VersionMonitor
from engine.replication.views.feeding import Feedings
from engine.replication.views.host import Views
from engine.replication.views.locating import Locator
from engine.spark.config import SparkConfig
from engine.streams.config import EngineConfig
from engine.streams.delivery import Delivery
from engine.streams.leases import Leases
from engine.streams.store import StreamStore
from engine.streams.stream_state import Role, StreamState, entries_of
from engine.streams.subscriptions import Subscriptions
from engine.tasks.execution import Executor, OpenExecutor
from overlay.files import storing
from overlay.names import ObjectName
from overlay.node import Overlay


class Engine:
    """What the API's calls act on.

    Attributes:
        overlay, catalog: how other peers are reached and objects found.
        store: every stream this peer keeps. subscriptions: who reads them. delivery: sends them.
        readers: who may read them. relabelling: keeps up with that.
        directory: the peers that produce the others. announcements: what the catalog is told of
            ours. followers: our copies of the others.
        queries: every query whose primary it is. resuming: takes up those of the last run.
        primaries: finds them secondaries. standbys: the queries whose secondary it is.
        mover: lets other peers work on their tasks.
        modifier: gives running queries other parameters. outputs: other definitions to what they
            make. sources: alters, deletes and reopens the source streams whose home it is.
        copies: finds what this peer has of a stream or query.
        assignments: the tasks that it runs for other peers. returning: has their owners take them.
        locator: finds parts of streams' history. views: those of them that this peer keeps.
        versions: has the best producer of what is read here read.
        mending: has what is lost of its logs fetched again.
        executor: its Spark, or what stands in for it.
        schemas: those that were created here.
        started_at: on trio's clock, seconds.
    """

    def __init__(
        self,
        *,
        overlay: Overlay,
        catalog: Catalog,
        executor: Executor,
        home: Path,
        config: EngineConfig,
        nursery: trio.Nursery,
    ) -> None:
        self._nursery = nursery
        self.overlay = overlay
        self.catalog = catalog
        self.executor = executor
        self.config = config
        self.started_at = trio.current_time()
        self._keep_streams(home)
        self._run_queries(home)
        self._look_after_streams(home)
        catalog.yielded.add(self._give_way)
        guard(catalog, self.readers)

    def _keep_streams(self, home: Path) -> None:
        """The logs of this peer, and what is said of streams and read of them."""
        overlay, config, nursery = self.overlay, self.config, self._nursery
        leases = Leases(home / "leases.json", config.lease_s)
        self.subscriptions = Subscriptions(
            overlay.identity.participant, leases, config, overlay.clock, overlay.events
        )
        self.delivery = Delivery(overlay.memory.messages)
        self.store = StreamStore(
            home / "streams",
            subscriptions=self.subscriptions,
            config=config,
            clock=overlay.clock,
            events=overlay.events,
            memory=overlay.memory,
            nursery=nursery,
        )
        self.schemas = SchemaFiles(home / "schemas")
        self.readers = Readers()
        self.directory = Directory(overlay, self.catalog, nursery)
        self.announcements = Announcements(
            self.catalog, self.directory, overlay.events, nursery, config.timing
        )
        self.followers = Followers(
            self.store, self.directory, overlay.identity.peer_id.hex(), overlay.events, nursery
        )
        self.directory.changed.add(lambda term: self.followers.read_anew(term.subject))

    def _run_queries(self, home: Path) -> None:
        """The queries whose primary or secondary this peer is, and the tasks of others."""
        overlay, config = self.overlay, self.config
        shop = Workshop(overlay, self.followers, self.readers, self.executor, config, self._nursery)
        self.queries = QueryHost(home / "queries", shop, self.catalog, self.announcements)
        self.resuming = Resuming(self.queries)
        self.standbys = Standbys(self.queries)
        self.digests = Digests(overlay, self.queries, self.directory, config)
        self.primaries = Primaries(self.queries, self.digests)
        self.mover = Mover(self.queries)
        self.modifier = Modifier(self.queries, self.mover, self.primaries)
        self.outputs = Outputs(self.queries, self.primaries, self.announcements, overlay.events)
        self.assignments = Assignments(home / "assignments", shop)
        self.returning = Returning(self.assignments, shop)

    def _look_after_streams(self, home: Path) -> None:
        """What makes, changes, finds and mends streams."""
        overlay, nursery = self.overlay, self._nursery
        self.versions = VersionMonitor(
            overlay=overlay,
            store=self.store,
            directory=self.directory,
            followers=self.followers,
            config=self.config,
            nursery=nursery,
        )
        self.locator = Locator(self.store, self.directory, overlay.identity.participant)
        self.views = Views(
            overlay=overlay,
            catalog=self.catalog,
            announcements=self.announcements,
            readers=self.readers,
            queries=self.queries,
            locator=self.locator,
            feedings=Feedings(self.store, self.followers, overlay.events, nursery),
        )
        self.mending = Mending(overlay, self.followers.reach, self.queries)
        self.leaders = Leaders(
            home / "ballots",
            overlay=overlay,
            store=self.store,
            directory=self.directory,
            announcements=self.announcements,
            nursery=nursery,
            quiet_s=self.config.home_silence_s,
        )
        self.sources = Sources(
            store=self.store,
            leaders=self.leaders,
            followers=self.followers,
            announcements=self.announcements,
            subscriptions=self.subscriptions,
            events=overlay.events,
        )
        self.copies = Copies(
            store=self.store,
            queries=self.queries,
            standbys=self.standbys,
            assignments=self.assignments,
            leaders=self.leaders,
        )
        self.relabelling = Relabelling(
            store=self.store,
            subscriptions=self.subscriptions,
            readers=self.readers,
            announcements=self.announcements,
            events=overlay.events,
            made=(
                QueryLabels(
                    queries=self.queries,
                    standbys=self.standbys,
                    mover=self.mover,
                    announcements=self.announcements,
                    readers=self.readers,
                    events=overlay.events,
                ),
                AssignedLabels(
                    self.assignments, self.returning, self.readers, overlay.identity.participant
                ),
            ),
        )

    def _give_way(self, kind: str, name: ObjectName) -> None:
        if kind == SCHEMA.label:
            self.schemas.remove(str(name))
        state = self.store.get(str(name))
        if kind == STREAM.label and state is not None and state.role is Role.SOURCE:
            self._nursery.start_soon(self._set_aside, state)

    async def _set_aside(self, state: StreamState) -> None:
        """Another peer of ours has defined the stream as well, while we were apart, and later: one
        of us must be its home."""
        await self.announcements.withdraw_term(state.name)
        folder = await self.store.set_aside(state)
        for beside in entries_of(state.entry)[1:]:
            await self.announcements.withdraw(beside.stream.name)
        self.overlay.events.note(
            "error",
            f"set aside {state.name}: another peer of ours defined it as well while we were apart, "
            f"and that one counts; what was posted here is in {folder}: post it again from there",
        )

    async def resume(self) -> None:
        """Open what the last run kept and go on with it. Mirrors that nobody follows any more stay
        until they are dropped: what is paid for may still have to be counted."""
        await self.store.load()
        self._declare_own()
        await self.leaders.resume()
        await self.announcements.withdraw_sources(
            self.overlay.identity.peer_id.hex(),
            lambda name: self.store.get(name) is not None or self.leaders.get(name) is not None,
        )
        await self.views.resume()  # before queries read them
        await self.resuming.resume()
        await self.standbys.resume()
        await self.assignments.resume()

    def _declare_own(self) -> None:
        """What is here is this peer's, whether its catalog knows of it or not. Queries, views and
        streams with replicas are declared by those that look after them."""
        kept_schemas = {schema.name for schema in self.schemas.load()}
        for published in self.catalog.own(SCHEMA):  # of a run before there were files of them
            if published.value.name not in kept_schemas:
                self.schemas.save(published.value)
        for schema in self.schemas.load():
            self.catalog.publish_soon(SCHEMA, ObjectName.parse(schema.name), schema)
        for state in self.store.all():
            if state.role is Role.SOURCE and not state.entry.stream.k_safety:
                for entry in entries_of(state.entry):
                    self.announcements.announce_soon(entry)

    def tend(self) -> None:
        """Look after streams and tasks from now on. Once only, and after everybody has come who
        wants a say in it, or to hear of it: what was let go of, or taken home, stays so."""
        for part in (
            self.store.tending,
            self.mover,
            self.modifier,
            self.assignments,
            self.returning,
            self.primaries,
            self.standbys,
            self.digests,
            self.versions,
            self.mending,
            self.relabelling,
        ):
            self._nursery.start_soon(part.tend)


@asynccontextmanager
async def open_engine(
    overlay: Overlay,
    catalog: Catalog,
    home: Path,
    config: EngineConfig,
    spark: SparkConfig,
    *,
    logs: Path,
    execution: OpenExecutor | None = None,
) -> AsyncIterator[Engine]:
    """A running engine, see `Engine.tend`; when the block ends, its tasks have stopped and the JVM
    is gone.

    Args:
        home: the folder of its data; made if it is not there. logs: of what its JVM says.
        execution: what computes its tasks; its own Spark unless said.
    """
    for folder in ("schemas", "streams", "queries", "assignments"):
        with storing(home / folder):
            (home / folder).mkdir(parents=True, exist_ok=True)
    opened = execution
    if opened is None:
        # Late: PySpark is slow to import, and a simulation computes without it.
        from engine.spark.executor import open_executor

        opened = partial(open_executor, spark)
    async with (
        opened(logs, overlay.events) as executor,
        AsyncExitStack() as closing,
        trio.open_nursery() as nursery,
    ):
        engine = Engine(
            overlay=overlay,
            catalog=catalog,
            executor=executor,
            home=home,
            config=config,
            nursery=nursery,
        )
        closing.push_async_callback(engine.store.close)  # once the nursery's tasks have left
        closing.enter_context(overlay.clock.set.listening(engine.resuming.clock_was_set))
        await engine.resume()
        try:
            yield engine
        finally:
            nursery.cancel_scope.cancel()
