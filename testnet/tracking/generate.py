"""Persons with tags who walk through buildings, as readers at the doors and walls see them.

The schema `person` (person_name, person_id) and the query FindMrX are those of the appendix of "The
Medusa Distributed Stream-Processing System" (Balazinska, Balakrishnan, Salz, Stonebraker), one of
whose applications was the tracking of objects indoors with RFID readers. A sighting adds the place:
the building, which is a participant's own, the room, and the reader. Readers miss tags, and two
readers of a room may see one tag at once. A table says who may be in which room, and at what time
of day; some permissions are withdrawn meanwhile, and the persons walk on as before.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

START_US: Final = 1_054_540_800_000_000
"""2003-06-02 08:00:00 UTC, microseconds: fixed, so that a seed gives the same on any day."""

MR_X: Final = 2
"""The person whom the paper's query follows."""

ROOMS: Final = 12
"""Rooms of a building. The first is the lobby, and the last the vault."""
READERS: Final = 2
"""Readers of a room."""

READ_EVERY_S: Final = 5
"""Seconds between two attempts of a reader."""
READ_SHARE: Final = 0.7
"""The share of attempts that see a tag in the room."""

STAY_S: Final = 240.0
"""A stay in a room, on average, seconds."""
STRAY_SHARE: Final = 0.04
"""The share of stays for which a person takes any room, allowed or not."""
REVOKED_SHARE: Final = 0.1
"""The share of permissions that are taken back at some moment."""
GUARD_SHARE: Final = 0.05
VISITOR_SHARE: Final = 0.25

DAY_MIN: Final = 1_440
WORK_MIN: Final = (7 * 60, 19 * 60)
VISIT_MIN: Final = (9 * 60, 10 * 60)
"""The minutes of the day from which and until which staff may be in the rooms of their building,
and visitors in every lobby."""

_TIME: Final = pa.timestamp("us", "UTC")

SIGHTING: Final = pa.schema(
    [
        ("time", _TIME),
        ("person_name", pa.string()),
        ("person_id", pa.int32()),
        ("building", pa.string()),
        ("room", pa.string()),
        ("reader", pa.string()),
    ]
)
PERMISSION: Final = pa.schema(
    [
        ("time", _TIME),
        ("person_id", pa.int32()),
        ("room", pa.string()),
        ("from_min", pa.int32()),
        ("until_min", pa.int32()),
    ]
)
"""A person may be in a room from one minute of the day (UTC) until before another. A pair may have
several rows, or none. A row holds from its time on, until the next one of the same person, room and
first minute; one whose minutes are the same takes the permission back."""


@dataclass(frozen=True)
class Tracked:
    """The readers' sightings, by time, and the permissions of persons for rooms."""

    sightings: pa.Table
    permissions: pa.Table

    def of(self, building: str) -> pa.Table:
        """The sightings of one building: the rows that its participant posts."""
        return self.sightings.filter(pc.equal(self.sightings.column("building"), building))


Stay = tuple[int, int, float, float]
"""Person, room (counted through all buildings), begin and end in seconds from the start."""


def track(seed: int, persons: int = 100, buildings: int = 2, hours: float = 2.0) -> Tracked:
    """Some hours of a morning.

    Args:
        seed: the same seed gives the same sightings.
        persons: the number of persons; their numbers begin with 1. buildings: the number of
            buildings, named b1, b2 and so on. hours: the duration.

    Raises:
        ValueError: a number is out of its range.
    """
    if seed < 0 or persons < 1 or buildings < 1 or not 0 < hours <= 24:
        raise ValueError("give a seed from 0, persons and buildings from 1, and up to 24 hours")
    rng = np.random.default_rng(seed)
    permissions = list(_permissions(rng, persons, buildings))
    allowed: dict[int, list[int]] = {}
    for person, room, _, _ in permissions:
        allowed.setdefault(person, []).append(room)
    stays = [
        stay
        for person in range(1, persons + 1)
        for stay in _stays(rng, person, allowed[person], buildings * ROOMS, hours * 3_600)
    ]
    rooms = _rooms(buildings)
    sightings = _sightings(rng, stays, rooms)
    return Tracked(sightings, _table_of(rng, permissions, rooms, hours * 3_600))


def _rooms(buildings: int) -> pa.Array:
    return pa.array([f"b{b + 1}-{101 + room}" for b in range(buildings) for room in range(ROOMS)])


def _permissions(
    rng: np.random.Generator, persons: int, buildings: int
) -> Iterator[tuple[int, int, int, int]]:
    """Guards may be everywhere; visitors in the lobbies for an hour; the others by day in their
    building, except its vault, and in every lobby."""
    lobbies = [building * ROOMS for building in range(buildings)]
    for person in range(1, persons + 1):
        kind = rng.random()
        if kind < GUARD_SHARE:
            for room in range(buildings * ROOMS):
                yield person, room, 0, DAY_MIN
        elif kind < GUARD_SHARE + VISITOR_SHARE:
            for room in lobbies:
                yield person, room, *VISIT_MIN
        else:
            home = int(rng.integers(0, buildings)) * ROOMS
            own = range(home, home + ROOMS - 1)
            for room in sorted({*own, *lobbies}):
                yield person, room, *WORK_MIN


def _table_of(
    rng: np.random.Generator,
    permissions: list[tuple[int, int, int, int]],
    rooms: pa.Array,
    seconds: float,
) -> pa.Table:
    """The permissions, all of which hold before the start, and their changes, by time."""
    given = np.array(permissions)
    revoked = given[rng.random(len(given)) < REVOKED_SHARE]
    revoked[:, 3] = revoked[:, 2]
    since = np.sort(rng.uniform(0, seconds, len(revoked)))
    times = [START_US - np.arange(len(given), 0, -1), START_US + (since * 1e6).astype(np.int64)]
    person, room, first, last = np.concatenate([given, rng.permutation(revoked)]).T
    columns = [np.concatenate(times), person, rooms.take(pa.array(room)), first, last]
    return pa.table(
        [
            pa.array(column).cast(field.type)
            for column, field in zip(columns, PERMISSION, strict=True)
        ],
        schema=PERMISSION,
    )


def _stays(
    rng: np.random.Generator, person: int, allowed: list[int], rooms: int, seconds: float
) -> Iterator[Stay]:
    begin = rng.exponential(STAY_S)
    while begin < seconds:
        strays = rng.random() < STRAY_SHARE
        room = int(rng.integers(0, rooms)) if strays else int(rng.choice(allowed))
        end = min(begin + rng.exponential(STAY_S), seconds)
        yield person, room, begin, end
        # the way to the next room
        begin = end + rng.uniform(5, 40)


def _sightings(rng: np.random.Generator, stays: list[Stay], rooms: pa.Array) -> pa.Table:
    if not stays:
        return SIGHTING.empty_table()
    person, room, begin, end = (np.array(column) for column in zip(*stays, strict=True))
    tries = (np.ceil((end - begin) / READ_EVERY_S).astype(np.int64)) * READERS
    which = np.repeat(np.arange(len(stays)), tries)
    attempt = np.arange(len(which)) - np.repeat(np.cumsum(tries) - tries, tries)
    since = attempt // READERS * READ_EVERY_S + rng.uniform(0, READ_EVERY_S, len(which))
    times = START_US + ((begin[which] + since) * 1_000_000).astype(np.int64)
    seen = (rng.random(len(which)) < READ_SHARE) & (begin[which] + since < end[which])
    order = np.lexsort((attempt, person[which], times))
    order = order[seen[order]]
    which, attempt, times = which[order], attempt[order], times[order]
    names = _names(int(person.max()))
    seen_room = rooms.take(pa.array(room[which]))
    ends = pa.array(["-north", "-south"]).take(pa.array(attempt % READERS))
    columns = [
        pa.array(times).cast(_TIME),
        names.take(pa.array(person[which])),
        pa.array(person[which]).cast(pa.int32()),
        pc.replace_substring_regex(seen_room, "-.*", ""),
        seen_room,
        pc.binary_join_element_wise(seen_room, ends, ""),
    ]
    return pa.table(columns, schema=SIGHTING)


def _names(persons: int) -> pa.Array:
    """Names by number; 0 has no name."""
    names = [f"Person {number}" for number in range(persons + 1)]
    if persons >= MR_X:
        names[MR_X] = "Mr X"
    return pa.array(names)
