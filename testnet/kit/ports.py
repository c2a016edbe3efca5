"""Ports for peers that are stopped and started again on this machine."""

from __future__ import annotations

import random
import socket
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from medusa.overlay.errors import ConflictError

_LEAST: Final = 10_000
"""The least port: lower ones belong to services, and this machine may start one."""
_EPHEMERAL: Final = 32_768
"""The least port that Linux gives to outgoing connections by default."""
_TRIES: Final = 100


def port_to_keep() -> int:
    """A loopback port that is free now, for TCP and UDP, and below those of outgoing connections:
    none of them takes it while its peer is down. 0, any port, if they may have nearly all ports.

    Raises:
        ConflictError: there seems to be none.
    """
    most = _least_ephemeral()
    if most < 2 * _LEAST:
        return 0
    draw = random.SystemRandom()
    for _ in range(_TRIES):
        port = draw.randrange(_LEAST, most)
        if _is_free(port):
            return port
    raise ConflictError(f"no port from {_LEAST} to {most} is free on this machine")


def _least_ephemeral() -> int:
    try:
        text = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text()
        return min(_EPHEMERAL, int(text.split()[0]))
    except (OSError, ValueError, IndexError):
        return _EPHEMERAL


def _is_free(port: int) -> bool:
    with ExitStack() as stack:
        try:
            for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
                stack.enter_context(socket.socket(type=kind)).bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
