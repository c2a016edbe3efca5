"""Queries with a secondary, whose primaries die when a test says so."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import msgspec
from engine_detector import ToldDetector
from engine_peers import Place, Town, until

from engine.objects.availability import Availability, Mode, Recovery
from engine.objects.query import Filter, Query
from engine.streams.config import Timing
from overlay.errors import NotFoundError
from overlay.gossip.events import Health

Made = dict[bytes, ToldDetector]

QUICK = Timing(tend_s=0.05, keep_up_s=0.05)
"""Of peers whose retention is soon over."""


LOSSLESS = [Mode.UPSTREAM_BACKUP, Mode.PASSIVE_STANDBY, Mode.ACTIVE_STANDBY]


def asked(query: Query, mode: Mode, secondary: Place, recovery: Recovery | None = None) -> Query:
    weakest = Recovery.GAP if mode is Mode.AMNESIA else Recovery.PRECISE
    wish = Availability(mode, recovery or weakest, secondary=secondary.id)
    if mode is Mode.PASSIVE_STANDBY:
        wish = msgspec.structs.replace(wish, checkpoint_s=0.1)
    return msgspec.structs.replace(query, availability=wish)


def secondary_of(place: Place, query: str) -> str:
    """Of a query that it has, or is about to take over."""
    with suppress(NotFoundError):
        running = place.up.engine.queries.get(place.name(query))
        return running.stored.term.secondary.hex()
    return ""


async def stands_by(primary: Place, secondary: Place, query: str) -> None:
    await until(lambda: secondary_of(primary, query) == secondary.id, "it has a secondary")


def standby_boundary(place: Place, query: str, stream: str) -> Callable[[], int]:
    def boundary() -> int:
        standby = place.up.engine.standbys.get(place.name(query))
        return -1 if standby is None else standby.boundaries.get(place.name(stream), -1)

    return boundary


async def die(made: Made, victim: Place, town: Town, *witnesses: Place) -> None:
    """Its process ends, and the others notice."""
    peer = victim.id
    await town.stop(victim)
    for witness in witnesses:
        made[bytes.fromhex(witness.id)].tell(peer, Health.DEAD)


def believes(made: Made, witness: Place, peer: str, health: Health) -> None:
    made[bytes.fromhex(witness.id)].tell(peer, health)


def has(place: Place, query: str) -> bool:
    return any(running.name == query for running in place.up.engine.queries.all())


async def taken_over(made: Made, primary: Place, secondary: Place, query: str) -> None:
    """By a secondary that believes wrongly that its primary is dead; which then steps down."""
    believes(made, secondary, primary.id, Health.DEAD)
    await until(lambda: has(secondary, query), "it is taken over")
    await until(lambda: not has(primary, query), "the old primary steps down")


def passed(place: Place, source: str, path: str) -> Query:
    """All of them."""
    box = Filter("all", source, (place.name(path),), ("value >= 0",))
    return Query(place.name("q/" + path), (box,))
