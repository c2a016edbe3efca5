"""Parts of Python programs: constants and calls."""

from __future__ import annotations

import keyword
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from medusa.engine.expressions.aggregates import call_of
from medusa.engine.expressions.spans import span_text
from medusa.engine.objects.query import AggregateCall, Rank, Top
from medusa.engine.operators.shared.texts import order_text

LINE: Final = 100
"""Most characters of a line, if the arguments of a call can be on several."""


def dictionary(texts: Mapping[str, str]) -> str:
    inside = ", ".join(f"{constant(name)}: {constant(text)}" for name, text in texts.items())
    return f"{{{inside}}}"


def named_arguments(texts: Mapping[str, str]) -> list[str]:
    """Arguments as `name='text'`; names that Python does not allow go to a dictionary."""
    return [
        f"**{{{constant(name)}: {constant(text)}}}"
        if keyword.iskeyword(name)
        else f"{name}={constant(text)}"
        for name, text in texts.items()
    ]


def constant(value: str) -> str:
    """A constant as Python text, with the quotes that formatters prefer."""
    told = repr(str(value))
    return f'"{told[1:-1]}"' if told[0] == "'" and '"' not in told else told


def call(function: str, arguments: Iterable[str]) -> str:
    """A call as Python text; on several lines if it is long."""
    told = list(arguments)
    line = f"{function}({', '.join(told)})"
    if len(line.rpartition("\n")[2]) <= LINE - 20 or len(told) < 2:
        return line
    inside = "".join(f"    {each},\n" for each in told)
    return f"{function}(\n{inside})"


def span(microseconds: int) -> str:
    """A length of time as Python text."""
    return constant(span_text(microseconds))


def grouped_python(windows: str, fields: Sequence[str]) -> str:
    """The windows with their `group_by`, as Python text."""
    return call(f"{windows}.group_by", map(constant, fields)) if fields else windows


def functions_python(
    groups: str, functions: Sequence[AggregateCall], word: str = "aggregate"
) -> str:
    """The call that computes functions of groups, as Python text."""
    return call(f"{groups}.{word}", named_arguments({f.output: call_of(f) for f in functions}))


def first_python(box: Rank | Top, groups: str) -> str:
    """The call of `first` on windows, or on a stream, as Python text."""
    order = [constant(order_text(each)) for each in box.order_by]
    arguments = [str(box.most), *([f"order=[{', '.join(order)}]"] if order else [])]
    arguments += [f"place={constant(box.place)}"] if box.place else []
    return call(f"{grouped_python(groups, box.partition_by)}.first", arguments)
