"""Honest clients in a process of their own, so that an attacker's work is not in what they measure.

`python hostile_watch.py POSTING_HOME READING_HOME STREAM FIRST` posts tuples to the stream from the
number FIRST on, reads them at the other peer, and prints a `Seen` as JSON once its standard input
ends.
"""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec
import trio

sys.path += [str(Path(__file__).parents[1] / "engine"), *map(str, Path(__file__).parents[1:3])]

from engine_peers import rows

from overlay.errors import MedusaError
from tools.client.async_client import AsyncMedusaClient, open_medusa

POST_EVERY_S = 0.02
ASK_EVERY_S = 0.25


class Seen(msgspec.Struct):
    """
    Attributes:
        posts: seconds until each was answered. deliveries: from a post until its tuple was read.
        refused: errors of posts. dead: what an honest peer took for dead, and who did.
        last: the number of the last tuple.
    """

    posts: list[float]
    deliveries: list[float]
    refused: list[str]
    dead: list[str]
    last: int


async def _post(
    client: AsyncMedusaClient, stream: str, seen: Seen, posted: dict[int, float]
) -> None:
    ready = False
    while True:
        seen.last += 1
        at = posted[seen.last] = trio.current_time()
        try:
            await client.post_event(stream, rows([(seen.last, seen.last)]))
            await client.flush()
        except MedusaError as error:
            seen.refused.append(str(error))
        else:
            if ready:
                seen.posts.append(trio.current_time() - at)
            elif seen.deliveries:  # the first ones connect, and look the stream up
                ready = True
                seen.deliveries.clear()
                print("ready", flush=True)
        await trio.sleep(POST_EVERY_S)


async def _read(
    client: AsyncMedusaClient, stream: str, seen: Seen, posted: dict[int, float]
) -> None:
    async for epoch in client.subscribe(stream, after=seen.last):
        now = trio.current_time()
        for number in epoch.table.column("value").to_pylist():
            if number in posted:
                seen.deliveries.append(now - posted.pop(number))


async def _ask(client: AsyncMedusaClient, seen: Seen) -> None:
    """Whether its peer believes the others to be alive."""
    while True:
        snapshot = await client.status()
        by = next(peer.participant for peer in snapshot.peers if peer.peer == snapshot.by)
        for peer in snapshot.peers:
            if peer.health == "dead" and peer.participant in {"mit.edu", "utah.edu"}:
                seen.dead.append(f"{by} takes {peer.participant} for dead")
        await trio.sleep(ASK_EVERY_S)


async def main(posting: str, reading: str, stream: str, first: int) -> None:
    seen = Seen([], [], [], [], first)
    posted: dict[int, float] = {}
    async with (
        open_medusa(posting, producer=f"honest-{first}") as poster,
        open_medusa(reading) as reader,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(_post, poster, stream, seen, posted)
        nursery.start_soon(_read, reader, stream, seen, posted)
        nursery.start_soon(_ask, poster, seen)
        nursery.start_soon(_ask, reader, seen)
        await trio.to_thread.run_sync(sys.stdin.read, abandon_on_cancel=True)
        nursery.cancel_scope.cancel()
    print(msgspec.json.encode(seen).decode(), flush=True)


if __name__ == "__main__":
    trio.run(main, sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))
