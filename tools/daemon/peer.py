"""The composition of a peer: overlay, catalog, engine, and the listener for clients."""

from __future__ import annotations

import gc
import os
import platform
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Final

import trio

from medusa.dht.catalog import open_catalog
from medusa.engine.api import calls
from medusa.engine.api.serving import PeerService
from medusa.engine.engine import Engine, open_engine
from medusa.engine.functions.allowed import Functions
from medusa.engine.replication.restored import begin_again, is_restored
from medusa.engine.streams.config import Timing
from medusa.engine.streams.store.freezing import FrozenLog, freeze, freeze_stream
from medusa.engine.tasks.execution import OpenExecutor
from medusa.overlay.addresses import Address
from medusa.overlay.clients import Clients, open_client_listener
from medusa.overlay.concurrency import next_beat, one_error
from medusa.overlay.errors import (
    InternalError,
    InvalidInputError,
    MedusaError,
    NotAuthorisedError,
    NotFoundError,
)
from medusa.overlay.events import wall_clock
from medusa.overlay.identity import Identity
from medusa.overlay.log import LOGGER
from medusa.overlay.node.node import Overlay, open_overlay
from medusa.overlay.rpc import Caller
from medusa.overlay.troubles import Reason, Troubles
from medusa.tools.daemon.reloading import Reloading, live_settings
from medusa.tools.daemon.renewal import renew_at_start, renewing
from medusa.tools.daemon.scopes import SCOPES
from medusa.tools.home.config import Config, XmlRpcConfig
from medusa.tools.home.federation import enter, load_federation
from medusa.tools.home.folder import Home, Running
from medusa.tools.home.frozen import MAX_FROZEN_S, FrozenFolders, frozen_folders
from medusa.tools.home.log_file import open_log
from medusa.tools.home.messages import (
    ADMIT,
    FREEZE,
    LEAVE,
    Admit,
    Admitted,
    Freeze,
    Frozen,
    Leave,
    Left,
)
from medusa.tools.home.token_file import LiveTokens
from medusa.tools.market.opening import open_market

SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""The signals that a peer acts on."""

DISTRIBUTION: Final = "medusa-federation"

LOOK_S: Final = 1.0
"""Seconds between two checks for faults that people must mend. A user who has just started the peer
still watches its terminal, and may not read the log or the monitor."""

SWITCH_S: Final = 0.0005
"""Seconds for which a thread that runs Python keeps the interpreter from other threads. The event
loop needs it back some twenty times for each post. Measured, while threads read documents: the
slowest hundredth of posts took 270 to 370 ms with Python's 5 ms, and takes 95 to 130 ms."""


async def run_peer(
    home: Home,
    load: Callable[[], Config],
    on_ready: Callable[[Running], None],
    warn: Callable[[str], None],
) -> None:
    """Run the peer of `home` until SIGTERM or SIGINT; SIGHUP has it read its settings again.

    Args:
        load: reads the settings.
        on_ready: called with the peer's addresses once it answers.
        warn: called, for the terminal, with each fault that people must mend.

    Raises:
        MedusaError: it cannot start: the message names the thing and the mend.
    """
    home.require()
    config = load()
    with open_log(home.log_file, config.log) as set_log, _end_noted():
        renew_at_start(home, wall_clock())
        await enter(home, load_federation(home), config.overlay.bootstrap)
        if is_restored(home.data):
            up_to_s = config.engine.timing.restored_ask_s
            warn(f"restored from a backup: asks the other peers first, for up to {up_to_s:g} s")
        async with (
            open_peer(home, config) as peer,
            reporting(peer.engine.overlay.troubles, warn),
        ):
            # signals are received before anybody learns that the peer runs
            with trio.open_signal_receiver(*SIGNALS) as signals:
                on_ready(peer.running)
                # The objects loaded so far stay, so the collector need not scan them for every few
                # thousand messages. Measured: a fifth of the CPU of a peer that streams.
                gc.collect()
                gc.freeze()
                sys.setswitchinterval(SWITCH_S)
                live = live_settings(peer.engine)
                live |= dict.fromkeys(("log.level", "log.format"), lambda new: set_log(new.log))
                events = peer.engine.overlay.events
                reloading = Reloading(config, load, live, events)
                while (told := signal.Signals(await anext(signals))) is signal.SIGHUP:
                    await reloading.reload()
            events.note("info", f"stops: {told.name}")


@asynccontextmanager
async def reporting(troubles: Troubles, warn: Callable[[str], None]) -> AsyncIterator[None]:
    """During the block, check for troubles, and report each one once when it begins."""

    async def watch() -> None:
        told: set[tuple[Reason, str]] = set()
        while True:
            now = troubles.now()
            for trouble in now:
                if (trouble.reason, trouble.thing) not in told:
                    warn(trouble.sentence)
            told = {(trouble.reason, trouble.thing) for trouble in now}
            await trio.sleep_until(next_beat(LOOK_S))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(watch)
        yield
        nursery.cancel_scope.cancel()


@contextmanager
def _end_noted() -> Iterator[None]:
    """Log the exception that ends the process."""
    about = f"medusa {version(DISTRIBUTION)}, Python {platform.python_version()}, pid {os.getpid()}"
    LOGGER.info("starts: %s", about)
    try:
        yield
    except MedusaError as error:
        LOGGER.error("ended: %s", error, exc_info=isinstance(error, InternalError))
        raise
    except Exception:
        LOGGER.exception("ended by a fault of ours")
        raise
    LOGGER.info("ended, as it was told")


@dataclass(frozen=True)
class Peer:
    """A running peer. running: its process and addresses."""

    engine: Engine
    running: Running


@asynccontextmanager
async def open_peer(
    home: Home,
    config: Config,
    execution: OpenExecutor | None = None,
    wall: Callable[[], float] = wall_clock,
) -> AsyncIterator[Peer]:
    """Run the peer of `home` until the block ends.

    Args:
        execution: the engine of its tasks; by default its own Spark.
        wall: its machine's clock, seconds since the epoch.

    Raises:
        MedusaError: it cannot start, or the block raised one; alone, never in a group.
    """
    home.require()
    with home.lock(), one_error():
        try:
            async with _open(home, config, execution, wall) as peer:
                home.write_run(peer.running)
                yield peer
        finally:
            home.clear_run()


@asynccontextmanager
async def _begun_again(home: Home, overlay: Overlay, timing: Timing) -> AsyncIterator[None]:
    """Let a restored home catch up with other peers before the engine starts."""
    await begin_again(home.data, overlay, timing)
    yield


@asynccontextmanager
async def _open(
    home: Home, config: Config, execution: OpenExecutor | None, wall: Callable[[], float]
) -> AsyncIterator[Peer]:
    identity = Identity.load(home.folder)
    membership = load_federation(home)
    service = PeerService(SCOPES)
    home.client_token()  # so that an unreadable token is reported before anything starts
    async with (
        open_overlay(
            identity, membership, home.folder, config.overlay, service, wall=wall
        ) as overlay,
        open_catalog(overlay, home.folder, config.dht) as catalog,
        _begun_again(home, overlay, config.engine.timing),
        open_engine(
            overlay,
            catalog,
            home.data,
            config.engine,
            config.spark,
            logs=home.logs,
            execution=execution,
            functions=Functions(config.functions.allowed),
        ) as engine,
        frozen_folders(home) as frozen,
    ):
        clients = Clients(LiveTokens(home, overlay.events), overlay.clock)
        register_calls(engine, clients, home, frozen)
        async with (
            open_market(engine, home.folder, config.contracts),
            open_client_listener(
                identity,
                clients,
                service,
                config.client.listen,
                overlay.events,
                renewed=overlay.renewed,
                memory=overlay.memory.messages,
            ) as client,
            _xmlrpc_listener(identity, clients, service, config.xmlrpc, overlay) as xmlrpc,
            service.answering(),
            renewing(home, overlay),
        ):
            engine.maintain()
            yield Peer(
                engine,
                Running(
                    pid=os.getpid(),
                    participant=identity.participant,
                    peer=identity.peer_id.hex(),
                    overlay=overlay.address,
                    client=client,
                    xmlrpc=xmlrpc,
                ),
            )


@asynccontextmanager
async def _xmlrpc_listener(
    identity: Identity,
    clients: Clients,
    service: PeerService,
    config: XmlRpcConfig,
    overlay: Overlay,
) -> AsyncIterator[Address | None]:
    """Serve clients that speak XML-RPC, if the settings say where; yields the address."""
    if config.listen is None:
        yield None
        return
    from medusa.tools.xmlrpc.listener import (
        open_xmlrpc_listener,
    )  # imported here: most peers serve no XML-RPC

    async with open_xmlrpc_listener(
        identity,
        clients,
        service,
        config,
        overlay.events,
        renewed=overlay.renewed,
        memory=overlay.memory.messages,
        threads=overlay.threads,
    ) as address:
        yield address


def register_calls(engine: Engine, clients: Clients, home: Home, frozen: FrozenFolders) -> None:
    """Register every call of this peer on its service. clients: listed in its status."""
    calls.register_calls(engine, clients)
    overlay = engine.overlay

    async def admit(caller: Caller, request: Admit, _: bytes) -> Admitted:
        if caller.peer_id is not None:
            raise NotAuthorisedError("only this peer's own clients hand statements over")
        return Admitted(_merge(overlay, request.statements))

    async def leave(caller: Caller, request: Leave, _: bytes) -> Left:
        if caller.peer_id is not None:
            raise NotAuthorisedError("only this peer's own clients have it leave")
        return Left(await overlay.learn_and_notify(request.statements))

    async def freeze_files(_caller: Caller, request: Freeze, _: bytes) -> Frozen:
        if not 0 < request.seconds <= MAX_FROZEN_S:
            raise InvalidInputError(f"a frozen folder lasts up to {MAX_FROZEN_S:g} seconds")
        if request.stream:
            fill = partial(freeze_known, engine, request.stream)
            folder, found = await frozen.make(fill, request.seconds)
            return Frozen(str(folder), found.after, found.upto, found.rows)
        await overlay.save()  # a restored peer asks the peers in its file for their boundaries
        folder, _none = await frozen.make(partial(freeze, engine.store, home.data), request.seconds)
        return Frozen(str(folder))

    overlay.service.unary(ADMIT, Admit, admit, clients=True, peers=False)
    overlay.service.unary(LEAVE, Leave, leave, clients=True, peers=False)
    overlay.service.unary(FREEZE, Freeze, freeze_files, clients=True, peers=False)


async def freeze_known(engine: Engine, stream: str, into: Path) -> FrozenLog:
    """See `freeze_stream`. If this peer does not keep the stream, the error says whether the stream
    exists."""
    try:
        return await freeze_stream(engine.store, stream, into)
    except NotFoundError:
        if all(kept.name != stream for kept in engine.store.all()):
            await engine.directory.entry(stream)
        raise


def _merge(overlay: Overlay, statements: tuple[bytes, ...]) -> tuple[str, ...]:
    return tuple(str(news) for news in overlay.learn(statements))
