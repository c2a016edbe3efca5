"""A peer is killed (-9) at every step of a modification, under traffic: no result may be missing,
come twice, or be of the wrong edition.

Three peers of one participant run as processes with logs on disk: the leader of the source, with
the consumer, the primary of the query, and its active standby. Each step arms one of them (see
`crashing_peer`), asks for a modification, waits until that peer has died, starts it again, and asks
until it has an answer. At the end the test compares the consumer's tuples of all steps with those
that the reference interpreter makes of the answered editions.
"""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import trio
from crashing_peer import Order, arm, is_armed
from deadline import DEADLINE_S
from engine_peers import begin, rows, schema_of
from kill_sweeps import MODIFYING, Role
from killed_peers import let_crash
from modified_queries import Answer, Edition, answers, change, sieve_and_sums
from peer_intervals import INTERVALS, intervals

from medusa.engine.language.modification import BoxChange, modified_query
from medusa.engine.objects.availability import Availability, Mode, Recovery
from medusa.engine.objects.definitions import StreamDefinition
from medusa.engine.objects.schema import BEGINNING, END
from medusa.overlay.errors import MedusaError
from medusa.overlay.failpoints import Failpoint
from medusa.testnet.kit.peers import CONFIG, Peer, open_federation
from medusa.tools.client.async_client import AsyncMedusaClient, open_medusa

PARTICIPANT = "mit.edu"
POST_S = 0.2
ROWS = 37
"""Rows of a post, one per microsecond. A window spans 100 us at first, and another length after
each modification of `window-size`."""
LOOK_S = 0.05
HASTY = intervals(engine={"timing": {"sure_s": 4.0, "parted_s": 5.0, "settle_s": 0.5}})
"""Short intervals: after a kill the test waits for `parted_s`, which must exceed `sure_s`."""


@dataclass
class Scene:
    """
    Attributes:
        poster: a client at the source's home.
        owner: a client of the other two peers, which uses one that answers.
        posted: the time before which the source has a row at each time.
    """

    peers: list[Peer]
    poster: AsyncMedusaClient
    owner: AsyncMedusaClient
    editions: list[Edition]
    source: str
    posted: int = 0
    over: trio.Event = field(default_factory=trio.Event)
    received: list[Answer] = field(default_factory=list)
    boundary: int = BEGINNING

    @property
    def query(self) -> str:
        return self.editions[0].query.name

    @property
    def sums(self) -> str:
        return f"medusa://{PARTICIPANT}/sums"

    async def flow(self) -> None:
        while not self.over.is_set():
            await self._post(ROWS, end=False)
            with trio.move_on_after(POST_S):
                await self.over.wait()
        await self._post(1, end=True)
        await self.poster.flush()

    async def _post(self, count: int, *, end: bool) -> None:
        times = range(self.posted, self.posted + count)
        boundary = None if end else times[-1]
        await self.poster.post_event(
            self.source, rows((t, t) for t in times), boundary=boundary, end=end
        )
        self.posted += count

    async def receive(self) -> None:
        async for epoch in self.poster.subscribe(self.sums):
            columns = [epoch.table.column(name) for name in ("stime", "total", "number")]
            self.received += zip(*(column.to_pylist() for column in columns), strict=True)
            self.boundary = epoch.upto

    async def reach(self, boundary: int) -> None:
        with trio.fail_after(DEADLINE_S):
            while self.boundary < boundary:  # noqa: ASYNC110 - it tells nobody
                await trio.sleep(LOOK_S)

    async def cast(self) -> dict[str, Peer]:
        """Return the part of each peer, by the primary's report once its secondary has caught
        up."""
        with trio.fail_after(DEADLINE_S):
            while True:
                for peer in self.peers:
                    with suppress(MedusaError):
                        async with open_medusa(peer.home.folder, patience_s=1.0) as client:
                            (status,) = (await client.status(federation=False)).peers
                        for each in status.replicas:
                            if each.role == "primary" and each.state == "caught up":
                                return {"primary": peer, "secondary": self._peer(each.secondary)}
                await trio.sleep(LOOK_S)

    def _peer(self, id_: str) -> Peer:
        return next(peer for peer in self.peers if peer.home.running().peer == id_)

    async def modify(self, wish: BoxChange) -> None:
        """Ask for the modification until a peer answers."""
        with trio.fail_after(DEADLINE_S):
            while True:
                try:
                    done = await self.owner.modify_query(self.query, [wish])
                except MedusaError as error:
                    print(f"  {error}", flush=True)
                    await trio.sleep(LOOK_S)
                    continue
                break
        query = modified_query(self.editions[-1].query, [wish])
        self.editions.append(Edition(query, done.since))
        print(f"  from {done.since} on", flush=True)

    async def kill_at(self, role: Role, order: Order, wish: BoxChange) -> None:
        victim = (await self.cast())[role]
        process = victim.process
        assert process is not None
        arm(victim.home.folder, order)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.modify, wish)
            with trio.fail_after(DEADLINE_S):
                await process.wait()
            assert process.returncode == -signal.SIGKILL, victim.tail()
            assert not is_armed(victim.home.folder), "it died of something else"
            await victim.kill_9()  # its JVM dies with it
            await victim.start()
        await victim.ready()
        await self.reach(self.editions[-1].since)


@asynccontextmanager
async def open_scene() -> AsyncIterator[Scene]:
    async with open_federation() as federation:
        federation.config = CONFIG + "[engine]\nepoch_s = 0.2\n"
        home = await federation.found(PARTICIPANT)
        others = [await federation.admit_sibling(home) for _ in range(2)]
        for peer in (home, *others):
            await peer.ready()
        await federation.together()
        one, two = others
        async with (
            open_medusa(home.home.folder) as poster,
            open_medusa(one.home.folder, also=[two.home.folder]) as owner,
            trio.open_nursery() as nursery,
        ):
            schema = schema_of(PARTICIPANT)
            source = f"medusa://{PARTICIPANT}/s"
            await poster.create_schema(schema)
            await poster.create_stream(StreamDefinition(source, schema.name))
            running = two.running
            assert running is not None
            asked = Availability(Mode.ACTIVE_STANDBY, Recovery.PRECISE, secondary=running.peer)
            place = PlaceName()
            query = sieve_and_sums(place, source, availability=asked)  # type: ignore[arg-type]
            await begin(owner, query)
            scene = Scene([home, *others], poster, owner, [Edition(query)], source)
            nursery.start_soon(scene.flow)
            nursery.start_soon(scene.receive)
            await scene.reach(200)
            try:
                yield scene
                scene.over.set()
                await scene.reach(END)
            except BaseException:
                for peer in federation.peers:
                    print(f"--- {peer.name}\n{peer.tail(40)}", flush=True)
                raise
            nursery.cancel_scope.cancel()


class PlaceName:
    """A place of which only the names are used."""

    def name(self, path: str) -> str:
        return f"medusa://{PARTICIPANT}/{path}"


async def survives(*steps: tuple[Role, Order]) -> None:
    async with open_scene() as scene:
        for number, (role, order) in enumerate(steps):
            began = trio.current_time()
            print(f"{role}, {order}:", flush=True)
            wish = (
                change("sieve", expression_0=f"value % {number + 3} = 1")
                if number % 2
                else change("sum", window_size=f"0.000{60 + 20 * number:03}")
            )
            await scene.kill_at(role, order, wish)
            print(f"  {trio.current_time() - began:.1f} s", flush=True)
    times = range(scene.posted)
    wanted = answers(scene.editions, scene.source, times, scene.sums, "total", "number")
    found = scene.received
    differing = [pair for pair in zip(found, wanted, strict=False) if pair[0] != pair[1]]
    assert (len(found), differing[:3]) == (len(wanted), []), "received, and what must have come"


@pytest.mark.process
async def test_killed_where_it_is_decided(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The peer dies around the decisive steps, without Spark; the campaign has the other steps, and
    Spark."""
    let_crash(tmp_path, monkeypatch, interpreting=True)
    monkeypatch.setenv(INTERVALS, HASTY)
    await survives(
        ("primary", Order(Failpoint.QUERY_WRITE, "after")),
        ("primary", Order(Failpoint.PRIMARY_NOTIFY, "after")),
        ("secondary", Order(Failpoint.STANDBY_TAKE_VERSION, "after")),
    )


@pytest.mark.soak
@pytest.mark.process
@pytest.mark.spark
@pytest.mark.timeout(1800)
async def test_killed_at_every_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The campaign with real Spark."""
    let_crash(tmp_path, monkeypatch)
    await survives(*MODIFYING)
