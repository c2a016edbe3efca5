"""A consumer's view of a move: a windowed task with half a million rows of state moves to another
peer and back under traffic. The reference is a Structured Streaming query restarted from its
checkpoint.

* There are two real peers of one participant. A client posts at the owner and another one
  subscribes there.
* Before every move away the worker is restarted, so that it has never run the task and its Spark
  does not run either (the reference's does).
* A stall is the longest gap between epochs around a move, less the longest one at the same phase of
  minutes without a move: the windows' answers are due then, and take time anyway.
* The answers are compared with DuckDB's.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import trio

from medusa.engine.replication.moves.messages import MoveRecord, MoveTask
from medusa.overlay.clients import open_client
from medusa.overlay.concurrency import one_error
from medusa.overlay.errors import InternalError
from medusa.testnet.bench import Entry, entry
from medusa.testnet.bench.minutes import (
    EPOCH_S,
    MINUTE_S,
    Act,
    Answer,
    Minutes,
    Run,
    Schedule,
    answers_in,
    query,
    schema,
    stream,
)
from medusa.testnet.bench.moving_reference import measure_reference
from medusa.testnet.kit.cast import publish
from medusa.testnet.kit.peers import Federation, Peer, open_federation, participant_name
from medusa.tools.client.async_client import AsyncMedusaClient, Endpoint, open_medusa
from medusa.tools.home.folder import Home

MOVES: Final = 5
"""Moves each way that count; three minutes of traffic each."""
POSTS: Final = 4 * round(MINUTE_S / EPOCH_S)
"""Posts in a minute: four an epoch."""
STALL_GOAL: Final = 2
"""The goal for a stall, in epochs."""
LOOK_S: Final = 0.1
"""Seconds between two looks at the federation."""
MOVE_S: Final = 120.0
"""Longest duration of a move, seconds: a Spark starts, and the input is transferred."""


def measure() -> Iterator[Entry]:
    """Measure the stalls of moves, in Medusa and in the reference; it takes some seven minutes."""
    minutes = Minutes.make()
    with one_error():
        run = trio.run(measure_moves, minutes, MOVES)
    yield from stalls(run)
    yield against(run, measure_reference(minutes, MOVES))


def stalls(run: Run) -> Iterator[Entry]:
    """The stalls, in epochs."""
    epoch_s = max(EPOCH_S, run.gap_s)
    for act, words in ((Act.OUT, ""), (Act.HOME, ", back to the owner")):
        stall = statistics.median(run.stalls(act))
        yield _entry("epochs", stall / epoch_s, None, f"<= {STALL_GOAL}", words)


def against(ours: Run, theirs: Run) -> Entry:
    """Our stalls against the reference's."""
    out, reference = (statistics.median(each.stalls(Act.OUT)) for each in (ours, theirs))
    what = ", against a restart from a checkpoint"
    return _entry("ms", 1e3 * out, 1e3 * reference, "<= 1.0", what)


def _entry(unit: str, value: float, reference: float | None, goal: str, what: str) -> Entry:
    name = f"stall of a move, 500,000 rows in an open window{what}"
    return entry(name, value, unit, goal, reference)


async def move_task(home: Home, task: str, to: str) -> MoveRecord:
    """Have the owner in `home` move a task to the peer `to` (hex), or home ("").

    Raises:
        MedusaError: the task did not move, or the owner did not confirm the move.
    """
    at = Endpoint.of(home)
    async with open_client(at.address, at.participant, at.root_certificate, at.token) as connection:
        request = MoveTask(task, to)
        return await connection.call("move_task", request, MoveRecord, timeout_s=MOVE_S)


async def measure_moves(minutes: Minutes, moves: int) -> Run:
    """Make `moves` moves each way; measured by the epochs that a subscriber at the owner receives.

    Raises:
        InternalError: an answer was wrong.
        MedusaError: a move failed; a note has the ends of the peers' logs.
    """
    acts = (Act.WARM_UP, Act.WARM_UP, *(Act.OUT, Act.HOME, Act.QUIET) * moves)
    async with open_federation() as federation:
        return await _measure(federation, minutes, acts)


@dataclass
class Consumer:
    """A subscriber. seen: arrival times of the epochs, on trio's clock."""

    client: AsyncMedusaClient
    stream: str
    seen: list[float] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)

    async def receive(self) -> None:
        """Receive until the stream's end."""
        async for epoch in self.client.subscribe(self.stream):
            self.seen.append(trio.current_time())
            self.answers += answers_in(epoch.table)


async def _measure(federation: Federation, minutes: Minutes, acts: Sequence[Act]) -> Run:
    owner = await federation.found(participant_name(0))
    worker = await federation.admit_sibling(owner)
    await federation.together()
    async with open_medusa(owner.home.folder) as poster, open_medusa(owner.home.folder) as client:
        source, work = (
            stream(owner.participant),
            query(owner.participant, stream(owner.participant).name),
        )
        await publish(owner, (schema(owner.participant),), (source,), (work,))
        (task,) = work.boxes[-1].outputs
        consumer = Consumer(client, task)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(consumer.receive)
            schedule = Schedule(trio.current_time())
            nursery.start_soon(_post, poster, minutes, schedule, len(acts))
            for minute, act in enumerate(acts):
                if act in {Act.OUT, Act.HOME}:
                    await schedule.until_move(minute)
                    await move_task(owner.home, task, _target(act, worker))
                await schedule.until_seen(minute)
                if act in {Act.WARM_UP, Act.QUIET} and minute + 1 < len(acts):
                    await worker.restart()
    _check(consumer, minutes, len(acts) + 1)
    return Run(schedule.began, consumer.seen, acts)


def _target(act: Act, worker: Peer) -> str:
    return "" if act is Act.HOME else worker.id


async def _post(client: AsyncMedusaClient, minutes: Minutes, schedule: Schedule, acts: int) -> None:
    """Post every part when it is due; after the last act, parts of one more minute are observed."""
    source = stream(participant_name(0)).name
    for minute in range(acts + 1):
        for number in range(POSTS):
            await schedule.until_part(minute, POSTS, number)
            await client.post_event(source, minutes.part(minute, POSTS, number))
    await client.post_event(source, None, end=True)
    await client.flush()


def _check(consumer: Consumer, minutes: Minutes, count: int) -> None:
    wanted = [answer for minute in range(count) for answer in minutes.answers(minute)]
    if sorted(consumer.answers) != wanted:
        raise InternalError(
            f"{len(consumer.answers)} answers, {len(wanted)} expected: they are not the same"
        )
