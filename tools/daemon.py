"""The composition of a peer: overlay, catalog, engine, and the listener for clients."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

import trio
from overlay.transport import open_client_listener

from dht.catalog import open_catalog
from engine.api.definitions import DefinitionCalls
from engine.api.flow import FlowCalls
from engine.api.status import StatusCalls
from engine.engine import Engine, open_engine
from overlay.concurrency import one_error
from overlay.errors import NotAuthorisedError
from overlay.events import wall_clock
from overlay.files import read_secret
from overlay.identity import Identity
from overlay.membership_file import load_membership
from overlay.node import Overlay, open_overlay
from overlay.rpc import Caller, Service
from tools.config import Config
from tools.home import Home, Running
from tools.messages import ADMIT, Admit, Admitted


async def run_peer(home: Home, config: Config, on_ready: Callable[[Running], None]) -> None:
    """Run the peer of `home` until SIGTERM or SIGINT.

    Args:
        on_ready: told where it answers, once it does.

    Raises:
        MedusaError: it cannot start: the message names the thing and the mend.
    """
    home.require()
    with home.lock(), one_error():
        try:
            await _run(home, config, on_ready)
        finally:
            home.clear_run()


async def _run(home: Home, config: Config, on_ready: Callable[[Running], None]) -> None:
    identity = Identity.load(home.folder)
    membership = load_membership(home.folder)
    token = read_secret(home.token)
    service = Service()
    async with (
        open_overlay(identity, membership, home.folder, config.overlay, service) as overlay,
        open_catalog(overlay, home.data, config.dht) as catalog,
        open_engine(overlay, catalog, home.data, config.engine, config.spark) as engine,
    ):
        register_calls(engine)
        async with open_client_listener(identity, token, service, config.client.listen) as client:
            running = Running(
                pid=os.getpid(),
                participant=identity.participant,
                peer=identity.peer_id.hex(),
                overlay=overlay.address,
                client=client,
            )
            home.write_run(running)
            on_ready(running)
            await _until_told_to_stop()


def register_calls(engine: Engine) -> None:
    """Put every call of this peer on its service."""
    DefinitionCalls(engine).register()
    FlowCalls(engine).register()
    StatusCalls(engine).register()
    overlay = engine.overlay

    async def admit(caller: Caller, request: Admit, _: bytes) -> Admitted:
        if caller.peer_id is not None:
            raise NotAuthorisedError("only this peer's own clients hand statements over")
        return Admitted(_merge(overlay, request.statements))

    overlay.service.unary(ADMIT, Admit, admit, clients=True, peers=False)


def _merge(overlay: Overlay, statements: tuple[bytes, ...]) -> tuple[str, ...]:
    return tuple(str(news) for news in overlay.learn(statements))


async def _until_told_to_stop() -> None:
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async for _ in signals:
            return
