"""Bytes on the wire are counted at both ends."""

from __future__ import annotations

import time

import trio

from medusa.overlay.identity import Identity, Root
from medusa.overlay.tls import client_context, listener_context
from medusa.overlay.tls_stream import TlsStream, Traffic

NOW = time.time()
ROOT = Root.create("mit.edu", NOW)


async def test_both_ends_count_the_same_bytes_the_handshakes_included() -> None:
    left, right = trio.testing.memory_stream_pair()
    here, there = Traffic(), Traffic()
    dialled = TlsStream(left, client_context(ROOT.certificate), server_side=False, traffic=here)
    server = listener_context(Identity.issue(ROOT, NOW))
    accepted = TlsStream(right, server, server_side=True, traffic=there)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(dialled.do_handshake)
        nursery.start_soon(accepted.do_handshake)
    greeted = here.sent
    assert 0 < greeted < 10_000
    data = bytes(100_000)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(dialled.send_all, data)
        left_over = len(data)
        while left_over:
            left_over -= len(await accepted.receive_some())
    assert here.sent == there.received
    assert len(data) < here.sent - greeted < 1.01 * len(data)
    assert 0 < here.received <= there.sent


async def test_streams_that_share_a_count_add_up() -> None:
    shared = Traffic(sent=5)
    left, _ = trio.testing.memory_stream_pair()
    stream = TlsStream(left, client_context(ROOT.certificate), server_side=False, traffic=shared)
    with trio.move_on_after(0.01):
        await stream.do_handshake()
    assert shared.sent > 5
    assert shared.received == 0
