"""Honest clients in a process of their own, so that an attacker's work is not in what they measure.

`python hostile_watch.py POSTING_HOME READING_HOME STREAM FIRST` reads the stream at one peer. When
its standard input has the line `begin`, it posts tuples to the stream at the other peer, from the
number FIRST on, and prints `ready` once it has read the first; at the line `end` it prints a `Seen`
as JSON. At the end of a `brief` attack it first continues to post until the `Seen` suffices.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import trio

sys.path += [str(Path(__file__).parents[1] / "engine"), *map(str, Path(__file__).parents[1:3])]

from engine_peers import send_rows

from medusa.overlay.errors import MedusaError
from medusa.tools.client.async_client import AsyncMedusaClient, open_medusa

POST_EVERY_S = 0.02
ASK_EVERY_S = 0.25

BEGIN, END, END_OF_BRIEF = "begin", "end", "end brief"


class Seen(msgspec.Struct):
    """
    Attributes:
        posts: seconds until each post was answered.
        deliveries: seconds from a post until its tuple was read.
        refused: errors of posts.
        dead: the peers that an honest peer declared dead, each with the observer.
    """

    posts: list[float] = []
    deliveries: list[float] = []
    refused: list[str] = []
    dead: list[str] = []

    @property
    def suffices(self) -> bool:
        """Whether the watch has two answered posts, the least number for a p99, and a delivery."""
        return len(self.posts) > 1 and bool(self.deliveries)


@dataclass
class Honest:
    """
    Attributes:
        seen: the observations since the order to begin.
        posted: the times at which unread tuples were posted.
        delivered: an event that the next read tuple sets; it is then replaced.
        last: the number of the last tuple.
    """

    poster: AsyncMedusaClient
    reader: AsyncMedusaClient
    stream: str
    last: int
    seen: Seen = field(default_factory=Seen)
    posted: dict[int, float] = field(default_factory=dict)
    delivered: trio.Event = field(default_factory=trio.Event)

    async def obey(self) -> None:
        """Carry out the orders on standard input, until it ends."""
        while await _told(BEGIN):
            self.seen = Seen()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._post)
                await self.delivered.wait()  # the first posts connect, and look the stream up
                self.seen = Seen()
                nursery.start_soon(self._ask, self.poster)
                nursery.start_soon(self._ask, self.reader)
                print("ready", flush=True)
                if await _told(END_OF_BRIEF):
                    while not self.seen.suffices:
                        await self.delivered.wait()
                nursery.cancel_scope.cancel()
            print(msgspec.json.encode(self.seen).decode(), flush=True)

    async def _post(self) -> None:
        while True:
            self.last += 1
            at = self.posted[self.last] = trio.current_time()
            seen = self.seen
            try:
                await send_rows(self.poster, self.stream, [(self.last, self.last)])
            except MedusaError as error:
                seen.refused.append(str(error))
            else:
                seen.posts.append(trio.current_time() - at)
            await trio.sleep(POST_EVERY_S)

    async def read(self) -> None:
        async for epoch in self.reader.subscribe(self.stream):
            now = trio.current_time()
            for number in epoch.table.column("value").to_pylist():
                if number in self.posted:
                    self.seen.deliveries.append(now - self.posted.pop(number))
            self.delivered.set()
            self.delivered = trio.Event()

    async def _ask(self, client: AsyncMedusaClient) -> None:
        """Ask the peer whether it believes the others to be alive."""
        while True:
            snapshot = await client.status()
            by = next(peer.participant for peer in snapshot.peers if peer.peer == snapshot.by)
            for peer in snapshot.peers:
                if peer.health == "dead" and peer.participant in {"mit.edu", "utah.edu"}:
                    self.seen.dead.append(f"{by} takes {peer.participant} for dead")
            await trio.sleep(ASK_EVERY_S)


async def _told(what: str) -> bool:
    line = await trio.to_thread.run_sync(sys.stdin.readline, abandon_on_cancel=True)
    return line.strip() == what


async def main(posting: str, reading: str, stream: str, first: int) -> None:
    async with (
        open_medusa(posting, producer=f"honest-{first}") as poster,
        open_medusa(reading) as reader,
        trio.open_nursery() as nursery,
    ):
        honest = Honest(poster, reader, stream, first)
        nursery.start_soon(honest.read)
        await honest.obey()
        nursery.cancel_scope.cancel()


if __name__ == "__main__":
    trio.run(main, *sys.argv[1:4], int(sys.argv[4]))
