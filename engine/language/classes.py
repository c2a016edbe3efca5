"""Classes of boxes, and the recovery that each mode gives a query of a class.

After Hwang et al., High-Availability Algorithms for Distributed Stream Processing (ICDE 2005; Brown
CS-04-05). The class of an operator says which tuples it gives after a restart. The classes are
nested; a network has the class of its weakest operator.

    mode                 arbitrary   every other class
    none, amnesia        gap         gap
    upstream_backup      gap         precise
    passive_standby      precise     precise
    active_standby       gap         precise

* Upstream backup and active standby compute results a second time. They promise something only
  where that gives the same tuples. (The paper's rollback may give an arbitrary network other
  tuples; ours promises the same.)
* A passive standby has the outputs before any consumer does.
* In the paper, other networks recover precisely only if duplicates are found by their content, or
  non-determinism is logged. Here a consumer reconnects from a boundary, which says what it has.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from medusa.engine.expressions.user_functions import called_by
from medusa.engine.objects.availability import (
    DEFAULT_CHECKPOINT_S,
    Availability,
    AvailabilityRequest,
    Mode,
    Recovery,
)
from medusa.engine.objects.functions import UserFunction
from medusa.engine.objects.query import Box, Query
from medusa.engine.operators.registry import operator_of
from medusa.engine.operators.shared.operator import BoxClass, State
from medusa.overlay.errors import InvalidInputError
from medusa.overlay.identity import parse_peer_id

MIN_BOUND_S: Final = 0.1
"""The least bound, seconds: no detector tells a dead peer from a slow one sooner."""

MAX_BOUND_S: Final = 86_400.0
"""The greatest bound, a day: a longer one is a mistake in the unit."""

MIN_CHECKPOINT_S: Final = 0.05
"""The least time between checkpoints, seconds: more than twenty checkpoints a second would take
more than the epochs they copy."""

MAX_CHECKPOINT_S: Final = 3_600.0
"""The greatest time between checkpoints, an hour: producers of the inputs keep as much, and precise
results wait as long."""


_CLASSES: Final = tuple(BoxClass)
_RECOVERIES: Final = tuple(Recovery)


def class_of(box: Box, functions: Sequence[UserFunction] = ()) -> BoxClass:
    """The class of a box.

    * Filters and maps make a tuple of one tuple. Their expressions have neither clock nor chance
      (`engine/scalars/`), unless they call a user's function that is not declared
      deterministic: such a box is arbitrary, and no other is.
    * An aggregate's windows are aligned to the epoch, not to its first tuple. Restarted empty, it
      agrees from the first window that begins after its start (as Borealis' aggregate with
      `independent-window-alignment`; Balazinska et al., Fault-Tolerance in the Borealis Distributed
      Stream Processing System, TODS 2008). That holds for all its functions: counts, extremes and
      sums of integers do not depend on the order, floats are summed in ascending order, firstval
      and lastval use the canonical order. A rank has the same windows, so the same holds for it.
      Sessions agree, too, once their horizon has passed.
    * A union is arbitrary in ICDE 2005: it interleaves its inputs as they arrive. Ours is the
      SUnion of TODS 2008: it waits for the boundary of every input, and emits the tuples up to the
      smallest in canonical order. It repeats them only if all inputs are replayed from one
      boundary.
    * The matches of a pattern are those that begin with each tuple. Restarted empty, it agrees from
      `within` after its start.
    * Windows of tuples, totals and the first tuples of a table depend on all tuples before them.
    * A join is like a union: in ICDE 2005 its results depend on the order in which its inputs
      interleave; here they depend on the stimes of their tuples.

    Args:
        functions: those of the box's query.
    """
    called = called_by(box, {each.name: each for each in functions})
    sure = all(each.deterministic for each in called)
    return operator_of(box).box_class if sure else BoxClass.ARBITRARY


def weakest_class(query: Query) -> BoxClass:
    """The query's class: that of its weakest box. The query has boxes."""
    return class_of(weakest_box(query), query.functions)


def weakest_box(query: Query) -> Box:
    """The first box of the query's weakest class. The query has boxes."""
    return max(query.boxes, key=lambda box: _CLASSES.index(class_of(box, query.functions)))


def strongest_recovery(mode: Mode, weakest: BoxClass) -> Recovery:
    """The recovery that a mode gives a network of that class: the table above."""
    match mode:
        case Mode.NONE | Mode.AMNESIA:
            return Recovery.GAP
        case Mode.PASSIVE_STANDBY:
            return Recovery.PRECISE
        case Mode.UPSTREAM_BACKUP | Mode.ACTIVE_STANDBY:
            return Recovery.GAP if weakest is BoxClass.ARBITRARY else Recovery.PRECISE


def check_availability(query: Query, availability: Availability) -> None:
    """Check that a query may ask for this availability. Its network is checked before.

    Raises:
        InvalidInputError: names the query, its weakest box and a possible alternative; or
            the number that is out of range.
    """
    try:
        _check_recovery(query, availability)
        _check_tables(query, availability)
        if availability.mode is Mode.NONE:
            _check_nothing_asked(availability)
        _check_times(availability)
        if availability.secondary:
            parse_peer_id(availability.secondary)
    except InvalidInputError as error:
        raise InvalidInputError(f"query {query.name}: {error}") from None


def check_secondary(query: Query, peer: str) -> None:
    """Check that the secondary is not `peer`, the id (hex) of the peer that keeps the query.

    Raises:
        InvalidInputError: it is.
    """
    if query.availability.secondary == peer:
        raise InvalidInputError(
            f"query {query.name}: peer {peer[:8]} keeps it and cannot be its secondary as well"
        )


def applied(query: Query, request: AvailabilityRequest) -> Query:
    """The query with its availability changed as asked, and checked.

    A new mode sets its strongest recovery and the default checkpoint, unless `request` has others.
    The default checkpoint interval is at most half the bound.

    Raises:
        InvalidInputError: as `check_availability`.
    """
    base = query.availability
    if request.mode is not None:
        base = Availability(
            request.mode,
            strongest_recovery(request.mode, weakest_class(query)),
            bound_s=base.bound_s,
            secondary="" if request.mode is Mode.NONE else base.secondary,
        )
    given = {
        key: value for key, value in msgspec.structs.asdict(request).items() if value is not None
    }
    made = msgspec.structs.replace(base, **given)
    if request.checkpoint_s is None and made.mode is Mode.PASSIVE_STANDBY and made.bound_s > 0:
        made = msgspec.structs.replace(made, checkpoint_s=min(made.checkpoint_s, made.bound_s / 2))
    check_availability(query, made)
    return msgspec.structs.replace(query, availability=made)


def _check_recovery(query: Query, availability: Availability) -> None:
    class_, asked = weakest_class(query), availability.recovery
    reach = strongest_recovery(availability.mode, class_)
    if _reaches(reach, asked):
        return
    modes = [mode for mode in Mode if _reaches(strongest_recovery(mode, class_), asked)]
    raise InvalidInputError(
        f"recovery {asked} is more than ha {availability.mode} gives a query whose weakest box, "
        f"{weakest_box(query).name!a}, is {class_}: ask for {reach}, or for ha {_either(modes)}"
    )


def _check_tables(query: Query, availability: Availability) -> None:
    """Check the query's availability if it keeps totals: their state is their output, so only a
    copy of that can continue them."""
    kept = next((b for b in query.boxes if operator_of(b).state is State.OUTPUT), None)
    if kept is None or availability.mode in {Mode.NONE, Mode.PASSIVE_STANDBY}:
        return
    raise InvalidInputError(
        f"its box {kept.name!a} keeps a table of what it has made, which ha "
        f"{availability.mode} does not copy: ask for ha {Mode.PASSIVE_STANDBY}"
    )


def _reaches(recovery: Recovery, asked: Recovery) -> bool:
    return _RECOVERIES.index(recovery) >= _RECOVERIES.index(asked)


def _check_nothing_asked(availability: Availability) -> None:
    rest = msgspec.structs.replace(availability, recovery=Recovery.GAP, bound_s=0.0)
    if rest != Availability():
        raise InvalidInputError(
            "checkpoint and secondary are for a query with a standby: "
            f"ask for ha {_either([mode for mode in Mode if mode is not Mode.NONE])} as well"
        )


def _check_times(availability: Availability) -> None:
    bound, checkpoint = availability.bound_s, availability.checkpoint_s
    # not(a <= x <= b) refuses NaN as well
    if bound != 0 and not MIN_BOUND_S <= bound <= MAX_BOUND_S:
        raise InvalidInputError(
            f"its bound of {bound:g} s is not between {MIN_BOUND_S:g} and {MAX_BOUND_S:,.0f} s, "
            "nor 0 (as long as it takes)"
        )
    if availability.mode is not Mode.PASSIVE_STANDBY:
        if checkpoint != DEFAULT_CHECKPOINT_S:
            raise InvalidInputError(
                f"only ha {Mode.PASSIVE_STANDBY} has checkpoints, not {availability.mode}"
            )
        return
    if not MIN_CHECKPOINT_S <= checkpoint <= MAX_CHECKPOINT_S:
        raise InvalidInputError(
            f"a checkpoint every {checkpoint:g} s is not between {MIN_CHECKPOINT_S:g} and "
            f"{MAX_CHECKPOINT_S:,.0f} s"
        )
    if 0 < bound < checkpoint:
        raise InvalidInputError(
            f"a checkpoint every {checkpoint:g} s cannot keep results within a bound of "
            f"{bound:g} s: checkpoint at least as often"
        )


def _either(modes: list[Mode]) -> str:
    return " or ".join(filter(None, (", ".join(modes[:-1]), modes[-1])))
