"""The bare package on plain asyncio and loopback: the reference, in a process of its own.

Of its own, because importing trio-asyncio changes asyncio for the whole process.
"""

from __future__ import annotations

import asyncio
import json
import logging
import random
import sys
import time
from typing import Any

from kademlia.network import Server


async def lookups_ms(nodes: int, keys: int, gets: int) -> list[float]:
    """Milliseconds of each lookup of a key by a node that does not hold it."""
    rng = random.Random(1)
    servers = [Server(ksize=8) for _ in range(nodes)]
    for server in servers:
        await server.listen(0, "127.0.0.1")
    port = servers[0].transport.get_extra_info("sockname")[1]
    for server in servers[1:]:
        await server.bootstrap([("127.0.0.1", port)])
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


if __name__ == "__main__":
    logging.disable()
    print(json.dumps(asyncio.run(lookups_ms(*map(int, sys.argv[1:4])))))
