"""Honest peers as processes of their own, besieged by a member, and what is measured meanwhile.

mit.edu has the streams, utah.edu reads them, evil.org was admitted and attacks. While an attack
lasts, honest clients post and subscribe, and the processes are looked at from outside.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import psutil
import trio
from engine_peers import rows, schema_of
from hostile_member import HostileMember

from engine.definitions import StreamDefinition
from overlay.addresses import Address
from overlay.errors import MedusaError
from overlay.identity import Root
from overlay.membership_file import load_membership
from testnet.peers import Federation, Peer, open_federation, run_command
from tools.async_client import AsyncMedusaClient, open_medusa
from tools.home import Home

MEMORY_BYTES = 384 * 2**20
"""overlay.memory_bytes of the honest peers."""
SLACK_BYTES = 64 * 2**20
"""By which the resident memory of a process may exceed that."""
P99_S = 1.0
"""Within which an honest post is answered, 99 of 100."""
FILES = 900
"""Open files of a process: a connection each for all that may be accepted would be 1,024 more."""

CONFIG = f'[overlay]\npreset = "local"\nmemory_bytes = {MEMORY_BYTES}\n'
POST_EVERY_S = 0.02
LOOK_EVERY_S = 0.02
STREAM = "medusa://mit.edu/honest"


@dataclass
class Watch:
    """What was seen during an attack, of mit.edu's peer unless said.

    Attributes:
        rss, files: the most at any moment; bytes, and how many.
        posts, deliveries: seconds each, of honest ones: a post until it was answered, a tuple from
            its post until utah.edu's client had it.
        dead: what honest peers took for dead of one another.
        unanswered: errors of honest posts.
    """

    rss: int = 0
    files: int = 0
    posts: list[float] = field(default_factory=list)
    deliveries: list[float] = field(default_factory=list)
    dead: set[str] = field(default_factory=set)
    unanswered: list[str] = field(default_factory=list)

    @property
    def p99_s(self) -> float:
        return statistics.quantiles(self.posts, n=100)[98]

    def check(self) -> None:
        """The bars that hold in every attack."""
        assert len(self.posts) >= 20, f"{len(self.posts)} honest posts were answered"
        assert self.rss <= MEMORY_BYTES + SLACK_BYTES, f"{self.rss / 2**20:.0f} MiB resident"
        assert self.p99_s < P99_S, f"honest posts took {self.p99_s:.2f} s (p99)"
        assert not self.dead, self.dead
        assert not self.unanswered, self.unanswered
        assert self.deliveries, "nothing was delivered"
        assert self.files <= FILES, f"{self.files} open files"

    def __str__(self) -> str:
        return (
            f"rss {self.rss / 2**20:.0f} MiB, files {self.files}, {len(self.posts)} posts: median "
            f"{1e3 * statistics.median(self.posts):.1f} ms, p99 {1e3 * self.p99_s:.0f} ms, "
            f"longest {1e3 * max(self.posts):.0f} ms; {len(self.deliveries)} deliveries, longest "
            f"{1e3 * max(self.deliveries, default=0):.0f} ms"
        )


@dataclass
class Siege:
    """
    Attributes:
        mit, utah: the honest peers, running.
        evil: the attacker; its `home` has a peer of its own that never runs.
    """

    mit: Peer
    utah: Peer
    evil: HostileMember
    _large: bool = False
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    @property
    def address(self) -> Address:
        """Where mit.edu's peer is attacked."""
        assert self.mit.running is not None
        return self.mit.running.overlay

    async def large(self) -> str:
        """A stream of mit.edu with 800,000 tuples, 13 MB on disk, all of them in its log."""
        name = "medusa://mit.edu/large"
        if not self._large:
            async with open_medusa(self.mit.home.folder) as client:
                await client.create_stream(StreamDefinition(name, schema_of("mit.edu").name))
                for first in range(0, 800_000, 100_000):
                    await client.post_event(
                        name, rows([(t, t) for t in range(first, first + 100_000)])
                    )
                await client.post_event(name, None, end=True)
                await client.flush()
            self._large = True
        return name

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[Watch]:
        """Honest posts, deliveries and looks at the processes, while the block lasts."""
        watch = Watch()
        async with (
            open_medusa(self.mit.home.folder, producer=f"honest-{next(self._numbers)}") as poster,
            open_medusa(self.utah.home.folder) as reader,
            trio.open_nursery() as nursery,
        ):
            posted: dict[int, float] = {}
            nursery.start_soon(self._read, reader, watch, posted)
            nursery.start_soon(self._look, watch)
            nursery.start_soon(self._ask, self.mit, watch)
            nursery.start_soon(self._ask, self.utah, watch)
            await nursery.start(self._post, poster, watch, posted)
            yield watch
            nursery.cancel_scope.cancel()

    async def _post(
        self,
        client: AsyncMedusaClient,
        watch: Watch,
        posted: dict[int, float],
        task_status: trio.TaskStatus[None],
    ) -> None:
        started = False
        while True:
            number = next(self._numbers)
            at = trio.current_time()
            posted[number] = at
            try:
                await client.post_event(STREAM, rows([(number, number)]))
                await client.flush()
            except MedusaError as error:
                watch.unanswered.append(str(error))
            else:
                watch.posts.append(trio.current_time() - at)
            if not started:
                watch.posts.clear()  # the first one connects
                task_status.started()
                started = True
            await trio.sleep(POST_EVERY_S)

    async def _read(
        self, client: AsyncMedusaClient, watch: Watch, posted: dict[int, float]
    ) -> None:
        async for epoch in client.subscribe(STREAM):
            now = trio.current_time()
            for number in epoch.table.column("value").to_pylist():
                if number in posted:
                    watch.deliveries.append(now - posted.pop(number))

    async def _look(self, watch: Watch) -> None:
        processes = [psutil.Process(peer.pid) for peer in (self.mit, self.utah)]
        while True:
            for process in processes:
                watch.rss = max(watch.rss, process.memory_info().rss)
                watch.files = max(watch.files, process.num_fds())
            await trio.sleep(LOOK_EVERY_S)

    async def _ask(self, peer: Peer, watch: Watch) -> None:
        async with open_medusa(peer.home.folder) as client:
            while True:
                for other in (await client.status()).peers:
                    if other.participant in {"mit.edu", "utah.edu"} and other.health == "dead":
                        watch.dead.add(f"{peer.participant} takes {other.participant} for dead")
                await trio.sleep(0.25)


@asynccontextmanager
async def open_siege() -> AsyncIterator[Siege]:
    """The honest peers, started, with the stream that honest clients post to."""
    async with open_federation() as federation:
        federation.config = CONFIG
        mit = await federation.found("mit.edu")
        utah = await federation.admit("utah.edu")
        await utah.ready()
        evil = await _admitted(federation, "evil.org")
        async with open_medusa(mit.home.folder) as client:
            schema = schema_of("mit.edu")
            await client.create_schema(schema)
            await client.create_stream(StreamDefinition(STREAM, schema.name))
        yield Siege(mit, utah, evil)


async def _admitted(federation: Federation, participant: str) -> HostileMember:
    """A member without a running peer."""
    home = Home(federation.folder / participant)
    await run_command("init", "--participant", participant, "--home", str(home.folder))
    sponsor = str(federation.peers[0].home.folder)
    root = str(home.root_certificate)
    invited = await run_command("invite", participant, "--root", root, "--home", sponsor)
    await run_command("join", invited.split()[-1], "--home", str(home.folder))
    return HostileMember(Root.load(home.folder), load_membership(home.folder))
