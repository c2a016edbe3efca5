"""The tables of Linear Road: the reports of cars, the answers that they must receive, and the
memory of the city.

Arasu et al., "Linear Road: A Stream Data Management Benchmark", VLDB 2004, has one stream whose
first field is the type of a tuple: 0 a position report, 2 and 3 questions. Here each type is a
table of its own, with the fields that it uses. Type 4, the estimate of a travel time, was never
implemented, neither in the original nor in walmartlabs/linearroad.

Numbers are those of the benchmark. A car has the number `vid`. An expressway (`xway`) has two
directions (`dir`: 0 east, 1 west), each 100 segments (`seg`) of a mile, and five lanes: 0 to enter,
1 to 3 to travel, 4 to leave. `pos` is in feet from the western end. `speed` is in miles an hour.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

START_S: Final = 1_072_915_200
"""2004-01-01 00:00:00 UTC, seconds: when the traffic begins. `time` counts from the epoch; the
benchmark counts whole seconds from the beginning."""

SEGMENTS: Final = 100
SEGMENT_FEET: Final = 5_280
ENTRY: Final = 0
EXIT: Final = 4
EAST, WEST = 0, 1

REPORT_EVERY_S: Final = 30
"""Seconds between two reports of a car."""

DAYS: Final = 69
"""Days of the past whose tolls the city keeps: 1 is yesterday."""

TIME: Final = pa.timestamp("us", "UTC")

REPORT: Final = pa.schema(
    [
        ("time", TIME),
        ("vid", pa.int32()),
        ("speed", pa.int32()),
        ("xway", pa.int32()),
        ("lane", pa.int32()),
        ("dir", pa.int32()),
        ("seg", pa.int32()),
        ("pos", pa.int32()),
    ]
)
"""A position report (type 0)."""

BALANCE_REQUEST: Final = pa.schema([("time", TIME), ("vid", pa.int32()), ("qid", pa.int32())])
"""A request (type 2): what have I paid so far today?"""

EXPENDITURE_REQUEST: Final = pa.schema(
    [
        ("time", TIME),
        ("vid", pa.int32()),
        ("xway", pa.int32()),
        ("qid", pa.int32()),
        ("day", pa.int32()),
    ]
)
"""A request (type 3): what did I pay on that expressway that day?"""

HISTORY: Final = pa.schema(
    [("vid", pa.int32()), ("day", pa.int32()), ("xway", pa.int32()), ("toll", pa.int32())]
)
"""The toll that each car paid on each day of the past, by expressway."""

TOLL: Final = pa.schema(
    [("vid", pa.int32()), ("time", TIME), ("lav", pa.int32()), ("toll", pa.int32())]
)
"""A message to a car that enters a segment: the latest average velocity there, and the toll, which
the car pays when it moves to the next segment."""

ALERT: Final = pa.schema(
    [
        ("time", TIME),
        ("xway", pa.int32()),
        ("seg", pa.int32()),
        ("dir", pa.int32()),
        ("vid", pa.int32()),
    ]
)
"""A message to a car that enters a segment near an accident: the segment of the accident."""

BALANCE: Final = pa.schema(
    [("time", TIME), ("qid", pa.int32()), ("vid", pa.int32()), ("balance", pa.int64())]
)
EXPENDITURE: Final = pa.schema(
    [("time", TIME), ("qid", pa.int32()), ("vid", pa.int32()), ("toll", pa.int32())]
)
