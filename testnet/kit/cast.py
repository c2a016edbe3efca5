"""Common steps of all casts: enter the federation, publish objects, agree on contracts, wait for a
status, measure CPU time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Final

import msgspec
import psutil
import trio
from msgspec import Struct

from medusa.engine.objects.definitions import StreamDefinition
from medusa.engine.objects.query import Query
from medusa.engine.objects.schema import Schema
from medusa.engine.replication.records.status import Snapshot
from medusa.overlay.errors import InternalError, UnavailableError
from medusa.testnet.kit.patience import while_moving
from medusa.testnet.kit.peers import Federation, Peer, run_command
from medusa.tools.client.async_client import AsyncMedusaClient, open_medusa

LOOK_S: Final = 0.1
"""Seconds between two looks at the peers' status."""


async def all_at_once(calls: Iterable[Callable[[], Awaitable[object]]]) -> None:
    async with trio.open_nursery() as nursery:
        for each in calls:
            nursery.start_soon(each)


async def enter(
    federation: Federation, roles: Mapping[str, str], report: Callable[[str], None]
) -> dict[str, Peer]:
    """Start a peer for each role, and wait until they know each other.

    Args:
        roles: for each role, its participant. The first founds the federation. A further peer of a
            participant has its role as its name.
    """
    firsts: dict[str, Peer] = {}
    made: dict[str, Peer] = {}
    for role, participant in roles.items():
        if participant not in firsts:
            make = federation.admit if federation.peers else federation.found
            firsts[participant] = made[role] = await make(participant)
    for peer in firsts.values():
        await peer.ready()

    async def admit(role: str, participant: str) -> None:
        made[role] = await federation.admit_sibling(firsts[participant], role)
        report(f"{len(made)} of {len(roles)} peers")

    await all_at_once(partial(admit, *each) for each in roles.items() if each[0] not in made)
    await federation.together()
    return {role: made[role] for role in roles}


async def publish(
    peer: Peer,
    schemas: Sequence[Schema] = (),
    streams: Sequence[StreamDefinition] = (),
    queries: Sequence[Query] = (),
) -> None:
    """Create these objects at a peer, and start the queries.

    Raises:
        MedusaError: it refuses.
    """
    async with open_medusa(peer.home.folder) as client:
        for schema in schemas:
            await client.create_schema(schema)
        for stream in streams:
            await client.create_stream(stream)
        for query in queries:
            await client.create_query(query)
            await client.start_query(query.name)


async def until_status(client: AsyncMedusaClient, wanted: Callable[[Snapshot], bool]) -> None:
    """Wait until the status of the federation, as a client gets it, is the wanted one."""
    while not wanted(await client.status()):  # noqa: ASYNC110 - of other processes
        await trio.sleep(LOOK_S)


def cpu_seconds(pids: Iterable[int]) -> float:
    """CPU seconds of processes and all their children, ended ones included. Blocking,
    milliseconds."""
    total = 0.0
    for pid in pids:
        with suppress(psutil.NoSuchProcess):
            process = psutil.Process(pid)
            total += _of(process)
            for child in process.children(recursive=True):
                with suppress(psutil.NoSuchProcess):
                    total += _of(child)
    return total


def _of(process: psutil.Process) -> float:
    times = process.cpu_times()
    ended = getattr(times, "children_user", 0.0) + getattr(times, "children_system", 0.0)
    return float(times.user + times.system + ended)


RETRY_S: Final = 0.5
"""Seconds between two tries to accept a proposal that is still under way."""


class Proposed(Struct, frozen=True):
    """The needed fields of `contract propose --json`."""

    contract: str


async def agree(one: Peer, other: Peer, *proposal: str) -> None:
    """One peer's participant proposes (arguments of `medusa-peer`), the other's accepts.

    Raises:
        UnavailableError: a command failed. DeadlineError: the proposal did not arrive.
    """
    contract = proposed_id(await run_command(*proposal, *home(one), log=one.log))
    said = ""
    async with while_moving(f"until {other.participant} accepts {contract[:8]}", lambda: said):
        while True:
            try:
                await run_command("contract", "accept", contract, *home(other), log=other.log)
            except UnavailableError as error:
                said = str(error)
            else:
                return
            await trio.sleep(RETRY_S)


def home(peer: Peer) -> tuple[str, str]:
    return ("--home", str(peer.home.folder))


def proposed_id(said: str) -> str:
    """
    Raises:
        InternalError: that is not the output of `contract propose --json`.
    """
    try:
        return msgspec.json.decode(said, type=Proposed).contract
    except msgspec.MsgspecError as error:
        raise InternalError(f"`contract propose --json` said {said.strip()!r}: {error}") from None
