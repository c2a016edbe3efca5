"""The reference of the fan-out benchmark, in a process of its own.

python -m medusa.testnet.bench.plain_fanout READERS PARTS ROWS

It prints the port at which it listens, and waits for all readers. Then, once a second, it encodes a
part of ROWS rows and writes it to each of them. At last it prints its CPU seconds for that.
"""

from __future__ import annotations

import sys
import time

import trio

from medusa.engine.streams.ipc import encode
from medusa.testnet.bench.sender import batches


async def write(readers: int, parts: int, rows: int) -> None:
    """Write all parts to all readers."""
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1", backlog=readers)
    print(listener.socket.getsockname()[1], flush=True)
    streams = [await listener.accept() for _ in range(readers)]
    (table,) = batches(rows)
    before, began = time.process_time(), trio.current_time()
    for number in range(parts):
        await trio.sleep_until(began + number)
        body = encode(table)
        async with trio.open_nursery() as nursery:
            for stream in streams:
                nursery.start_soon(stream.send_all, body)
    print(time.process_time() - before, flush=True)
    for stream in streams:
        await stream.aclose()


if __name__ == "__main__":
    trio.run(write, int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
