"""Posts that the peer numbers for clients that speak XML-RPC are stored once, whatever breaks."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import trio
from engine_peers import Cluster, Place, make_stream, pairs_of, rows

from medusa.overlay.connection import Connection
from medusa.overlay.errors import BrokenError
from medusa.overlay.rpc import Duplex
from medusa.tools.client.dialling import dial_to
from medusa.tools.client.link import Link, open_link
from medusa.tools.xmlrpc.posting import Posting, PostOptions


class Answers:
    """An open call that loses an answer: the connection breaks when the answer has arrived."""

    def __init__(self, duplex: Duplex, lost: int) -> None:
        self.send = duplex.send
        self._duplex = duplex
        self._left = lost

    async def receive(self, kind: Any) -> Any:
        told = await self._duplex.receive(kind)
        self._left -= 1
        if self._left == 0:
            raise BrokenError("the connection broke")
        return told


class Breaking:
    """A link whose first connection loses an answer."""

    def __init__(self, link: Link, lost: int) -> None:
        self._link = link
        self._lost = lost
        self.opened = 0

    async def connection(self) -> Breaking:
        self._connection: Connection = await self._link.connection()
        return self

    @asynccontextmanager
    async def open(self, *arguments: Any, **options: Any) -> AsyncIterator[Any]:
        self.opened += 1
        async with self._connection.open(*arguments, **options) as duplex:
            yield Answers(duplex, self._lost if self.opened == 1 else 0)


async def stored(cluster: Cluster, mit: Place, stream: str) -> list[tuple[int, int]]:
    client = await cluster.client(mit)
    pulled = await client.receive_events(stream, timeout_s=10)
    assert pulled is not None
    return pairs_of(pulled.table)


async def test_a_post_whose_answer_is_lost_is_stored_once(cluster: Cluster) -> None:
    mit, native = await cluster.founder()
    posting = Posting(mit.id, 20.0)
    table = rows([(1, 1)])
    async with trio.open_nursery() as nursery:
        link = await open_link(dial_to(mit.home.folder, None), nursery)
        # the answer about the number is lost; the answer to the post is lost
        for lost, duplicate in ((1, False), (2, True)):
            stream = await make_stream(native, mit, f"s{lost}")
            breaking: Any = Breaking(link, lost)
            posted = await posting.post(breaking, stream, "owner", table, PostOptions(end=True))
            assert (posted.sequence, posted.duplicate) == (1, duplicate)
            assert breaking.opened == 2
            assert await stored(cluster, mit, stream) == [(1, 1)]
        nursery.cancel_scope.cancel()
