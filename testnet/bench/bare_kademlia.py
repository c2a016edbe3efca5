"""The bare Kademlia package on plain asyncio and loopback: the reference, in a process of its own
because importing trio-asyncio changes asyncio for the whole process."""

from __future__ import annotations

import asyncio
import json
import logging
import random
import sys
import time
from typing import Any, Final

from kademlia.network import Server

Address = tuple[str, int]

TRY_S: Final = 0.05
"""Seconds that the lossy nodes wait for an answer: on loopback it comes within 1 ms or never, so
the package's 5 s would only make the run longer."""

TOGETHER: Final = 20
"""Keys set and looked up at a time by the lossy nodes, so that waiting costs little."""


async def open_servers(nodes: int) -> list[Server]:
    """Nodes on loopback that do not know each other yet."""
    servers = [Server(ksize=8) for _ in range(nodes)]
    for server in servers:
        await server.listen(0, "127.0.0.1")
    return servers


async def join(servers: list[Server]) -> None:
    """Let all servers join by the first."""
    port = servers[0].transport.get_extra_info("sockname")[1]
    for server in servers[1:]:
        await server.bootstrap([("127.0.0.1", port)])


async def lookups_ms(nodes: int, keys: int, gets: int) -> list[float]:
    """Milliseconds of each lookup by a random node."""
    rng = random.Random(1)
    servers = await open_servers(nodes)
    await join(servers)
    for number in range(keys):
        await rng.choice(servers).set(f"key {number}", b"x" * 300)
    taken = []
    for _ in range(gets):
        server, key = rng.choice(servers), f"key {rng.randrange(keys)}"
        start = time.perf_counter()
        value: Any = await server.get(key)
        taken.append((time.perf_counter() - start) * 1e3)
        assert value == b"x" * 300
    for server in servers:
        server.stop()
    return taken


async def found_share(nodes: int, keys: int, loss: float) -> float:
    """The share of keys, each set by one node, that another node finds while datagrams get lost."""
    rng = random.Random(2)
    servers = await open_servers(nodes)
    for server in servers:
        server.protocol._wait_timeout = TRY_S
        server.protocol.transport = Lossy(server.transport, rng, loss)
    await join(servers)

    async def finds(key: str) -> bool:
        writer, reader = rng.sample(servers, 2)
        try:
            await writer.set(key, key)
        except ValueError:  # the package calls max() of no values if every asked node seemed gone
            return False
        return bool(await reader.get(key) == key)

    found = 0
    for start in range(0, keys, TOGETHER):
        together = range(start, min(start + TOGETHER, keys))
        found += sum(await asyncio.gather(*(finds(f"key {number}") for number in together)))
    for server in servers:
        server.stop()
    return found / keys


class Lossy:
    """A transport that drops a share of its datagrams."""

    def __init__(self, transport: Any, rng: random.Random, loss: float) -> None:  # noqa: ANN401
        self._transport = transport
        self._rng = rng
        self._loss = loss

    def sendto(self, data: bytes, address: Address) -> None:
        if self._rng.random() >= self._loss:
            self._transport.sendto(data, address)


async def main() -> None:
    nodes, keys, gets, lossy_keys = map(int, sys.argv[1:5])
    taken = await lookups_ms(nodes, keys, gets)
    share = await found_share(nodes, lossy_keys, float(sys.argv[5]))
    print(json.dumps({"lookups_ms": taken, "found_share": share}))


if __name__ == "__main__":
    logging.disable()
    asyncio.run(main())
