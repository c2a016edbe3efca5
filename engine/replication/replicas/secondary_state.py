"""What a primary knows of its secondary, and what follows for the streams of the query: how long
they are kept for it, here and where they come from, and how far consumers may read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Final

import trio

from engine.objects.availability import Mode, Recovery
from engine.objects.schema import BEGINNING, END
from engine.replication.following.book import Followers
from engine.replication.query_copy import QueryCopy
from engine.replication.replicas.lag import Lag
from engine.replication.replicas.positions import needed, reached
from engine.replication.stored_query import StoredQuery
from engine.streams.leases import Lease
from engine.streams.log import StreamLog
from engine.streams.retention import Hold
from overlay.errors import NotFoundError

JOIN_S: Final = 60.0
"""How long what is open now is kept for an active secondary that begins there, seconds."""

MAX_LEASES_TOLD: Final = 256
"""Of named subscribers, in one message; the others are told in the next ones."""


class SecondaryState:
    """What is known of the secondary of one query.

    Attributes:
        told: what it was told of the query.
        positions: from where it would go on, even after a restart of its own.
        stored: by stream, how far it has it, where it copies it from us.
        boundaries: by stream, how far it says to be.
        goal: by output, how far it has to come to be caught up.
        modest: it could not get what would serve the slowest consumer, and begins with what we
            have ourselves.
        leases: by stream and subscriber, the boundary that it knows of.
        talking: held while it is talked to.
        earliest: it cannot take the last modification at its boundary: the earliest at which it
            could; BEGINNING: it can, or there is none.
        caught_up: it has had everything at least once, since it was too far behind to wait for.
        lags: by output, how long we have had what it has not.
    """

    def __init__(self) -> None:
        self.talking = trio.Lock()
        self.reset()

    def reset(self) -> None:
        """There is no secondary yet, or another one."""
        self.told: StoredQuery | None = None
        self.earliest = BEGINNING
        self.positions: dict[str, int] = {}
        self.leases: dict[tuple[str, str], int] = {}
        self.caught_up = False
        self.lags: dict[str, Lag] = {}
        self.lost()
        self.modest = False

    def untold(self, leases: Iterable[Lease]) -> tuple[Lease, ...]:
        """Those that it does not know as they are, or some of them."""
        changed = (each for each in leases if self.leases.get(_key(each)) != each.boundary)
        return tuple(islice(changed, MAX_LEASES_TOLD))

    def has_heard(self, leases: Iterable[Lease]) -> None:
        self.leases |= {_key(each): each.boundary for each in leases}

    def lost(self) -> None:
        """It has nothing any more."""
        self.modest = True
        self.stored: dict[str, int] = {}
        self.boundaries: dict[str, int] = {}
        self.goal: dict[str, int] = {}


def _key(lease: Lease) -> tuple[str, str]:
    return lease.stream, lease.subscriber


def secondary_of(query: str) -> Hold:
    """Whom the logs are held for until the secondary has them too."""
    return Hold("secondary", query)


def log_of(running: QueryCopy, stream: str) -> StreamLog:
    """
    Raises:
        NotFoundError: the query neither reads nor makes that stream.
    """
    state = running.logs.get(stream)
    if state is None:
        raise NotFoundError(f"{running.name} has no stream {stream[:256]!a}")
    return state.log


def streams_of(running: QueryCopy) -> tuple[str, ...]:
    return (*running.stored.inputs, *(task.name for task in running.tasks))


def positions(running: QueryCopy, *, modest: bool = False) -> dict[str, int]:
    """From where a secondary that has nothing yet would go on. modest: an active one, with what we
    have of the inputs ourselves; consumers that are far behind are beyond it."""
    tasks = running.plan
    mode = running.stored.availability.mode
    if mode is Mode.AMNESIA:
        inputs = {name: log_of(running, name).boundary for name in running.stored.inputs}
        return {**inputs, **reached(tasks, inputs)}
    if mode is Mode.PASSIVE_STANDBY:  # it copies them: who comes after a takeover finds the past
        safe = {task.name: task.state.log.start for task in running.tasks}
    else:
        own = frozenset((secondary_of(running.name), *(Hold("task", task.name) for task in tasks)))
        safe = {
            task.name: max(task.state.log.needed(own), task.state.log.start)
            for task in running.tasks
        }
    found = needed(tasks, safe)
    if mode is Mode.PASSIVE_STANDBY or modest:
        for name in running.stored.inputs:  # what it can have of them, from us
            found[name] = max(found[name], log_of(running, name).start)
    if mode is Mode.ACTIVE_STANDBY and modest:  # and what it can make of that
        inputs = {name: found[name] for name in running.stored.inputs}
        for output, whole in reached(tasks, inputs).items():
            found[output] = max(found[output], whole)
    return found


def hold_for(running: QueryCopy, secondary_state: SecondaryState, known: dict[str, int]) -> None:
    """Keep what a secondary begins with until it has it. known: the positions it is told."""
    mode, holder = running.stored.availability.mode, secondary_of(running.name)
    if mode is Mode.PASSIVE_STANDBY:
        for stream, position in known.items():
            log_of(running, stream).hold(holder, secondary_state.stored.get(stream, position))
    elif mode is Mode.ACTIVE_STANDBY:
        for stream in running.stored.inputs:
            log_of(running, stream).hold(holder, known[stream], trio.current_time() + JOIN_S)


def hold_all(running: QueryCopy) -> None:
    """After a restart it is not known yet what the secondary has."""
    if running.stored.availability.mode is Mode.PASSIVE_STANDBY:
        for stream in streams_of(running):
            log = log_of(running, stream)
            log.hold(secondary_of(running.name), log.start)


def hold_no_more(running: QueryCopy) -> None:
    """There is no secondary."""
    for stream in streams_of(running):
        log_of(running, stream).release(secondary_of(running.name))


def has_copied(
    running: QueryCopy, secondary_state: SecondaryState, stream: str, boundary: int
) -> None:
    """A passive secondary has a stream up to there, and keeps it."""
    secondary_state.stored[stream] = boundary
    log_of(running, stream).hold(secondary_of(running.name), boundary)


def let_go_upstream(
    running: QueryCopy, secondary_state: SecondaryState, followers: Followers
) -> None:
    """Producers keep what a secondary may need that does not read them itself."""
    mode = running.stored.availability.mode
    for name in running.stored.inputs:
        keep = END
        if mode in {Mode.UPSTREAM_BACKUP, Mode.AMNESIA}:
            keep = (positions(running) | secondary_state.positions)[name]
        elif mode is Mode.PASSIVE_STANDBY and running.stored.term.secondary:
            keep = _checkpointed(running, secondary_state, name)
        followers.need(name, running.name, keep)


def _checkpointed(running: QueryCopy, secondary_state: SecondaryState, name: str) -> int:
    """After which boundary the secondary would read an input from its producer."""
    readers = [task for task in running.plan if name in task.inputs]
    if any(task.window is not None for task in readers):
        return secondary_state.stored.get(name, BEGINNING)
    return min(secondary_state.stored.get(task.name, BEGINNING) for task in readers)


def release(running: QueryCopy, secondary_state: SecondaryState, now: float) -> bool:
    """Let consumers have what the secondary has; everything where that need not be, or where they
    would have to wait for longer than the bound of the query. now: on trio's clock, seconds.

    Returns:
        whether that secondary is not waited for any more, until it has caught up.
    """
    availability = running.stored.availability
    gated = (
        availability.mode is Mode.PASSIVE_STANDBY
        and availability.recovery is Recovery.PRECISE
        and running.stored.term.secondary
    )
    if not gated:
        open_gates(running)
        return False
    stored = {task.name: secondary_state.stored.get(task.name, BEGINNING) for task in running.tasks}
    if not secondary_state.caught_up:
        # the goal stands still: one that runs after a stream in haste would never be caught up
        secondary_state.goal = secondary_state.goal or {
            task.name: task.boundary for task in running.tasks
        }
        secondary_state.caught_up = all(
            stored[name] >= goal for name, goal in secondary_state.goal.items()
        )
        if secondary_state.caught_up:
            for task in running.tasks:
                task.state.shut(stored[task.name])
    elif _is_overdue(running, secondary_state, stored, now):
        secondary_state.caught_up, secondary_state.goal = False, {}
        open_gates(running)
        return True
    else:
        for task in running.tasks:
            task.state.open_gate(stored[task.name])
    return False


def _is_overdue(
    running: QueryCopy, secondary_state: SecondaryState, stored: Mapping[str, int], now: float
) -> bool:
    """Whether consumers have waited for the secondary for longer than they asked to wait."""
    lags = {task.name: secondary_state.lags.setdefault(task.name, Lag()) for task in running.tasks}
    for task in running.tasks:
        lags[task.name].note(task.boundary, now)
    longest_s = max(lag.over(stored[name], now) for name, lag in lags.items())
    asked = running.stored.availability  # they wait for a checkpoint in any case
    return bool(asked.bound_s) and longest_s > asked.bound_s + asked.checkpoint_s


def computed(running: QueryCopy, secondary_state: SecondaryState) -> dict[str, int]:
    """By output, the boundary up to which nobody will compute it again, whoever takes over."""
    found = {task.name: task.boundary for task in running.tasks}
    stored = running.stored
    if stored.availability.mode is Mode.NONE:
        return found
    others = [positions(running)]
    if stored.term.secondary:
        others.append(secondary_state.positions)
        if stored.availability.mode in {Mode.ACTIVE_STANDBY, Mode.PASSIVE_STANDBY}:
            others.append(secondary_state.boundaries)
    return {
        name: min(at, *(other.get(name, BEGINNING) for other in others))
        for name, at in found.items()
    }


def released(running: QueryCopy, secondary_state: SecondaryState) -> dict[str, int]:
    """By stream, the boundary after which a secondary that has only what producers keep for it can
    come to have it."""
    if running.stored.availability.mode is not Mode.UPSTREAM_BACKUP:
        return {}
    state = positions(running) | secondary_state.positions
    inputs = {name: state[name] for name in running.stored.inputs}
    return inputs | reached(running.plan, inputs)


def open_gates(running: QueryCopy) -> None:
    for task in running.tasks:
        task.state.open_gate(END)
