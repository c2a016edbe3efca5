"""Recorded connections of two laboratories, and a list of some addresses that occur in them."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from medusa.overlay.errors import InvalidInputError
from medusa.testnet.connections.traces import open_trace
from medusa.testnet.shared_intrusion.generate import (
    KINDS,
    LABS,
    LISTED,
    Connection,
    Records,
    Threat,
)

DRAWN_FROM: Final = 200
"""The list is drawn from this many of the addresses that are called most."""

_MICROS: Final = 1_000_000


def recorded(traces: Sequence[Path], seed: int) -> Records:
    """The records of two traces, in any of the formats of `medusa.testnet.connections.traces`.

    A connection without a destination is left out. The list is drawn by the seed. It changes in the
    middle: the address called most is put on it, the next one is taken off.

    Args:
        traces: of each laboratory.

    Raises:
        InvalidInputError: one cannot be read, or they have too few addresses.
    """
    found = {lab: _connections(path) for lab, path in zip(LABS, traces, strict=True)}
    calls = Counter(row.dst_ip for rows in found.values() for row in rows)
    if len(calls) < len(LISTED) + 2:
        raise InvalidInputError(
            f"the traces have {len(calls)} destinations: the list takes {len(LISTED) + 2}"
        )
    times = [row.ts for rows in found.values() for row in (rows[:1] + rows[-1:])]
    before_us, update_us = min(times) - 1, (min(times) + max(times)) // 2
    # among equally frequent addresses the least, so that a seed always gives the same list
    ordered = sorted(calls, key=lambda address: (-calls[address], address))
    added, removed, *others = ordered[:DRAWN_FROM]
    rng = random.Random(seed)
    listed = [*rng.sample(others, k=len(LISTED)), removed]
    threats = [Threat(address, rng.choice(KINDS), before_us) for address in listed]
    off = threats[-1]._replace(since=update_us, deleted=True)
    changed = (*threats, Threat(added, KINDS[0], update_us), off)
    return Records(changed, found, (), update_us, added)


def _connections(path: Path) -> tuple[Connection, ...]:
    columns = ("ts", "src_ip", "dst_ip", "dst_port", "bytes_out")
    return tuple(
        Connection(round(ts * _MICROS), source, address, port, size)
        for batch in open_trace(path).batches()
        for ts, source, address, port, size in zip(
            *(batch.column(name).to_pylist() for name in columns), strict=True
        )
        if address is not None
    )
