from __future__ import annotations

from typing import Final

from engine.objects.availability import Mode, Recovery
from engine.objects.schema import BEGINNING, END
from engine.replication.queries import QueryHost
from engine.replication.query_copy import QueryCopy
from engine.replication.replicas.primaries import Primaries, SecondaryState
from engine.replication.replicas.standby import Standby
from engine.replication.replicas.standbys import Standbys
from engine.replication.status import ReplicaStatus

UNKNOWN: Final = -1
"""`behind_us` if the secondary keeps no outputs, or has not reported its boundaries."""


def replica_status(
    queries: QueryHost, primaries: Primaries, standbys: Standbys
) -> tuple[ReplicaStatus, ...]:
    """The queries of which this peer is primary, then those of which it is secondary."""
    return (
        *(
            _of_primary(running, primaries.secondary_state(running.name))
            for running in queries.replicated()
        ),
        *(_of_standby(standby) for standby in standbys.all()),
    )


def _of_primary(running: QueryCopy, secondary_state: SecondaryState) -> ReplicaStatus:
    availability, term = running.stored.availability, running.stored.term
    gaps = [
        task.boundary - secondary_state.boundaries[task.name]
        for task in running.tasks
        if BEGINNING < task.boundary < END and task.name in secondary_state.boundaries
    ]
    return ReplicaStatus(
        running.name,
        "primary",
        availability.mode,
        availability.recovery,
        term.number,
        term.holder.hex(),
        term.secondary.hex(),
        max(0, *gaps) if gaps else UNKNOWN,
        _state(running, secondary_state),
    )


def _state(running: QueryCopy, secondary_state: SecondaryState) -> str:
    availability = running.stored.availability
    if not running.stored.term.secondary:
        return "alone"
    if secondary_state.told is None:
        ready = False
    elif availability.mode in {Mode.UPSTREAM_BACKUP, Mode.AMNESIA}:
        ready = True
    elif (availability.mode, availability.recovery) == (Mode.PASSIVE_STANDBY, Recovery.PRECISE):
        ready = secondary_state.caught_up
    else:
        ready = all(
            secondary_state.boundaries.get(task.name, BEGINNING) > BEGINNING
            or task.boundary == BEGINNING
            for task in running.tasks
        )
    return "caught up" if ready else "catching up"


def _of_standby(standby: Standby) -> ReplicaStatus:
    availability, term = standby.stored.availability, standby.term
    return ReplicaStatus(
        standby.name,
        "secondary",
        availability.mode,
        availability.recovery,
        term.number,
        term.holder.hex(),
        term.secondary.hex(),
        standby.behind_us if standby.boundaries else UNKNOWN,
        "standing by",
    )
