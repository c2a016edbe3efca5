"""A primary's knowledge of its secondary, and the holds and gates on the query's streams."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Final

import trio

from medusa.engine.objects.availability import Mode, Recovery
from medusa.engine.objects.schema import BEGINNING, END
from medusa.engine.replication.copies.positions import needed, reached
from medusa.engine.replication.copies.query_copy import QueryCopy
from medusa.engine.replication.following.book import Followers
from medusa.engine.replication.records.stored_query import StoredQuery
from medusa.engine.replication.replicas.watch import Lag
from medusa.engine.streams.log.retention import Hold
from medusa.engine.streams.log.stream_log import StreamLog
from medusa.engine.streams.store.subscriptions import Lease
from medusa.overlay.errors import NotFoundError

JOIN_S: Final = 60.0
"""How long present tuples are kept for an active secondary that begins with them, seconds."""

MAX_LEASES_TOLD: Final = 256
"""Leases of named subscribers in one message; the others come with the next messages."""


class SecondaryState:
    """A primary's knowledge of the secondary of one query.

    Attributes:
        sent: the query in the last message to it. positions: for each stream, the boundary from
            which it would continue after a restart. stored: by stream that it copies from this
            peer, the boundary that it has. boundaries: for each stream, the boundary that it
            reports. goal: by output, the boundary at which it counts as caught up. modest: whether
            it begins with the tuples that this peer has, because it could not get those for the
            slowest consumer.
        leases: by stream and subscriber, the boundary that it knows of.
        talking: held during calls to it.
        earliest: BEGINNING: it can apply the last modification at that one's boundary, or there is
            none. Else the earliest boundary at which it could. caught_up: whether it has reached
            `goal` since it was last too far behind for consumers to wait. lags: for each output,
            how long this peer has had tuples that it lacks.
    """

    def __init__(self) -> None:
        self.talking = trio.Lock()
        self.reset()

    def reset(self) -> None:
        """Forget everything: there is no secondary yet, or a new one."""
        self.sent: StoredQuery | None = None
        self.earliest = BEGINNING
        self.positions: dict[str, int] = {}
        self.leases: dict[tuple[str, str], int] = {}
        self.caught_up = False
        self.lags: dict[str, Lag] = {}
        self.lost()
        self.modest = False

    def unsent(self, leases: Iterable[Lease]) -> tuple[Lease, ...]:
        """The leases that have changed since the last message to it, or some of them."""
        changed = (each for each in leases if self.leases.get(_key(each)) != each.boundary)
        return tuple(islice(changed, MAX_LEASES_TOLD))

    def note_received(self, leases: Iterable[Lease]) -> None:
        self.leases |= {_key(each): each.boundary for each in leases}

    def lost(self) -> None:
        """Note that the secondary has lost everything."""
        self.modest = True
        self.stored: dict[str, int] = {}
        self.boundaries: dict[str, int] = {}
        self.goal: dict[str, int] = {}


def _key(lease: Lease) -> tuple[str, str]:
    return lease.stream, lease.subscriber


def secondary_of(query: str) -> Hold:
    """The name of the hold on logs until the secondary has them, too."""
    return Hold("secondary", query)


def log_of(running: QueryCopy, stream: str) -> StreamLog:
    """The log of a query's stream. Raises: NotFoundError: the query neither reads nor makes it."""
    state = running.logs.get(stream)
    if state is None:
        raise NotFoundError(f"{running.name} has no stream {stream[:256]!a}")
    return state.log


def streams_of(running: QueryCopy) -> tuple[str, ...]:
    return (*running.stored.inputs, *(task.name for task in running.tasks))


def positions(running: QueryCopy, *, modest: bool = False) -> dict[str, int]:
    """The positions of a secondary that has nothing yet. modest: whether the secondary is an active
    one that begins with the inputs that this peer has; then it cannot serve consumers that are far
    behind."""
    tasks = running.plan
    mode = running.stored.availability.mode
    if mode is Mode.AMNESIA:
        inputs = {name: log_of(running, name).boundary for name in running.stored.inputs}
        return {**inputs, **reached(tasks, inputs)}
    # the secondary copies outputs: after a takeover consumers have their history
    if mode is Mode.PASSIVE_STANDBY:
        safe = {task.name: task.state.log.start for task in running.tasks}
    else:
        own = frozenset((secondary_of(running.name), *(Hold("task", task.name) for task in tasks)))
        safe = {
            task.name: max(task.state.log.upkeep.needed(own), task.state.log.start)
            for task in running.tasks
        }
    found = needed(tasks, safe)
    if mode is Mode.PASSIVE_STANDBY or modest:
        for name in running.stored.inputs:  # this peer has no more of the inputs
            found[name] = max(found[name], log_of(running, name).start)
    if mode is Mode.ACTIVE_STANDBY and modest:  # and it computes its outputs from these inputs
        inputs = {name: found[name] for name in running.stored.inputs}
        for output, whole in reached(tasks, inputs).items():
            found[output] = max(found[output], whole)
    return found


def hold_for(running: QueryCopy, secondary_state: SecondaryState, known: dict[str, int]) -> None:
    """Keep the tuples with which a new secondary begins, until it has them. known: the positions
    from which it reads each stream."""
    mode, holder = running.stored.availability.mode, secondary_of(running.name)
    if mode is Mode.PASSIVE_STANDBY:
        for stream, position in known.items():
            log_of(running, stream).retention.hold(
                holder, secondary_state.stored.get(stream, position)
            )
    elif mode is Mode.ACTIVE_STANDBY:
        for stream in running.stored.inputs:
            log_of(running, stream).retention.hold(
                holder, known[stream], trio.current_time() + JOIN_S
            )


def hold_all(running: QueryCopy) -> None:
    """Hold all streams: after a restart the secondary's boundaries are not known yet."""
    if running.stored.availability.mode is Mode.PASSIVE_STANDBY:
        for stream in streams_of(running):
            log = log_of(running, stream)
            log.retention.hold(secondary_of(running.name), log.start)


def hold_no_more(running: QueryCopy) -> None:
    """Release the holds for a secondary, because there is no secondary."""
    for stream in streams_of(running):
        log_of(running, stream).retention.release(secondary_of(running.name))


def has_copied(
    running: QueryCopy, secondary_state: SecondaryState, stream: str, boundary: int
) -> None:
    """Note that a passive secondary has a stream up to that boundary, and keeps it."""
    secondary_state.stored[stream] = boundary
    log_of(running, stream).retention.hold(secondary_of(running.name), boundary)


def release_upstream(
    running: QueryCopy, secondary_state: SecondaryState, followers: Followers
) -> None:
    """Have producers keep input tuples that a secondary may need, but does not read itself."""
    mode = running.stored.availability.mode
    for name in running.stored.inputs:
        keep = END
        if mode in {Mode.UPSTREAM_BACKUP, Mode.AMNESIA}:
            keep = (positions(running) | secondary_state.positions)[name]
        elif mode is Mode.PASSIVE_STANDBY and running.stored.term.secondary:
            keep = _checkpointed(running, secondary_state, name)
        followers.need(name, running.name, keep)


def _checkpointed(running: QueryCopy, secondary_state: SecondaryState, name: str) -> int:
    """The boundary after which the secondary would read an input from its producer."""
    readers = [task for task in running.plan if name in task.inputs]
    if any(task.has_state for task in readers):
        return secondary_state.stored.get(name, BEGINNING)
    return min(secondary_state.stored.get(task.name, BEGINNING) for task in readers)


def release(running: QueryCopy, secondary_state: SecondaryState, now: float) -> bool:
    """Let consumers read the tuples that the secondary has; all tuples if they need not wait for
    it, or would wait longer than the query's bound. now: on trio's clock, seconds. Returns: whether
    consumers stop waiting for it until it has caught up.
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
        # the goal is fixed: a moving goal, of a fast stream, would never be reached
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
    """Whether consumers have waited for the secondary longer than the query allows."""
    lags = {task.name: secondary_state.lags.setdefault(task.name, Lag()) for task in running.tasks}
    for task in running.tasks:
        lags[task.name].note(task.boundary, now)
    longest_s = max(lag.over(stored[name], now) for name, lag in lags.items())
    asked = running.stored.availability  # in this mode consumers wait for a checkpoint in any case
    return bool(asked.bound_s) and longest_s > asked.bound_s + asked.checkpoint_s


def computed(running: QueryCopy, secondary_state: SecondaryState) -> dict[str, int]:
    """The boundaries, by output, up to which no peer computes again, whichever peer takes over."""
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
    """The boundaries, by stream, after which a secondary can have the tuples, if it has only those
    that producers keep for it."""
    if running.stored.availability.mode is not Mode.UPSTREAM_BACKUP:
        return {}
    state = positions(running) | secondary_state.positions
    inputs = {name: state[name] for name in running.stored.inputs}
    return inputs | reached(running.plan, inputs)


def open_gates(running: QueryCopy) -> None:
    for task in running.tasks:
        task.state.open_gate(END)
