"""The scenario: three participants' peers, their scripts, their records, and all answers compared.

cert.example has the list; two laboratories have connections. Everything is created by the commands
of ordinary users. The first part of the records is posted; then each participant asks for the
streams of the others; then the list changes, and the rest follows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Final

import pyarrow as pa
import trio

from medusa.engine.objects.schema import BEGINNING, END
from medusa.testnet.kit.answers import to_its_end, tuples_in
from medusa.testnet.kit.cast import all_at_once, enter, home
from medusa.testnet.kit.patience import while_moving
from medusa.testnet.kit.peers import CONFIG, Launcher, Peer, open_federation, run_command
from medusa.testnet.kit.stages import Stages
from medusa.testnet.kit.traffic import POST_ROWS
from medusa.testnet.shared_intrusion.generate import (
    CONNECTIONS,
    LABS,
    Connection,
    Records,
    connection_table,
    generate,
    recorded,
    threat_table,
)
from medusa.testnet.shared_intrusion.oracle import WINDOW_US, found_beacons, right_answers
from medusa.testnet.shared_intrusion.refusals import attempts
from medusa.testnet.shared_intrusion.results import Answer, Found, Result, Update
from medusa.testnet.shared_intrusion.scripts import (
    CAMPAIGNS,
    CERT,
    PARTICIPANTS,
    ROUNDS,
    SIGHTINGS,
    THREATS,
    Step,
    lab_participant,
    script_of,
    stream_of,
)
from medusa.tools.client.async_client import AsyncMedusaClient, open_medusa

STAGES: Final = {
    "records": "connections and a list are made or read",
    "start": "three peers start and find each other",
    "define": "each participant creates its script",
    "before": "the first part is posted",
    "refusals": "each asks for the streams of the others",
    "after": "the list changes, and the rest is posted",
    "answers": "the answers come to their end",
}

PEER_CONFIG: Final = f"{CONFIG}\n[contracts]\ntrade = false\n"
"""medusa.toml of every peer. No market: each laboratory's tasks stay at its own peer."""

COLUMNS: Final[Mapping[str, tuple[str, ...]]] = {
    "listed": ("window_start", "address", "kind", "hosts", "connections"),
    "beacons": ("window_start", "address", "period_s", "hosts", "beats"),
    "sightings": ("lab", "found", "window_start", "address", "hosts", "connections"),
    "campaigns": ("window_start", "address", "labs", "connections"),
}
"""The columns to compare, by the last part of a stream's name."""

Row = tuple[object, ...]


@dataclass(frozen=True)
class Options:
    """The options of a run.

    Attributes:
        connections: the number of ordinary connections of each laboratory, if they are generated.
            traces: the traces of each laboratory; empty: connections are generated.
        keep: leave the homes and logs.
    """

    connections: int = CONNECTIONS
    seed: int = 0
    traces: tuple[Path, ...] = ()
    keep: bool = False


async def run_shared_intrusion(
    options: Options, stages: Stages, links: Launcher | None = None
) -> Result:
    """Run the scenario from nothing to the comparison, and stop everything.

    Args:
        links: decides how the peers are started.

    Raises:
        MedusaError: a peer or a call failed; a note has the ends of the peers' logs.
    """
    with stages.stage("records"):
        records = await trio.to_thread.run_sync(_records, options)
        posted = sum(map(len, records.connections.values()))
        stages.say("records", f"{posted:,} connections of seed {options.seed}")
    # the last moment whose windows are complete before the list changes
    seen_before_us = records.update_us // WINDOW_US * WINDOW_US - 1
    for step in chain(*ROUNDS):
        script_of(step)
    async with (
        open_federation(keep=options.keep, links=links) as federation,
        AsyncExitStack() as stack,
    ):
        federation.config = PEER_CONFIG
        say = partial(stages.say, "start")
        with stages.stage("start"), federation.reports.listening(say):
            peers = await enter(federation, dict(zip(PARTICIPANTS, PARTICIPANTS, strict=True)), say)
        clients = {
            name: await stack.enter_async_context(open_medusa(peer.home.folder))
            for name, peer in peers.items()
        }
        with stages.stage("define"):
            await _define(peers, clients)
            stages.say("define", f"{sum(map(len, ROUNDS))} scripts")
        began = stages.now
        received = _Received(clients)
        async with while_moving("the traffic", received.stands), trio.open_nursery() as nursery:
            for stream, reader in received.wanted:
                nursery.start_soon(received.follow, stream, reader)
            with stages.stage("before"):
                await _post(clients, records, before=True)
                await received.until(SIGHTINGS, CERT, seen_before_us)
                early = _counted(records, received.rows[SIGHTINGS, CERT])
            with stages.stage("refusals"):
                asked = await attempts({who: peer.home.folder for who, peer in peers.items()})
                stages.say("refusals", f"{sum(not each.allowed for each in asked)} refused")
            with stages.stage("after"):
                await _post(clients, records, before=False)
            with stages.stage("answers"):
                for stream, reader in received.wanted:
                    await received.until(stream, reader, END)
            nursery.cancel_scope.cancel()
        return Result(
            PARTICIPANTS,
            options.seed,
            _found(records, received),
            await trio.to_thread.run_sync(_compare, records, received),
            _update(records, early, received.rows[SIGHTINGS, CERT]),
            tuple(asked),
            round(stages.now - began, 3),
            str(federation.folder) if options.keep else None,
        )


def _records(options: Options) -> Records:
    if options.traces:
        return recorded(options.traces, options.seed)
    return generate(options.seed, options.connections)


async def _define(peers: Mapping[str, Peer], clients: Mapping[str, AsyncMedusaClient]) -> None:
    """Create every script, and start its queries."""

    async def take(step: Step) -> None:
        peer, file = peers[step.participant], str(script_of(step))
        arguments = ("query", "create", file, *home(peer))
        await run_command(*arguments, program="medusa", log=peer.log)
        for query in step.queries:
            await clients[step.participant].start_query(stream_of(step.participant, query))

    for steps in ROUNDS:
        await all_at_once(partial(take, step) for step in steps)


class _Received:
    """The rows of streams, as participants receive them.

    Attributes:
        wanted: (stream, the participant that reads it) pairs. rows: the rows of each stream so far.
    """

    def __init__(self, clients: Mapping[str, AsyncMedusaClient]) -> None:
        self._clients = clients
        made = [stream_of(lab_participant(lab), name) for lab in LABS for name in COLUMNS]
        own = [stream for stream in made if stream.endswith(("/listed", "/beacons"))]
        self.wanted = [
            *((stream, CERT) for stream in own),
            *((stream, who) for stream in (SIGHTINGS, CAMPAIGNS) for who in PARTICIPANTS),
        ]
        self.rows: dict[tuple[str, str], list[Row]] = {each: [] for each in self.wanted}
        self._upto = dict.fromkeys(self.wanted, BEGINNING)
        self._moved = trio.Event()

    async def follow(self, stream: str, reader: str) -> None:
        """Receive a stream to its end.

        Raises:
            InternalError: the subscription ended before the stream.
        """
        columns = COLUMNS[stream.rpartition("/")[2]]
        async for epoch in to_its_end(self._clients[reader], stream):
            self.rows[stream, reader] += tuples_in(epoch.table, columns)
            self._upto[stream, reader] = epoch.upto
            self._moved.set()
            self._moved = trio.Event()

    async def until(self, stream: str, reader: str, boundary: int) -> None:
        """Wait until a stream has come up to a boundary, microseconds."""
        while self._upto[stream, reader] < boundary:
            await self._moved.wait()

    def stands(self) -> str:
        """The progress in words."""
        return ", ".join(
            f"{who} has {stream} up to {self._upto[stream, who]}" for stream, who in self.wanted
        )


async def _post(
    clients: Mapping[str, AsyncMedusaClient], records: Records, *, before: bool
) -> None:
    """Post the rows before the change of the list, with a promise; or the rest, and the end."""

    def now(at: int) -> bool:
        return (at < records.update_us) is before

    threats = threat_table([each for each in records.threats if now(each.since)])
    tables = [(CERT, THREATS, [threats])]
    for lab, rows in records.connections.items():
        parts = _parts([row for row in rows if now(row.ts)])
        participant = lab_participant(lab)
        tables.append((participant, stream_of(participant, "conns"), parts))
    for participant, stream, parts in tables:
        client = clients[participant]
        for part in parts:
            await client.post_event(stream, part)
        if before:
            await client.post_event(stream, None, boundary=records.update_us - 1)
        else:
            await client.post_event(stream, None, end=True)
    for client in clients.values():
        await client.flush()


def _parts(rows: Sequence[Connection]) -> list[pa.Table]:
    table = connection_table(rows)
    return [table.slice(start, POST_ROWS) for start in range(0, len(rows), POST_ROWS)]


def _compare(records: Records, received: _Received) -> tuple[Answer, ...]:
    right = right_answers(records)
    wanted: dict[str, Sequence[Row]] = {SIGHTINGS: right.sightings, CAMPAIGNS: right.campaigns}
    for lab in LABS:
        wanted[stream_of(lab_participant(lab), "listed")] = right.listed[lab]
        wanted[stream_of(lab_participant(lab), "beacons")] = right.beacons[lab]
    return tuple(
        _answer(stream, reader, rows, wanted[stream])
        for (stream, reader), rows in received.rows.items()
    )


def _answer(stream: str, reader: str, rows: Sequence[Row], right: Sequence[Row]) -> Answer:
    missing, extra = Counter(right) - Counter(rows), Counter(rows) - Counter(right)
    return Answer(stream, reader, len(rows), len(right), missing.total(), extra.total())


def _found(records: Records, received: _Received) -> tuple[Found, ...]:
    regular = found_beacons(records)
    sightings = received.rows[SIGHTINGS, CERT]

    def counted(lab: str, what: str) -> int:
        return sum(int(str(row[5])) for row in sightings if row[:2] == (lab, what))

    return tuple(
        Found(
            lab,
            len(rows),
            counted(lab, "listed"),
            sum(each.lab == lab for each in regular),
            sum(each.lab == lab for each in regular & set(records.beacons)),
            counted(lab, "beacon"),
        )
        for lab, rows in records.connections.items()
    )


def _update(records: Records, early: int, sightings: Sequence[Row]) -> Update:
    times = [
        row.ts
        for rows in records.connections.values()
        for row in rows
        if row.dst_ip == records.added
    ]
    before = sum(ts < records.update_us for ts in times)
    return Update(records.added, before, len(times) - before, early, _counted(records, sightings))


def _counted(records: Records, sightings: Sequence[Row]) -> int:
    """Connections to the added address that the shared stream counts as listed."""
    return sum(
        int(str(row[5])) for row in sightings if row[1] == "listed" and row[3] == records.added
    )
