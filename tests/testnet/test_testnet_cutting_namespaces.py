"""Links that the kernel cuts: sockets in network namespaces, which leave nothing behind."""

from __future__ import annotations

import ctypes
import os
import shutil
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import trio
from deadline import DEADLINE_S
from namespaces_here import skip_without_namespaces

from medusa.overlay.errors import UnavailableError
from medusa.testnet.cutting import Cut, namespaces
from medusa.testnet.cutting.namespaces import PREFIX, open_namespaces

CLONE_NEWNET = 0x40000000
UNHEARD_S = 0.3
"""Veths deliver within microseconds: a datagram that has not arrived after this time is
lost."""


@pytest.fixture(scope="module")
def possible() -> None:
    skip_without_namespaces()


needs_namespaces = pytest.mark.usefixtures("possible")


def socket_in(namespace: str, kind: socket.SocketKind) -> trio.socket.SocketType:
    """A socket belongs to the namespace of its thread at its creation."""
    made: list[socket.socket] = []

    def make() -> None:
        with Path("/run/netns", namespace).open() as file:
            assert ctypes.CDLL(None).setns(file.fileno(), CLONE_NEWNET) == 0
        made.append(socket.socket(socket.AF_INET, kind))

    thread = threading.Thread(target=make)  # a thread that trio does not use again
    thread.start()
    thread.join()
    return trio.socket.from_stdlib_socket(made[0])


def left(slot: int) -> list[str]:
    """Return the namespaces and veths that remain of a slot."""
    listed = subprocess.run(["ip", "netns", "list"], check=True, capture_output=True, text=True)
    names = [line.split()[0] for line in listed.stdout.splitlines() if line]
    names += [name for _, name in socket.if_nameindex()]
    return [name for name in names if name.partition("-")[0] == f"{PREFIX}{slot}"]


async def is_silent(receiver: trio.socket.SocketType) -> bool:
    with trio.move_on_after(UNHEARD_S) as waited:
        await receiver.recv(100)
    return waited.cancelled_caught


@needs_namespaces
async def test_tcp_is_frozen_and_flows_on() -> None:
    async with open_namespaces() as made:
        for peer in ("a", "b"):
            await made.launch(peer)
        with (
            socket_in(made.namespace("a"), socket.SOCK_STREAM) as a,
            socket_in(made.namespace("b"), socket.SOCK_STREAM) as listening,
            socket_in(made.namespace("a"), socket.SOCK_STREAM) as later,
        ):
            await listening.bind((made.host("b"), 0))
            listening.listen()
            await a.connect(listening.getsockname())
            b, (host, _) = await listening.accept()
            assert host == made.host("a")
            with b:
                await made.lose([Cut("a", "b"), Cut("b", "a")])
                await a.send(b"there")
                await b.send(b"back")
                assert await is_silent(a)
                assert await is_silent(b)
                with trio.move_on_after(UNHEARD_S) as waited:
                    await later.connect(listening.getsockname())
                assert waited.cancelled_caught
                await made.lose([])
                with trio.fail_after(DEADLINE_S):
                    assert await b.recv(100) == b"there"
                    assert await a.recv(100) == b"back"
    assert not left(made.slot)


@needs_namespaces
async def test_datagrams_are_lost_in_the_direction_that_is_cut() -> None:
    async with open_namespaces() as made:
        for peer in ("a", "b"):
            await made.launch(peer)
        kind = socket.SOCK_DGRAM
        with socket_in(made.namespace("a"), kind) as a, socket_in(made.namespace("b"), kind) as b:
            await a.bind((made.host("a"), 0))
            await b.bind((made.host("b"), 0))
            await made.lose([Cut("a", "b")])
            await made.launch("c")  # a peer that starts later changes nothing
            for _ in range(3):
                await a.sendto(b"lost", b.getsockname())  # and the sender receives no error
                await b.sendto(b"back", a.getsockname())
                assert await a.recv(100) == b"back"
            assert await is_silent(b)
            await made.lose([])
            await a.sendto(b"there", b.getsockname())
            assert await b.recv(100) == b"there"


@needs_namespaces
async def test_two_at_once_have_slots_of_their_own_and_we_reach_both() -> None:
    async with open_namespaces() as one, open_namespaces() as other:
        assert one.slot != other.slot
        for made in (one, other):
            await made.launch("a")
            await made.launch("b")
            await made.lose([Cut("a", "b"), Cut("b", "a")])
            with socket_in(made.namespace("a"), socket.SOCK_STREAM) as listening:
                await listening.bind((made.host("a"), 0))
                listening.listen()
                stream = await trio.open_tcp_stream(*listening.getsockname())
                await stream.aclose()


@needs_namespaces
async def test_an_error_leaves_nothing() -> None:
    with pytest.raises(ValueError, match="mine"):  # noqa: PT012 - the block is the point
        async with open_namespaces() as made:
            await made.launch("a")
            raise ValueError("mine")
    assert not left(made.slot)


KILLED = """
import subprocess, trio
from medusa.testnet.cutting.namespaces import open_namespaces

async def main():
    async with open_namespaces() as made:
        launch = await made.launch("a")
        child = subprocess.Popen([*launch.prefix, "sleep", "600"])
        print(made.slot, child.pid, flush=True)
        await trio.sleep_forever()

trio.run(main)
"""


@needs_namespaces
async def test_the_next_run_removes_the_namespaces_of_a_killed_one() -> None:
    killed = await trio.lowlevel.open_process(
        [sys.executable, "-c", KILLED], stdout=subprocess.PIPE
    )
    try:
        assert killed.stdout is not None
        async with killed.stdout:
            said = b""
            while not said.endswith(b"\n"):
                said += await killed.stdout.receive_some()
        slot, pid = map(int, said.split())
        async with open_namespaces() as other:
            assert other.slot != slot
            assert f"{PREFIX}{slot}-1" in left(slot)  # the namespaces of running peers remain
        child = os.pidfd_open(pid)
    finally:
        killed.kill()
        await killed.wait()
    try:
        async with open_namespaces():
            with trio.fail_after(DEADLINE_S):
                await trio.lowlevel.wait_readable(child)  # the process in the namespace has ended
    finally:
        os.close(child)
    assert not left(slot)


# -- without namespaces


async def test_namespaces_need_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(shutil, "which", lambda _: "/sbin/ip")
    with pytest.raises(UnavailableError, match=r"needs root: .* without --netns"):
        async with open_namespaces():
            pass


async def test_namespaces_need_the_command_ip(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with pytest.raises(UnavailableError, match="install iproute2"):
        async with open_namespaces():
            pass


async def test_namespaces_need_the_permission_of_the_kernel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Containers have a root user without this permission."""
    stand_in = tmp_path / "ip"
    stand_in.write_text(
        '#!/bin/sh\n[ "$2" = list ] || { echo "not permitted" >&2; exit 1; }\n', encoding="utf-8"
    )
    stand_in.chmod(0o755)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(UnavailableError, match=r"`ip netns add .*`.* failed: not permitted; "):
        async with open_namespaces():
            pass


async def test_no_slot_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(namespaces, "_hold", lambda _: None)
    with pytest.raises(UnavailableError, match="256 testnets run"):
        namespaces._claim()
