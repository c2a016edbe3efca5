"""Peers of one participant, for streams with replicas: who is home, and what each keeps."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from engine_peers import Place, Town, open_town, until

from engine.homes.keeper import Keeper
from engine.kept import KeptStream, Role

QUIET_S = 0.4


@asynccontextmanager
async def siblings(
    folder: Path, count: int = 3, **engine: float
) -> AsyncIterator[tuple[Town, list[Place]]]:
    async with open_town(folder, home_silence_s=QUIET_S, **engine) as town:
        places = [await town.settle("mit.edu")]
        places += [await town.settle("mit.edu", sibling=True) for _ in range(count - 1)]
        await town.acquainted(*places)
        yield town, places


def keeper(place: Place, stream: str) -> Keeper:
    found = place.up.engine.homes.get(stream)
    assert found is not None
    return found


def kept_at(place: Place, stream: str) -> KeptStream:
    """What it keeps as an elector."""
    kept = keeper(place, stream).kept
    assert kept is not None, "a witness has no journal"
    return kept


def replicas_of(places: list[Place], stream: str, home: Place) -> list[Place]:
    """The others of the tenure that its home knows of."""
    tenure = keeper(home, stream).tenure.ballot.tenure
    assert tenure is not None
    return [place for place in places if place.peer is not None and place.id in tenure.replicas]


def serves_as_home(place: Place, stream: str) -> bool:
    """It has been confirmed, and its logs are open to readers: that takes a turn more."""
    its = keeper(place, stream)
    return its.is_home and its.kept is not None and its.kept.role is Role.SOURCE


def home_of(places: list[Place], stream: str) -> Place | None:
    at_home = [p for p in places if p.peer is not None and serves_as_home(p, stream)]
    return max(at_home, key=lambda p: keeper(p, stream).tenure.fence) if at_home else None


async def new_home(places: list[Place], stream: str, besides: Place | None = None) -> Place:
    await until(lambda: (home := home_of(places, stream)) is not None and home is not besides)
    found = home_of(places, stream)
    assert found is not None
    return found
