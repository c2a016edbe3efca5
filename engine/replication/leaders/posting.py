"""Takes posts to a stream with replicas, and answers each once all replicas have it.

A post does not wait for the answer to the one before it: a client's whole window of posts is on its
way to the replicas at a time.
"""

from __future__ import annotations

from typing import Final

import trio

from engine.replication.leaders.keeper import Keeper
from engine.streams.acceptance import Writer
from engine.streams.journal import Position
from engine.streams.messages import Post, Posted
from engine.streams.store import StreamStore
from overlay.concurrency import until_one_ends
from overlay.rpc import Duplex, EndOfCall

UNANSWERED: Final = 64
"""Posts of one call that wait for the replicas: four windows of a poster."""


async def take_posts(keeper: Keeper, store: StreamStore, writer: Writer, duplex: Duplex) -> None:
    """Take the posts of one call, at the leader.

    Raises:
        UnavailableError: this peer is the leader no more, or its replicas do not answer.
        MedusaError: see `Source.post`.
    """
    state = await keeper.open()
    accepted, to_answer = trio.open_memory_channel[tuple[Posted, Position]](UNANSWERED)

    async def take() -> None:
        async with accepted:
            while True:
                try:
                    post, body = await duplex.receive(Post)
                except EndOfCall:
                    break
                posted = await store.intake.post(state, writer, post, body)
                # A duplicate, too, waits for everything before it.
                await accepted.send((posted, keeper.logs.leader.source.position))
        await trio.sleep_forever()  # the answers still go

    async def answer() -> None:
        async for posted, upto in to_answer:
            await keeper.acknowledged(upto)
            await duplex.send(posted)

    await until_one_ends(take, answer, keeper.suspended)
