"""Nexmark as a workload: its events, its queries, and their right answers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import pyarrow as pa

from medusa.testnet.nexmark.generate import EVENTS_PER_S, START_US, Events, generate
from medusa.testnet.nexmark.oracle import QUERIES, expected, side_input
from medusa.testnet.nexmark.scripts import SIDE_INPUT, script
from medusa.testnet.workload.workload import Script, Workload


@dataclass(frozen=True)
class Options:
    """The options of a run. rate: events in a second of event time. queries: in order; empty:
    all."""

    events: int
    seed: int
    rate: int = EVENTS_PER_S
    queries: tuple[str, ...] = ()


def tables_of(events: Events) -> dict[str, pa.Table]:
    """The rows of all streams that the queries read; the rows of q13's table come before all
    events."""
    side = side_input()
    before = pa.array([START_US - 1] * side.num_rows, pa.timestamp("us", "UTC"))
    return {
        "person": events.person,
        "auction": events.auction,
        "bid": events.bid,
        "side_input": side.append_column("dateTime", before),
    }


def nexmark_workload(options: Options) -> Workload:
    """Generate the events, for the queries of the options."""
    events = generate(options.seed, options.events, options.rate)
    tables = tables_of(events)
    scripts = [
        Script(
            text := script(query),
            {query: partial(expected, query, events)},
            frozenset({"side_input"} if SIDE_INPUT in text else ()),
        )
        for query in options.queries or QUERIES
    ]
    title = f"Nexmark, {options.events:,} events of seed {options.seed}"
    return Workload(title, tables, scripts)
