"""Tracking as a workload: the readers' sightings, the appendix' query and the alarms, and their
right answers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import pyarrow as pa

from medusa.testnet.tracking import oracle
from medusa.testnet.tracking.generate import Tracked, track
from medusa.testnet.workload.workload import Script, Workload

QUERIES: Final = Path(__file__).with_name("queries")
"""The folder of the queries' texts. Its XML is the appendix', byte for byte."""

PARTICIPANT: Final = "nms.lcs.mit.edu"
PEOPLE: Final = "locator/people"
MR_X: Final = "locator/MrX"
"""The appendix' participant and streams."""


@dataclass(frozen=True)
class Options:
    """The options of the workload; see `medusa.testnet.tracking.generate.track`."""

    seed: int
    persons: int = 100
    buildings: int = 2
    hours: float = 2.0


def tracking_workload(options: Options) -> Workload:
    """Track persons, for both scripts."""
    tracked = track(options.seed, options.persons, options.buildings, options.hours)
    seen = tracked.sightings
    return Workload(
        f"Tracking, {options.persons} persons in {options.buildings} buildings, "
        f"{seen.num_rows:,} sightings",
        {
            PEOPLE: seen.select(["person_name", "person_id"]),
            "sightings": seen,
            "permissions": tracked.permissions,
        },
        (
            Script(appendix(), {MR_X: partial(_named, tracked)}, frozenset({PEOPLE})),
            Script(
                (QUERIES / "alarms.sql").read_text(),
                {
                    "strays": partial(oracle.strays, tracked),
                    "alarms": partial(oracle.alarms, tracked),
                },
                frozenset({"permissions"}),
            ),
        ),
        PARTICIPANT,
    )


def appendix() -> str:
    """The appendix' schema, stream and query as one document. The appendix defines the stream by a
    call, not in XML."""
    schema, query = ((QUERIES / f"{name}.xml").read_text() for name in ("person", "find_mr_x"))
    base = f"medusa://{PARTICIPANT}"
    stream = f'<stream name="{base}/{PEOPLE}" schema="{base}/locator/person"/>\n'
    return f"<medusa>\n{schema}{stream}{query}</medusa>\n"


def _named(tracked: Tracked) -> pa.Table:
    """The rows of the appendix' query: its stream has names and numbers only."""
    return oracle.followed(tracked).select(["person_name", "person_id"])
