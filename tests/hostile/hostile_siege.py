"""Honest peers as processes of their own, besieged by a member, and what is measured meanwhile.

mit.edu has the streams, utah.edu reads them, evil.org was admitted and attacks. While an attack
lasts, honest clients post and subscribe, and the processes are looked at from outside.
"""

from __future__ import annotations

import math
import statistics
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import psutil
import trio
from deadline import DEADLINE_S
from engine_peers import rows, schema_of, send_rows
from hostile_member import HostileMember
from hostile_watch import BEGIN, END, END_OF_BRIEF, Seen

from medusa.engine.objects.definitions import StreamDefinition
from medusa.overlay.addresses import Address
from medusa.overlay.identity import Root
from medusa.overlay.membership_file import load_membership
from medusa.testnet.kit.peers import Federation, Peer, open_federation, run_command
from medusa.tools.client.async_client import open_medusa
from medusa.tools.home.folder import Home

MEMORY_BYTES = 384 * 2**20
"""The setting overlay.memory_bytes of the honest peers."""
SLACK_BYTES = 64 * 2**20
"""The bytes by which the resident memory of a process may exceed `MEMORY_BYTES`."""
P99_S = 1.0
"""Seconds within which 99 of 100 honest posts are answered."""
MEASURED_S = 10.0
"""The shortest attack for which the speed of honest posts is measured: in a shorter one the other
load of the machine decides it."""
FILES = 900
"""Most open files of a process. Connections up to a peer's limit would be 1,024 more."""

PRESET = '[overlay]\npreset = "lan"\nlisten = "127.0.0.1:0"\n'
CONFIG = f"{PRESET}memory_bytes = {MEMORY_BYTES}\n"
WATCH = str(Path(__file__).with_name("hostile_watch.py"))
LOOK_EVERY_S = 0.02
STREAM = "medusa://mit.edu/honest"


@dataclass
class Watch:
    """The observations during an attack.

    Attributes:
        attack_s: the intended duration; the attack takes longer on a busy machine.
        rss: the most resident bytes of an honest peer's process.
        files: the most open files of such a process.
        seen: the observations of the honest clients.
    """

    attack_s: float
    rss: int = 0
    files: int = 0
    seen: Seen = field(default_factory=Seen)

    @property
    def is_brief(self) -> bool:
        """Whether the attack is too short to measure speed."""
        return self.attack_s < MEASURED_S

    @property
    def p99_s(self) -> float:
        posts = self.seen.posts
        return statistics.quantiles(posts, n=100)[98] if len(posts) > 1 else math.inf

    @property
    def slowest_delivery_s(self) -> float:
        return max(self.seen.deliveries, default=math.inf)

    def check(self) -> None:
        """Check the limits that hold in every attack."""
        assert len(self.seen.posts) > 1, f"{len(self.seen.posts)} honest posts were answered"
        assert self.is_brief or self.p99_s < P99_S, f"honest posts took {self.p99_s:.2f} s (p99)"
        assert self.rss <= MEMORY_BYTES + SLACK_BYTES, f"{self.rss / 2**20:.0f} MiB resident"
        assert not self.seen.dead, self.seen.dead
        assert not self.seen.refused, self.seen.refused
        assert self.seen.deliveries, "nothing was delivered"
        assert self.files <= FILES, f"{self.files} open files"

    def __str__(self) -> str:
        posts = self.seen.posts or [math.inf, math.inf]
        return (
            f"rss {self.rss / 2**20:.0f} MiB, files {self.files}, {len(posts)} posts: median "
            f"{1e3 * statistics.median(posts):.1f} ms, p99 {1e3 * self.p99_s:.0f} ms, "
            f"longest {1e3 * max(posts):.0f} ms; {len(self.seen.deliveries)} deliveries, longest "
            f"{1e3 * self.slowest_delivery_s:.0f} ms"
        )


@dataclass
class Siege:
    """
    Attributes:
        mit, utah: the honest peers, running.
        evil: the attacker.
        evil_home: the home of one of the attacker's peers, which does not run.
    """

    mit: Peer
    utah: Peer
    evil: HostileMember
    evil_home: Home
    _large: bool = False
    _honest: subprocess.Popen[str] | None = None
    _first: int = 0

    @property
    def address(self) -> Address:
        """The address of mit.edu's peer, which is attacked."""
        assert self.mit.running is not None
        return self.mit.running.overlay

    async def large(self) -> str:
        """Give a stream of mit.edu with 800,000 tuples, 13 MB on disk, all of them in its log."""
        name = "medusa://mit.edu/large"
        if not self._large:
            async with open_medusa(self.mit.home.folder) as client:
                await client.create_stream(
                    StreamDefinition(name, schema_of("mit.edu").name, readers=("*",))
                )
                for first in range(0, 800_000, 100_000):
                    await client.post_event(
                        name, rows([(t, t) for t in range(first, first + 100_000)])
                    )
                await send_rows(client, name, end=True)
            self._large = True
        return name

    async def acquainted(self, peers: int) -> None:
        """Return once mit.edu's peer knows that many peers."""
        async with open_medusa(self.mit.home.folder) as client:
            with trio.fail_after(DEADLINE_S):
                while len((await client.status()).peers) < peers:  # noqa: ASYNC110
                    await trio.sleep(0.1)

    @asynccontextmanager
    async def watched(self, attack_s: float) -> AsyncIterator[Watch]:
        """Post and read honestly, and watch the processes, while the block lasts."""
        watch = Watch(attack_s)
        try:
            with trio.fail_after(DEADLINE_S):
                said = await self._send_honest(BEGIN)
            assert said == "ready\n", f"the honest clients say {said!r}"
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._look, watch)
                yield watch
                with trio.fail_after(DEADLINE_S):
                    said = await self._send_honest(END_OF_BRIEF if watch.is_brief else END)
                nursery.cancel_scope.cancel()
        except BaseException:
            self.release()  # the honest clients may wait for anything
            raise
        watch.seen = msgspec.json.decode(said, type=Seen)

    async def _send_honest(self, what: str) -> str:
        """Send the honest clients their next order; start them before the first order."""
        process = self._honest = self._honest or self._start_honest()

        def send() -> str:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(f"{what}\n")
            process.stdin.flush()
            return process.stdout.readline()

        return await trio.to_thread.run_sync(send, abandon_on_cancel=True)

    def _start_honest(self) -> subprocess.Popen[str]:
        homes = (str(peer.home.folder) for peer in (self.mit, self.utah))
        self._first += 10_000_000  # later than the posts of earlier clients
        return subprocess.Popen(
            [sys.executable, WATCH, *homes, STREAM, str(self._first)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def release(self) -> None:
        """End the honest clients, if any run."""
        if self._honest is not None:
            self._honest.kill()
            self._honest.communicate()
            self._honest = None

    async def _look(self, watch: Watch) -> None:
        processes = [psutil.Process(peer.pid) for peer in (self.mit, self.utah)]
        while True:
            for process in processes:
                watch.rss = max(watch.rss, process.memory_info().rss)
                watch.files = max(watch.files, process.num_fds())
            await trio.sleep(LOOK_EVERY_S)


@asynccontextmanager
async def open_siege() -> AsyncIterator[Siege]:
    """Give the started honest peers, with the stream that honest clients post to."""
    async with open_federation() as federation:
        federation.config = CONFIG
        mit = await federation.found("mit.edu")
        utah = await federation.admit("utah.edu")
        await utah.ready()
        evil = await admitted(federation, "evil.org")
        async with open_medusa(mit.home.folder) as client:
            schema = schema_of("mit.edu")
            await client.create_schema(schema)
            await client.create_stream(StreamDefinition(STREAM, schema.name, readers=("*",)))
        siege = Siege(mit, utah, *evil)
        try:
            yield siege
        finally:
            siege.release()


async def admitted(federation: Federation, participant: str) -> tuple[HostileMember, Home]:
    """Admit a member that has no running peer."""
    home = Home(federation.folder / participant)
    await run_command("init", "--participant", participant, "--home", str(home.folder))
    sponsor = str(federation.peers[0].home.folder)
    root = str(home.root_certificate)
    invited = await run_command("invite", participant, "--root", root, "--home", sponsor)
    await run_command("join", invited.split()[-1], "--home", str(home.folder))
    home.config.write_text(PRESET)
    return HostileMember(Root.load(home.folder), load_membership(home.folder)), home
