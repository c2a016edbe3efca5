"""Datagrams without end: garbage, from unknown senders, in an honest peer's name, or in the
attacker's own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import trio
from hostile_siege import Siege

from medusa.overlay.datagrams import DOMAIN, Channel
from medusa.overlay.encoding import encode
from medusa.overlay.events import wall_clock
from medusa.overlay.identity import Identity
from medusa.overlay.signing import signed
from medusa.tools.daemon.peer import open_peer
from medusa.tools.home.config import load_config

SENDER = """
import socket, sys
host, port, size = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
data = sys.stdin.buffer.read(size)
out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
print("ready", flush=True)
while True:
    try:
        out.sendto(data, (host, port))
    except OSError:
        pass
"""


@contextmanager
def flood(siege: Siege, data: bytes) -> Iterator[None]:
    """Send one datagram from a separate process as fast as it can."""
    host, port = siege.address
    command = [sys.executable, "-c", SENDER, host, str(port), str(len(data))]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(data)
        process.stdin.flush()
        assert process.stdout.readline() == b"ready\n"
        try:
            yield
        finally:
            process.kill()


def sealed(sender: bytes, identity: Identity, federation: str, payload: bytes) -> bytes:
    """Return a datagram that names a sender, signed by another one."""
    body = encode((sender, int(wall_clock() * 1e6), Channel.GOSSIP, payload))
    return encode(signed(identity.private_key, DOMAIN + federation, body))


@pytest.mark.parametrize("kind", ["garbage", "unknown"])
async def test_datagrams_of_strangers(siege: Siege, seconds: float, kind: str) -> None:
    unknown = siege.evil.peer().identity
    federation = siege.evil.membership.federation
    data = {
        "garbage": os.urandom(1200),
        "unknown": sealed(unknown.peer_id, unknown, federation, os.urandom(1000)),
    }[kind]
    async with siege.watched(seconds) as watch:
        with flood(siege, data):
            await trio.sleep(seconds)
    print(watch)
    watch.check()


@pytest.mark.parametrize("kind", ["forged", "own"])
async def test_datagrams_that_cost_the_check_of_a_signature(
    siege: Siege, seconds: float, kind: str
) -> None:
    """The datagrams come from a known member, or in the name of an honest one."""
    async with (
        siege.watched(seconds) as watch,
        open_peer(siege.evil_home, load_config(siege.evil_home)),
    ):
        await siege.acquainted(3)
        evil = Identity.load(siege.evil_home.folder)
        assert siege.utah.running is not None
        utah = bytes.fromhex(siege.utah.running.peer)
        sender = {"own": evil.peer_id, "forged": utah}[kind]
        with flood(siege, sealed(sender, evil, siege.evil.membership.federation, bytes(1000))):
            await trio.sleep(seconds)
    print(watch)
    watch.check()
