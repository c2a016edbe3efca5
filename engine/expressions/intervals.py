"""The length of an INTERVAL."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Final

from sqlglot import exp

from medusa.engine.expressions.texts import Text
from medusa.engine.objects.schema import FieldType
from medusa.engine.scalars.time_units import CALENDAR_UNITS, UNITS_US, unit_of
from medusa.engine.scalars.type_rules import INTEGER_RANGE

_AMOUNT: Final = re.compile(r"[+-]?[0-9]{1,19}(\.[0-9]{1,6})?")


def interval_us(node: exp.Expr, source: Text) -> int:
    """The length of an INTERVAL, microseconds.

    Raises:
        InvalidInputError: an error of `source`: the node has no fixed length, or is no interval.
    """
    unit = node.args.get("unit")
    if not (isinstance(node, exp.Interval) and isinstance(node.this, exp.Literal)) or unit is None:
        raise source.refusal("here comes an interval, like INTERVAL '10' SECOND", node)
    name, amount = unit_of(unit.name), node.this.name.strip()
    if name in CALENDAR_UNITS:
        raise source.refusal(f"a {name} has no fixed length: write the interval in days", node)
    if name not in UNITS_US:
        reason = f"an interval's unit is one of {', '.join(UNITS_US)}, like INTERVAL '10' SECOND"
        raise source.refusal(reason, node)
    if _AMOUNT.fullmatch(amount) is None:
        raise source.refusal(f"{amount[:40]!a} is not a number of {name}s", node)
    length = round(Decimal(amount) * UNITS_US[name])
    if length not in INTEGER_RANGE[FieldType.LONG]:
        raise source.refusal("the interval is longer than any two timestamps are apart", node)
    return length
