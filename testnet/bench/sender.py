"""The sender and the relay of the path benchmarks, each a process of its own.

python -m medusa.testnet.bench.sender post HOME STREAM ROWS     through the federation
python -m medusa.testnet.bench.sender tls PORT ROOT ROWS        over one plain TLS connection
python -m medusa.testnet.bench.sender relay PORT FOLDER         between two plain TLS connections
"""

from __future__ import annotations

import ssl
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import trio

from medusa.engine.streams.ipc import encode_parts
from medusa.testnet.connections.generate import SPAN_S, generate

BATCH_ROWS: Final = 16_384
"""Rows in one post, some 1.5 MB of Arrow."""


RELAYED_BYTES: Final = 64 * 2**10
"""Bytes that a plain relay gathers before it sends them: with one record of TLS at
a time three hops take a seventh more CPU."""


def batches(rows: int, batch_rows: int = BATCH_ROWS) -> Iterator[pa.Table]:
    """Return that number of connections by ascending ts: the same day repeated, later each time."""
    (day,) = generate(0, networks=1, rows=BATCH_ROWS * 8)
    # a scan may last beyond the span
    day = day.filter(pc.less(day.column("ts"), day.column("ts")[0].as_py() + SPAN_S))
    day = day.slice(0, BATCH_ROWS * 7)
    done, turn = 0, 0
    while True:
        ts = pc.add(day.column("ts"), turn * SPAN_S)
        later = day.set_column(0, day.schema.field("ts"), ts)
        for start in range(0, day.num_rows, batch_rows):
            piece = later.slice(start, min(batch_rows, rows - done))
            if piece.num_rows:
                yield piece
            done += piece.num_rows
            if done >= rows:
                return
        turn += 1


async def post(home: Path, stream: str, rows: int) -> None:
    """Post to a stream at the peer of a home, and end it."""
    # imported here: the plain sender must not depend on the code that it is the reference of
    from medusa.tools.client.async_client import open_medusa

    async with open_medusa(home) as client:
        for table in batches(rows):
            await client.post_event(stream, table)
        await client.post_event(stream, None, end=True)
        await client.flush()


async def send_tls(port: int, root: Path, rows: int) -> None:
    """Send length-prefixed Arrow IPC bodies to a listener with a certificate of that root."""
    async with await _dial_tls(port, root) as stream:
        for table in batches(rows):
            for _, body in encode_parts(table):
                await stream.send_all(len(body).to_bytes(4, "big"))
                await stream.send_all(body)


async def relay_tls(port: int, folder: Path) -> None:
    """Print the port of a listener, and send what one sender sends there to another port.

    Args:
        folder: has the certificate of both listeners, its key and its root.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "peer.crt", folder / "peer.key")
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    print(listener.socket.getsockname()[1], flush=True)
    async with listener, await _dial_tls(port, folder / "root.crt") as further:
        gathered = bytearray()
        async with trio.SSLStream(await listener.accept(), context, server_side=True) as stream:
            while piece := await stream.receive_some():
                gathered += piece
                if len(gathered) >= RELAYED_BYTES:
                    await further.send_all(gathered)
                    gathered.clear()
        await further.send_all(gathered)


async def _dial_tls(port: int, root: Path) -> trio.SSLStream[trio.SocketStream]:
    context = ssl.create_default_context(cafile=str(root))
    context.check_hostname = False
    return trio.SSLStream(await trio.open_tcp_stream("127.0.0.1", port), context)


if __name__ == "__main__":
    how, where, what, *count = sys.argv[1:]
    if how == "post":
        trio.run(post, Path(where), what, int(count[0]))
    elif how == "relay":
        trio.run(relay_tls, int(where), Path(what))
    else:
        trio.run(send_tls, int(where), Path(what), int(count[0]))
