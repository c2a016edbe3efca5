"""The right answers about tracked persons over whole tables, by DuckDB."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import pyarrow as pa

from medusa.testnet.tracking.generate import MR_X, Tracked
from medusa.testnet.workload.oracle import answer_of, in_order

QUIET_S: Final = 60
"""Seconds without a stray sighting of a person in a room, after which the next one is a new
alarm."""

_STRAYS: Final = """
    CREATE VIEW held AS
        SELECT *, lead(time) OVER (PARTITION BY person_id, room, from_min ORDER BY time) AS upto
        FROM permission;
    CREATE VIEW stray AS
        SELECT s.* FROM sighting AS s ANTI JOIN held AS p
            ON s.person_id = p.person_id AND s.room = p.room
            AND s.time >= p.time AND (p.upto IS NULL OR s.time < p.upto)
            AND hour(s.time) * 60 + minute(s.time) >= p.from_min
            AND hour(s.time) * 60 + minute(s.time) < p.until_min"""

_ALARMS: Final = """
    WITH marked AS (
        SELECT *, coalesce(time - lag(time) OVER before > to_seconds($quiet_s), true) AS begins
        FROM stray WINDOW before AS (PARTITION BY person_id, room ORDER BY time)),
    numbered AS (
        SELECT *, count(*) FILTER (begins) OVER (
            PARTITION BY person_id, room ORDER BY time) AS alarm
        FROM marked)
    SELECT min(time) AS time, any_value(person_name) AS person_name, person_id,
        any_value(building) AS building, room, max(time) AS until, count(*) AS sightings
    FROM numbered GROUP BY person_id, room, alarm"""


def followed(tracked: Tracked, person_id: int = MR_X) -> pa.Table:
    """All sightings of a person, by time: the query FindMrX of the paper's appendix."""
    chosen = "SELECT * FROM sighting WHERE person_id = $person_id"
    return _answer(tracked, chosen, {"person_id": person_id})


def strays(tracked: Tracked) -> pa.Table:
    """The sightings of persons where they may not be at that time of day, by time."""
    return _answer(tracked, "SELECT * FROM stray", {})


def alarms(tracked: Tracked, quiet_s: int = QUIET_S) -> pa.Table:
    """One row for each time that a person strays into a room: the first and the last sighting, and
    how many there were.

    Args:
        tracked: the sightings and the permissions.
        quiet_s: an alarm ends after more than `quiet_s` seconds without such a sighting.
    """
    return _answer(tracked, _ALARMS, {"quiet_s": quiet_s})


def _answer(tracked: Tracked, sql: str, parameters: Mapping[str, int]) -> pa.Table:
    tables = {"sighting": tracked.sightings, "permission": tracked.permissions}
    return in_order(answer_of(sql, tables, _STRAYS, parameters))
