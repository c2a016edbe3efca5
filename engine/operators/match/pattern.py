"""Patterns of sequences: their text, the fields that their conditions see, and their automaton.

A pattern is a list of variables, each with a quantifier. Its automaton has a state for each
variable and the number of tuples that the variable has taken. Two ways of a match to one state,
over the same tuples, are one from then on: the preferred one. So a match that begins with a tuple
is looked for in at most as many ways as there are states (Thompson, Regular Expression Search
Algorithm, CACM 1968; with preferences: Pike's VM, as in Cox, Regular Expression Matching: the
Virtual Machine Approach, 2009). After Wu, Diao, Rizvi, High-Performance Complex Event Processing
over Streams (SIGMOD 2006), and MATCH_RECOGNIZE of SQL:2016. ADR 34 has what differs from both.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

import msgspec

from medusa.engine.objects.query import (
    Contiguity,
    Match,
    PatternStep,
)
from medusa.engine.objects.schema import STIME
from medusa.overlay.alternatives import alternatives
from medusa.overlay.errors import InvalidInputError

MAX_VARIABLES: Final = 32
"""Variables of a pattern: the condition of each may stand after each one before it."""

MAX_STATES: Final = 256
"""States of a pattern's automaton: that many partial matches may be examined for one tuple."""

MAX_TUPLES: Final = 1_024
"""The most consecutive tuples of a partition among which one match is searched, counted from the
match's first tuple. A job holds that many in memory for each tuple."""

ANY_TUPLE: Final = PatternStep("").condition

PREVIOUS: Final = "prev"
"""The prefix, in conditions, of fields of the tuple before in the match."""

FUNCTIONS: Final = frozenset(
    {
        "count",
        "sum",
        "min",
        "max",
        "avg",
        "firstval",
        "lastval",
    }
)
"""The functions that measures may call."""

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")

_ITEM: Final = re.compile(
    r"\s*(?P<not>!\s*)?(?P<name>[A-Za-z_][A-Za-z0-9_]{0,63})\s*"
    r"(?P<count>[?*+]|\{\s*(?P<least>\d{0,4})\s*(?P<comma>,)?\s*(?P<most>\d{0,4})\s*\})?"
    r"\s*(?P<reluctant>\?)?\s*"
)

_SIGNS: Final[dict[str, tuple[int, int | None]]] = {"?": (0, 1), "*": (0, None), "+": (1, None)}


# -- text ------------------------------------------------------------------------------------------


def read_pattern(text: str) -> tuple[PatternStep, ...]:
    """The steps of a pattern like `A B{2,5} !N C+?`, without conditions.

    Raises:
        InvalidInputError: the text is no pattern; the message names the place.
    """
    steps: list[PatternStep] = []
    place = 0
    while place < len(text) or not steps:
        found = _ITEM.match(text, place)
        if found is None or len(steps) == MAX_VARIABLES:
            rest = text[place : place + 20].strip()
            if len(steps) == MAX_VARIABLES:
                raise InvalidInputError(f"a pattern has at most {MAX_VARIABLES} variables")
            raise InvalidInputError(
                f"the pattern is wrong at {rest!a}: it is variables in a row, each with ?, *, +, "
                "{n}, {n,} or {n,m} behind it, like A B+ C{2,5}"
            )
        least, most = _quantifier(found)
        steps.append(
            PatternStep(
                found["name"],
                least=least,
                most=most,
                reluctant=found["reluctant"] is not None,
                negated=found["not"] is not None,
            )
        )
        place = found.end()
    return tuple(steps)


def _quantifier(found: re.Match[str]) -> tuple[int, int | None]:
    sign = found["count"]
    if sign is None:
        return 1, 1
    if sign in _SIGNS:
        return _SIGNS[sign]
    least, most = found["least"], found["most"]
    if not least and not most:
        raise InvalidInputError(f"{sign} says no number of tuples: say {{n}}, {{n,}} or {{n,m}}")
    if found["comma"] is None:
        return int(least + most), int(least + most)
    return int(least or 0), int(most) if most else None


def pattern_text(steps: Sequence[PatternStep]) -> str:
    """Write the text that `read_pattern` reads."""
    return " ".join(map(_step_text, steps))


def _step_text(step: PatternStep) -> str:
    count = {(1, 1): "", (0, 1): "?", (0, None): "*", (1, None): "+"}.get((step.least, step.most))
    if count is None:
        most = "" if step.most is None else step.most
        count = f"{{{step.least}}}" if step.least == most else f"{{{step.least},{most}}}"
    if step.reluctant and not count:
        count = "{1}"
    return f"{'!' * step.negated}{step.variable}{count}{'?' * step.reluctant}"


def conditioned(
    steps: Sequence[PatternStep], variables: Sequence[str], conditions: Sequence[str]
) -> tuple[PatternStep, ...]:
    """The steps with the conditions of their variables; one without a condition takes any tuple.

    Raises:
        InvalidInputError: a variable is not in the pattern, or has two conditions.
    """
    if len(variables) != len(conditions):
        raise InvalidInputError(
            f"it has {len(variables)} variables and {len(conditions)} conditions"
        )
    known = {step.variable for step in steps}
    for number, name in enumerate(variables):
        if name not in known or name in variables[:number]:
            reason = "twice among the variables" if name in known else "not in the pattern"
            raise InvalidInputError(f"{name[:64]!a} is {reason}")
    of = dict(zip(variables, conditions, strict=True))
    return tuple(
        msgspec.structs.replace(step, condition=of[step.variable]) if step.variable in of else step
        for step in steps
    )


# -- checks ----------------------------------------------------------------------------------------


def check_pattern(box: Match) -> None:
    """Check the parts of a pattern that need no schema. Raises: InvalidInputError: names the
    variable and the reason."""
    if not box.partition_by and not box.measures:
        raise InvalidInputError("a match needs at least one measure, or a field to partition by")
    if not 0 < len(box.steps) <= MAX_VARIABLES:
        raise InvalidInputError(f"a pattern has 1 to {MAX_VARIABLES} variables")
    seen: set[str] = set()
    for step in box.steps:
        _check_step(step, box.contiguity)
        if step.variable in seen:
            raise InvalidInputError(
                f"variable {step.variable} is twice in the pattern: give one another name"
            )
        seen.add(step.variable)
    _check_places(box.steps)
    for measure in box.measures:
        if measure.function not in FUNCTIONS:
            known = alternatives(measure.function, sorted(FUNCTIONS))
            raise InvalidInputError(f"{measure.function} is no measure; {known}")
        if measure.variable and measure.variable not in seen:
            raise InvalidInputError(f"{measure.variable[:64]!a} is not in the pattern")


def _check_places(steps: Sequence[PatternStep]) -> None:
    """Check which steps may follow each other, and how many states the automaton has."""
    if all(step.negated or step.least == 0 for step in steps):
        raise InvalidInputError("the pattern fits no tuples at all: one variable must take one")
    if steps[0].negated:
        raise InvalidInputError(
            f"nothing comes before !{steps[0].variable}: a pattern begins with a tuple"
        )
    for step, following in pairwise(steps):
        if following.negated and step.least == 0 and not step.negated:
            raise InvalidInputError(
                f"!{following.variable} stands behind {step.variable}, which may take no tuple: "
                "put it behind a variable that takes one"
            )
    states = sum(_counted(step) for step in steps if not step.negated)
    if states > MAX_STATES:
        raise InvalidInputError(
            f"the quantifiers of the pattern count to {states:,} together, at most {MAX_STATES} "
            "allowed"
        )


def _counted(step: PatternStep) -> int:
    return max(step.least, 1) if step.most is None else step.most


def _check_step(step: PatternStep, contiguity: Contiguity) -> None:
    name = step.variable
    if not _NAME.fullmatch(name) or name.lower() in {PREVIOUS, STIME}:
        raise InvalidInputError(
            f"{name[:64]!a} is not the name of a variable: it has letters, digits and _, and is "
            f"neither {PREVIOUS} nor {STIME}"
        )
    if step.least < 0 or (step.most is not None and not max(step.least, 1) <= step.most):
        raise InvalidInputError(f"{name} takes from {step.least} to {step.most} tuples: none can")
    if step.negated and (step.least, step.most, step.reluctant) != (1, 1, False):
        raise InvalidInputError(f"!{name} takes no tuples, so it has no quantifier")
    if step.negated and contiguity is Contiguity.STRICT:
        raise InvalidInputError(
            f"between tuples that follow each other is nothing that !{name} could be: ask for "
            f"contiguity {Contiguity.SKIP_TILL_NEXT_MATCH}"
        )


# -- types -----------------------------------------------------------------------------------------
