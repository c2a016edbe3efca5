from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path

import trio

from medusa.dht.catalog import Catalog
from medusa.engine.functions.allowed import Functions
from medusa.engine.functions.computation import calling
from medusa.engine.objects.catalog_records import SCHEMA, STREAM
from medusa.engine.objects.files import SchemaFiles
from medusa.engine.objects.readers import Readers, guard
from medusa.engine.replication.copies.copy import Workshop
from medusa.engine.replication.directory.announcements import Announcements
from medusa.engine.replication.directory.directory import Directory
from medusa.engine.replication.finding import Copies
from medusa.engine.replication.following.book import Followers
from medusa.engine.replication.leaders.leaders import Leaders
from medusa.engine.replication.modifier import Modifier
from medusa.engine.replication.moves.assignments import Assignments
from medusa.engine.replication.moves.confirming import Confirming
from medusa.engine.replication.moves.mover import Mover
from medusa.engine.replication.moves.returning import Returning
from medusa.engine.replication.queries.digests import Digests
from medusa.engine.replication.queries.host import QueryHost
from medusa.engine.replication.queries.lifecycle import Lifecycle
from medusa.engine.replication.relabelling import AssignedLabels, QueryLabels, Relabelling
from medusa.engine.replication.repair import Repair
from medusa.engine.replication.replicas.primaries import Primaries
from medusa.engine.replication.replicas.standbys import Standbys
from medusa.engine.replication.resuming import Resuming
from medusa.engine.replication.sources import Sources
from medusa.engine.replication.versions.monitor import VersionMonitor
from medusa.engine.replication.views.feeding import Feedings
from medusa.engine.replication.views.host import Views
from medusa.engine.replication.views.locating import Locator
from medusa.engine.spark.config import SparkConfig
from medusa.engine.streams.config import EngineConfig
from medusa.engine.streams.reading.delivery import Delivery
from medusa.engine.streams.store.freezing import WARM_UP
from medusa.engine.streams.store.store import StreamStore
from medusa.engine.streams.store.stream_state import Role, StreamState, entries_of
from medusa.engine.streams.store.subscriptions import Leases, Subscriptions
from medusa.engine.tasks.execution import Executor, OpenExecutor
from medusa.engine.tasks.status import troubles_of
from medusa.overlay.files import storing
from medusa.overlay.names import ObjectName
from medusa.overlay.node.node import Overlay
from medusa.overlay.troubles import Reason, Trouble


class Engine:
    """The streams, queries and tasks of one peer, on which the API's calls act.

    Attributes:
        overlay, catalog: reach other peers, and find objects by name.
        store: every stream here. subscriptions: their subscribers. delivery: sends them epochs.
        readers: decides which participants may read a stream. relabelling: keeps labels in step.
        directory: the holders of terms. announcements: publishes this peer's entries.
        followers: local copies of other peers' streams.
        queries: the queries whose primary this peer is. lifecycle: creates and deletes them.
        resuming: resumes those of the last run.
        primaries: keeps their secondaries up to date. standbys: queries whose secondary it is.
        mover: moves their tasks to workers and back.
        modifier: modifies running queries. outputs: alters their outputs.
        sources: alters, deletes and reopens the source streams whose leader this peer is.
        copies: finds this peer's copy of a stream or query.
        assignments: the tasks that it runs for other peers. returning: gives them back.
        locator: finds parts of streams' history. views: the views that this peer keeps.
        versions: chooses the producers that followed streams are read from.
        repair: fetches lost parts of logs again.
        executor: computes tasks, on Spark unless another one was given. functions: the functions of
            users that tasks may call here.
        schemas: the schemas that were created here. started_at: on trio's clock, seconds.
    """

    def __init__(
        self,
        *,
        overlay: Overlay,
        catalog: Catalog,
        executor: Executor,
        functions: Functions,
        home: Path,
        config: EngineConfig,
        nursery: trio.Nursery,
    ) -> None:
        self._nursery = nursery
        self.overlay = overlay
        self.catalog = catalog
        self.executor = executor
        self.functions = functions
        self.config = config
        self.started_at = trio.current_time()
        self._keep_streams(home)
        self._run_queries(home)
        self._look_after_streams(home)
        catalog.yielded.add(self._give_way)
        guard(catalog, self.readers)
        for look in (self.store.troubles, self._feedings.troubles, self._troubles_of_tasks):
            overlay.troubles.add(look)

    def _troubles_of_tasks(self) -> Iterator[Trouble]:
        for query, (_, why) in self.queries.unfit.items():
            yield Trouble(Reason.QUERY_REFUSED, query, f"does not run any more: {why}", "delete it")
        tasks = self.queries.task_status() + self.assignments.task_status()
        yield from troubles_of(tasks, self.executor.trouble)

    def _keep_streams(self, home: Path) -> None:
        """Make the parts for streams: logs, subscriptions, directory, followers."""
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
        """Make the parts for queries: as primary, as secondary, and as worker for other peers."""
        overlay, config = self.overlay, self.config
        shop = Workshop(
            overlay,
            self.followers,
            self.readers,
            self.executor,
            self.functions,
            config,
            self._nursery,
        )
        self.queries = QueryHost(home / "queries", shop, self.announcements)
        self.lifecycle = Lifecycle(self.queries, self.catalog)
        self.resuming = Resuming(self.queries)
        self.standbys = Standbys(self.queries, self.lifecycle)
        self.digests = Digests(overlay, self.queries, self.directory, config)
        self.primaries = Primaries(self.queries, self.digests, self.lifecycle)
        self.mover = Mover(self.queries)
        self.modifier = Modifier(self.queries, self.mover, self.primaries)
        self.assignments = Assignments(home / "assignments", shop)
        self._confirming = Confirming(self.assignments, shop)
        self.returning = Returning(self.assignments, shop)

    def _look_after_streams(self, home: Path) -> None:
        """Make the parts that lead, alter, find, mend and relabel streams."""
        overlay, nursery = self.overlay, self._nursery
        self.versions = VersionMonitor(
            overlay=overlay,
            store=self.store,
            directory=self.directory,
            followers=self.followers,
            config=self.config,
            nursery=nursery,
        )
        self._feedings = Feedings(self.store, self.followers, overlay.events, nursery)
        self.locator = Locator(self.store, self.directory, overlay.identity.participant)
        self.views = Views(
            overlay=overlay,
            catalog=self.catalog,
            announcements=self.announcements,
            readers=self.readers,
            queries=self.queries,
            locator=self.locator,
            feedings=self._feedings,
        )
        self.repair = Repair(overlay, self.followers.reach, self.queries)
        self.leaders = Leaders(
            home / "ballots",
            overlay=overlay,
            store=self.store,
            directory=self.directory,
            announcements=self.announcements,
            nursery=nursery,
            quiet_s=self.config.leader_silence_s,
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
        """Give up a source stream that another peer of ours has defined as well, and later, while
        we were apart: it has one leader."""
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
        """Open the files of the last run and go on with them. Followers' logs without users stay
        until they are dropped: tuples that are paid for may still have to be counted."""
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
        """Publish the schemas and streams here, whether the catalog knows of them or not. Queries,
        views and streams with replicas are published by their own parts."""
        for schema in self.schemas.load():
            self.catalog.publish_soon(SCHEMA, ObjectName.parse(schema.name), schema)
        for state in self.store.all():
            if state.role is Role.SOURCE and not state.entry.stream.k_safety:
                for entry in entries_of(state.entry):
                    self.announcements.announce_soon(entry)

    def maintain(self) -> None:
        """Start the loops that maintain streams and tasks. Call it once, after all decisions and
        listeners are set: these loops return tasks and release consumers, which a later listener
        could not undo."""
        for part in (
            self.store.maintenance,
            self.mover,
            self.modifier,
            self._confirming,
            self.returning,
            self.primaries,
            self.standbys,
            self.digests,
            self.versions,
            self.repair,
            self.relabelling,
        ):
            self._nursery.start_soon(part.maintain)


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
    functions: Functions | None = None,
) -> AsyncIterator[Engine]:
    """Open an engine, see `Engine.maintain`; when the block ends, its tasks have stopped and the
    JVM is gone.

    Args:
        home: the folder of its data; made if it is not there. logs: the folder for the JVM's
            output.
        execution: opens the executor of its tasks; Spark's unless given.
        functions: the functions of users that tasks may call here; none unless given.
    """
    for folder in ("schemas", "streams", "queries", "assignments"):
        with storing(home / folder):
            (home / folder).mkdir(parents=True, exist_ok=True)
    opened = execution
    if opened is None:
        # imported here: PySpark is slow to import, and a simulation computes without it.
        from medusa.engine.spark.executor import open_executor

        opened = partial(open_executor, spark, home / WARM_UP)
    allowed = Functions({}) if functions is None else functions
    async with (
        opened(logs, overlay.events) as computing,
        calling(computing, allowed, home / WARM_UP) as executor,
        AsyncExitStack() as closing,
        trio.open_nursery() as nursery,
    ):
        engine = Engine(
            overlay=overlay,
            catalog=catalog,
            executor=executor,
            functions=allowed,
            home=home,
            config=config,
            nursery=nursery,
        )
        closing.push_async_callback(engine.store.close)  # the store stops after the nursery's tasks
        closing.enter_context(overlay.clock.set.listening(engine.resuming.clock_was_set))
        await engine.resume()
        try:
            yield engine
        finally:
            nursery.cancel_scope.cancel()
