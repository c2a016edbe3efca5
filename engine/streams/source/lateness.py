"""Decides which tuples of a post are late: tuple by tuple, so that the division into posts makes no
difference. Vectorised; no Python per tuple."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from medusa.engine.objects.schema import BEGINNING, END
from medusa.engine.streams.validate import Batch


@dataclass(frozen=True, slots=True)
class Judged:
    """The tuples of a post some of which are late.

    Attributes:
        bounds: the stream's boundary when each of them arrived; it only grows. in_order, near,
            late: for each, whether it arrived in time; late but within the stream's lateness; or
            later.
    """

    bounds: pa.Array
    in_order: pa.Array
    near: pa.Array
    late: pa.Array


def judge(
    batch: Batch, boundary: int, slack_us: int, ceiling: int, lateness_us: int
) -> Judged | None:
    """The late tuples of a post; None: all of them are in time. Args: boundary: the stream's
    boundary before the first one. slack_us, lateness_us: as the stream is defined. ceiling: the
    farthest boundary to which the tuples can move the stream.
    """
    count = batch.payload.num_rows
    own = min(batch.high - slack_us - 1, ceiling)
    reached = boundary if batch.ordered else max(boundary, own)
    if not count or batch.low > reached:
        return None
    bounds = pa.repeat(pa.scalar(boundary, pa.int64()), count)
    if not batch.ordered:
        greatest = pc.cumulative_max(batch.stime)
        after = pc.min_element_wise(pc.subtract(greatest[:-1], slack_us + 1), ceiling)
        before = pa.array([boundary], pa.int64())
        bounds = pc.max_element_wise(bounds, pa.concat_arrays([before, after]))
    in_order = pc.greater(batch.stime, bounds)
    if boundary == END or not lateness_us:  # all tuples are too late for a stream that has ended
        near = pa.repeat(pa.scalar(value=False), count)
    else:
        oldest = pc.subtract(pc.max_element_wise(bounds, BEGINNING + lateness_us), lateness_us)
        near = pc.and_not(pc.greater(batch.stime, oldest), in_order)
    return Judged(bounds, in_order, near, pc.invert(pc.or_(in_order, near)))


def chosen(mask: pa.Array) -> int:
    """The number of true values."""
    return int(pc.sum(mask).as_py() or 0)
