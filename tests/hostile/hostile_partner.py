"""A peer of the federation that breaks the rules, while all that it does not lie about works."""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable

from msgspec import Struct

from overlay.rpc import Caller, Duplex
from tools.daemon import Peer

Lie = Callable[[Caller, Struct, bytes, Duplex], Awaitable[None]]


def answer_with(peer: Peer, method: str, lie: Lie) -> None:
    """From now on that peer answers a method so."""
    methods = peer.engine.overlay.service._methods
    methods[method] = dataclasses.replace(methods[method], handler=lie)


def say(peer: Peer, method: str, *messages: Struct | bytes) -> None:
    """From now on that peer answers a method with these messages, bytes as they are."""

    async def lie(_: Caller, __: Struct, ___: bytes, duplex: Duplex) -> None:
        for message in messages:
            if isinstance(message, Struct):
                await duplex.send(message)
            else:
                await duplex.send_raw(message)

    answer_with(peer, method, lie)
