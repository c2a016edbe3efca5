"""A process that posts to the leader in a folder until it is killed, and prints what it posted."""

from __future__ import annotations

import sys
from pathlib import Path

import trio
from engine_streams_data import NOW, P, body, home_in

from medusa.engine.streams.config import SourceConfig
from medusa.engine.streams.messages import Post
from medusa.engine.streams.source.leader import Leader
from medusa.engine.streams.source.post_request import PostRequest


async def move(leader: Leader) -> None:
    while True:
        await leader.wait_ready()
        await leader.advance(NOW)
        await leader.logs.stream.upkeep.compact()


async def main(folder: Path, first: int) -> None:
    config = SourceConfig(slack_us=500, segment_bytes=20_000)
    async with home_in(folder, config) as leader, trio.open_nursery() as nursery:
        nursery.start_soon(move, leader)
        for number in range(first, 10**6):
            rows = [(number * 100 + (i * 37) % 100, number * 20 + i) for i in range(20)]
            await leader.post(PostRequest(P, Post(number), body(rows)), now=NOW)
            print(number, flush=True)


if __name__ == "__main__":
    trio.run(main, Path(sys.argv[1]), int(sys.argv[2]))
