"""A box as the parameters of an XML document."""

from __future__ import annotations

from collections.abc import Sequence

from medusa.engine.language.aggregates import call_of
from medusa.engine.language.box_texts import measure_text, order_text
from medusa.engine.objects.query import (
    Aggregate,
    Box,
    Cumulate,
    Filter,
    Join,
    Map,
    Match,
    PatternStep,
    Rank,
    Sessions,
    Top,
    Totals,
    TupleWindows,
    Union,
)
from medusa.engine.operators.match.pattern import pattern_text


def parameters_of(box: Box) -> list[tuple[str, str]]:
    """The parameters of the box, as `read_box` takes them."""
    match box:
        case Filter():
            flag = [("pass-on-false-port", "1")] if box.pass_on_false else []
            return [*_numbered("expression", box.predicates), *flag]
        case Map():
            return [
                *_numbered("output-field-name", [name for name, _ in box.expressions]),
                *_numbered("expression", [text for _, text in box.expressions]),
            ]
        case Union():
            return []
        case Join():
            bounds = [
                ("before", _signed_seconds(box.before_us)),
                ("after", _signed_seconds(box.after_us)),
            ]
            return [
                ("predicate", box.predicate),
                ("kind", str(box.kind)),
                *([("table", "1")] if box.table else bounds),
                *_numbered("out-field-name", [name for name, _ in box.expressions]),
                *_numbered("out-field", [text for _, text in box.expressions]),
            ]
        case Match():
            return _match_parameters(box)
        case Rank():
            window = [("window-size", us_to_seconds(box.size_us))] if box.size_us > 1 else []
            return [*_order_parameters(box), *window]
        case Top():
            return _order_parameters(box)
        case _:
            return [*_function_parameters(box), *_window_parameters(box)]


def type_of(box: Box) -> str:
    return "aggregate" if isinstance(box, TupleWindows) else type(box).__name__.lower()


def _numbered(prefix: str, values: Sequence[str]) -> list[tuple[str, str]]:
    return [(f"{prefix}.{number}", value) for number, value in enumerate(values)]


def _window_parameters(
    box: Aggregate | Sessions | Cumulate | TupleWindows | Totals,
) -> list[tuple[str, str]]:
    """Write the parameters of the windows of the functions."""
    match box:
        case Aggregate():
            order = [("order-on-field", box.order_on)] if box.order_on else []
            size, advance = us_to_seconds(box.size_us), us_to_seconds(box.advance_us)
            return [("window-size", size), ("advance", advance), *order]
        case Sessions():
            longest = us_to_seconds(box.longest_us)
            return [("gap", us_to_seconds(box.gap_us)), ("longest", longest)]
        case Cumulate():
            step = us_to_seconds(box.step_us)
            return [("window-size", us_to_seconds(box.size_us)), ("step", step)]
        case Totals():
            return [("table", "1")] if box.changes else []
        case TupleWindows():
            partial = [("partial-windows", "1")] if box.partial else []
            size, advance = str(box.size), str(box.advance)
            by = ("window-size-by", "TUPLES")
            number = [("number-field", box.number)] if box.number else []
            return [by, ("window-size", size), ("advance", advance), *partial, *number]


def _function_parameters(
    box: Aggregate | Sessions | Cumulate | TupleWindows | Totals,
) -> list[tuple[str, str]]:
    """The functions and the groups."""
    return [
        *_numbered("aggregate-function", [call_of(each) for each in box.functions]),
        *_numbered("aggregate-function-output-name", [each.output for each in box.functions]),
        *([("group-by", ",".join(box.group_by))] if box.group_by else []),
    ]


def _order_parameters(box: Rank | Top) -> list[tuple[str, str]]:
    """Write the parameters of a rank: the number, the partition, and the order."""
    order = list(map(order_text, box.order_by))
    found = [("most", str(box.most)), *_numbered("order-by", order)]
    if box.partition_by:
        found.append(("partition-by", ",".join(box.partition_by)))
    if box.place:
        found.append(("place-field", box.place))
    return found


def _match_parameters(box: Match) -> list[tuple[str, str]]:
    conditions = [each for each in box.steps if each.condition != PatternStep("").condition]
    found = [
        ("pattern", pattern_text(box.steps)),
        ("within", us_to_seconds(box.within_us)),
        ("contiguity", str(box.contiguity)),
        *_numbered("variable", [each.variable for each in conditions]),
        *_numbered("condition", [each.condition for each in conditions]),
        *_numbered("measure", [measure_text(each) for each in box.measures]),
        *_numbered("measure-name", [each.output for each in box.measures]),
    ]
    if box.partition_by:
        found.append(("partition-by", ",".join(box.partition_by)))
    return found


def us_to_seconds(microseconds: int) -> str:
    """The shortest text that `seconds_to_us` reads as this."""
    whole, rest = divmod(microseconds, 1_000_000)
    return f"{whole}.{rest:06d}".rstrip("0") if rest else str(whole)


def _signed_seconds(microseconds: int) -> str:
    sign = "-" if microseconds < 0 else ""
    return sign + us_to_seconds(abs(microseconds))
