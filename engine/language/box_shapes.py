"""Checks of a box that need no schema: of its names, ports, windows and bounds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from medusa.engine.language import joins, matches, totals, tuple_windows
from medusa.engine.language.aggregates import check_parameter
from medusa.engine.objects.query import (
    Aggregate,
    Box,
    Cumulate,
    Filter,
    Function,
    Join,
    Map,
    Match,
    Rank,
    Sessions,
    Top,
    Totals,
    TupleWindows,
    Union,
)
from medusa.overlay.errors import InvalidInputError

MAX_PORTS: Final = 256
"""Inputs of a union or outputs of a filter: each may be a log to wait for or to write."""

MAX_BOX_NAME: Final = 64
"""Characters: error messages and screens show it."""

MAX_WINDOW_US: Final = 366 * 86_400 * 1_000_000
"""A year: the input of a window is kept for as long as the window lasts."""

MAX_RANKS: Final = 1_000
"""Tuples of a window and partition that a rank gives: a list that somebody reads."""

MAX_OVERLAP: Final = 1_440
"""Windows that one tuple may be in, as many as a day has minutes: each reads it, or its pane."""


def check_shape(box: Box) -> None:
    """Check names, ports and windows, which need no schema.

    Raises:
        InvalidInputError: names the box and the reason.
    """
    with about(f"box {box.name[:MAX_BOX_NAME]!a}"):
        if not 0 < len(box.name) <= MAX_BOX_NAME or not box.name.isprintable():
            raise InvalidInputError(f"its name must have 1 to {MAX_BOX_NAME} printable characters")
        streams = (*box.inputs, *box.outputs)
        for stream in streams:
            if not stream or not stream.isprintable():
                raise InvalidInputError(f"{stream[:80]!a} is not the name of a stream")
        refuse_repeated("stream", streams)
        _check_parameters(box)


def _check_parameters(box: Box) -> None:
    match box:
        case Filter():
            _check_ports(box)
        case Map():
            if not box.expressions:
                raise InvalidInputError("a map needs at least one output field")
        case Union():
            if not 0 < len(box.inputs) <= MAX_PORTS:
                raise InvalidInputError(f"a union takes 1 to {MAX_PORTS} inputs")
        case _:
            _check_state(box)


def _check_state(
    box: Aggregate | Sessions | Cumulate | TupleWindows | Rank | Join | Match | Totals | Top,
) -> None:
    """Check the parameters of a box whose results depend on more than one tuple."""
    match box:
        case Aggregate() | Sessions() | Cumulate():
            _check_aggregate(box)
        case Rank():
            _check_rank(box)
        case Join():
            _check_bounds(box)
        case Totals():
            totals.check_totals(box)
        case TupleWindows():
            tuple_windows.check_tuple_windows(box)
        case Top():
            totals.check_top(box)
        case Match():
            if not 0 < box.within_us <= MAX_WINDOW_US:
                raise InvalidInputError("within must be more than 0 and at most 366 days")
            matches.check_pattern(box)


def _check_ports(box: Filter) -> None:
    wanted = len(box.predicates) + box.pass_on_false
    if not box.predicates:
        raise InvalidInputError("a filter needs at least one expression")
    if wanted > MAX_PORTS:
        raise InvalidInputError(f"a filter has at most {MAX_PORTS} outputs, not {wanted}")
    if len(box.outputs) != wanted:
        raise InvalidInputError(
            f"it has {len(box.outputs)} outputs for {len(box.predicates)} expressions"
            f"{' and the false port' if box.pass_on_false else ''}; {wanted} are needed"
        )


def _check_aggregate(box: Aggregate | Sessions | Cumulate) -> None:
    match box:
        case Aggregate():
            _check_window(box)
        case Sessions():
            _check_sessions(box)
        case Cumulate():
            _check_cumulate(box)
    if not box.functions:
        raise InvalidInputError("an aggregate needs at least one function")
    for each in box.functions:
        if each.argument is None and each.function is not Function.COUNT:
            raise InvalidInputError(f"{each.function} needs an argument, like {each.function}(x)")
        check_parameter(each)


def _check_window(box: Aggregate) -> None:
    size, advance = box.size_us, box.advance_us
    if not 0 < size <= MAX_WINDOW_US:
        raise InvalidInputError(f"its window of {size / 1e6:g} s is not between 0 and 366 days")
    if not 0 < advance <= MAX_WINDOW_US:
        raise InvalidInputError(
            f"it advances by {advance / 1e6:g} s; it must be more than 0 and up to 366 days"
        )
    if size > advance * MAX_OVERLAP:
        raise InvalidInputError(f"more than {MAX_OVERLAP} of its windows overlap: advance by more")


def _check_sessions(box: Sessions) -> None:
    gap, longest = box.gap_us, box.longest_us
    if not 0 < longest <= MAX_WINDOW_US:
        raise InvalidInputError(
            f"its longest session of {longest / 1e6:g} s is not between 0 and 366 days"
        )
    if not 0 < gap <= longest:
        raise InvalidInputError(
            f"its gap of {gap / 1e6:g} s must be more than 0 and at most its longest session, "
            f"{longest / 1e6:g} s"
        )


def _check_cumulate(box: Cumulate) -> None:
    step, size = box.step_us, box.size_us
    if not 0 < size <= MAX_WINDOW_US:
        raise InvalidInputError(f"its window of {size / 1e6:g} s is not between 0 and 366 days")
    if step <= 0 or size % step:
        raise InvalidInputError(
            f"its step of {step / 1e6:g} s does not divide its size of {size / 1e6:g} s"
        )
    if size > step * MAX_OVERLAP:
        raise InvalidInputError(f"a window grows in {MAX_OVERLAP} steps at most: take longer ones")


def _check_rank(box: Rank) -> None:
    if not 0 < box.size_us <= MAX_WINDOW_US:
        raise InvalidInputError(f"its window of {box.size_us / 1e6:g} s is not up to 366 days")
    if not 0 < box.most <= MAX_RANKS:
        raise InvalidInputError(
            f"it gives the first {box.most:,} tuples; 1 to {MAX_RANKS:,} can be"
        )
    refuse_repeated("field of its order", [each.field for each in box.order_by])
    refuse_repeated("field of its partitions", box.partition_by)


def _check_bounds(box: Join) -> None:
    before, after = box.before_us, box.after_us
    if before + after < 0:
        raise InvalidInputError(
            f"no pair is within its bounds of time: {before / 1e6:g} s before, {after / 1e6:g} s "
            "after"
        )
    if max(abs(before), abs(after)) > MAX_WINDOW_US:
        raise InvalidInputError("its bounds of time are more than 366 days")
    if box.kind in joins.AS_OF and before > 0 and after > 0:
        raise InvalidInputError(
            f"{box.kind.words} looks one way: back with after 0 or less, forward with before 0 "
            f"or less; here before is {before / 1e6:g} s and after {after / 1e6:g} s"
        )
    if not box.expressions:
        raise InvalidInputError("a join needs at least one output field")


def refuse_repeated(what: str, names: Sequence[str]) -> None:
    for name, times in Counter(names).items():
        if times > 1:
            raise InvalidInputError(f"{what} {name[:80]!a} occurs {times} times")


@contextmanager
def about(what: str) -> Iterator[None]:
    """Put `what` before the text of an InvalidInputError of the block."""
    try:
        yield
    except InvalidInputError as error:
        raise InvalidInputError(f"{what}: {error}") from None
