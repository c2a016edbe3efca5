"""The ports of peers that restart."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from medusa.overlay.errors import ConflictError
from medusa.testnet.kit import ports
from medusa.testnet.kit.ports import port_to_keep


def test_a_port_is_free_and_no_outgoing_connection_gets_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ports, "_least_ephemeral", lambda: 1_024)
    assert port_to_keep() == 0, "any: there are none below"
    monkeypatch.undo()
    least = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    port = port_to_keep()
    assert 1_024 <= port < least
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        with socket.socket(type=kind) as taking:
            taking.bind(("127.0.0.1", port))


@pytest.mark.parametrize("kind", [socket.SOCK_STREAM, socket.SOCK_DGRAM])
def test_a_port_that_is_taken_is_not_given(
    monkeypatch: pytest.MonkeyPatch, kind: socket.SocketKind
) -> None:
    with socket.socket(type=kind) as taking:
        taking.bind(("127.0.0.1", 0))
        taken = taking.getsockname()[1]
        monkeypatch.setattr(ports.random.SystemRandom, "randrange", lambda *_: taken)
        with pytest.raises(ConflictError, match="is free on this machine"):
            port_to_keep()
