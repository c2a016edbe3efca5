"""The sending end of the path benchmarks, in a process of its own.

python -m testnet.bench.sender post HOME STREAM ROWS     through the federation
python -m testnet.bench.sender tls PORT ROOT ROWS        over one plain TLS connection
"""

from __future__ import annotations

import ssl
import sys
from pathlib import Path

import trio

from engine.streams.ipc import encode_parts
from testnet.bench.workload import batches


async def post(home: Path, stream: str, rows: int) -> None:
    """Post to a stream at the peer of a home, and end it."""
    # Late: the plain sender must not depend on what it is the reference of.
    from tools.client.async_client import open_medusa

    async with open_medusa(home) as client:
        for table in batches(rows):
            await client.post_event(stream, table)
        await client.post_event(stream, None, end=True)
        await client.flush()


async def send_tls(port: int, root: Path, rows: int) -> None:
    """Send length-prefixed Arrow IPC bodies to a listener that the root vouches for."""
    context = ssl.create_default_context(cafile=str(root))
    context.check_hostname = False
    stream = trio.SSLStream(await trio.open_tcp_stream("127.0.0.1", port), context)
    async with stream:
        for table in batches(rows):
            for _, body in encode_parts(table):
                await stream.send_all(len(body).to_bytes(4, "big"))
                await stream.send_all(body)


if __name__ == "__main__":
    how, where, what, count = sys.argv[1:]
    if how == "post":
        trio.run(post, Path(where), what, int(count))
    else:
        trio.run(send_tls, int(where), Path(what), int(count))
