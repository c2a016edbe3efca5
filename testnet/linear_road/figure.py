"""The query of figure 1 of "The Medusa Distributed Stream-Processing System": its input, and its
right answers over whole tables, by DuckDB.

The figure computes tolls from the average speed and the volume of each segment in each minute, and
sends them to the cars that drive there; and it sends tow trucks to cars that stand still. The paper
does not say how a toll follows from speed and volume. Here it is Linear Road's rule, and a toll
counts for the minute after.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from medusa.testnet.linear_road.tables import SEGMENTS
from medusa.testnet.workload.oracle import answer_of
from medusa.testnet.workload.workload import Right

TRUCKS_OF: Final = 20
"""The number of cars of which one is a tow truck."""

_ANSWERS: Final[Mapping[str, str]] = {
    "toll_notifications": """
        WITH minutes AS (
            SELECT segment, time_bucket(INTERVAL 1 MINUTE, time) AS minute,
                count(DISTINCT car) AS cars, avg(speed) AS speed
            FROM sighting GROUP BY segment, minute)
        SELECT s.time, s.car, s.segment, CAST(2 * (m.cars - 50) ** 2 AS BIGINT) AS toll
        FROM sighting AS s JOIN minutes AS m ON m.segment = s.segment
            AND m.minute + INTERVAL 1 MINUTE = time_bucket(INTERVAL 1 MINUTE, s.time)
        WHERE s.speed > 0 AND m.cars > 50 AND m.speed < 40""",
    "tow_truck_dispatch": """
        SELECT b.car, b.segment, t.car AS truck, t.time AS seen
        FROM sighting AS b JOIN sighting AS t ON t.segment = b.segment AND t.car <> b.car
            AND t.time BETWEEN b.time - INTERVAL 30 SECOND AND b.time
        WHERE b.speed = 0 AND t.tow_truck""",
}


def sightings(reports: pa.Table) -> pa.Table:
    """The sightings of the road's sensors: each report as the sighting of a car in a segment.

    Args:
        reports: the position reports, by time.
    """
    ways = pc.add(pc.multiply(reports.column("xway"), 2), reports.column("dir"))
    number = reports.column("vid").cast(pa.int64())
    of_twenty = pc.subtract(number, pc.multiply(pc.divide(number, TRUCKS_OF), TRUCKS_OF))
    return pa.table(
        {
            "time": reports.column("time"),
            "car": reports.column("vid"),
            "speed": reports.column("speed"),
            "segment": pc.add(pc.multiply(ways, SEGMENTS), reports.column("seg")),
            "tow_truck": pc.equal(of_twenty, 0),
        }
    )


def figure_answers(seen: pa.Table) -> dict[str, Right]:
    """The SQL of each answer, by its name. seen: the result of `sightings`."""
    return {name: partial(answer_of, sql, {"sighting": seen}) for name, sql in _ANSWERS.items()}
