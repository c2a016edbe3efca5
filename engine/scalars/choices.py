"""Functions of any values: one of them, or null."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from medusa.engine.scalars.examples import Example
from medusa.engine.scalars.late import Column, F
from medusa.engine.scalars.scalar import Family, Scalar, ShortForm
from medusa.engine.scalars.signs import MANY, less
from medusa.engine.scalars.type_rules import ANY, ORDERED, Nulls, uniform


def _first(values: tuple[Any, ...], before: Callable[[Any, Any], bool]) -> Any:  # noqa: ANN401
    """Compute the first of the values in an order; nulls are skipped."""
    found = None
    for each in values:
        if found is None or (each is not None and before(each, found)):
            found = each
    return found


def _extreme(
    name: str,
    spark: Callable[..., Column],
    before: Callable[[Any, Any], bool],
    gives: str,
    result: int,
) -> Scalar:
    return Scalar(
        name,
        f"{name}(a, b)",
        "two or more numbers, strings or timestamps",
        uniform(ORDERED, most=MANY),
        Nulls.IF_ALL,
        spark=spark,
        value=lambda *values: _first(values, before),
        gives=f"{gives} of two or more; nulls are skipped.",
        examples=(Example(f"{name}(7, null, 2)", result),),
        of_nulls=True,
    )


CHOICES: Final = Family(
    "Any value",
    (
        Scalar(
            "coalesce",
            "coalesce(a, b)",
            "values of one type",
            uniform(ANY, least=1, most=MANY),
            Nulls.IF_ALL,
            spark=F.coalesce,
            value=lambda *values: next((each for each in values if each is not None), None),
            gives="The first that is not null.",
            examples=(Example("coalesce(null, 7, 2)", 7),),
            of_nulls=True,
        ),
        ShortForm(
            "ifnull",
            "ifnull(a, b)",
            "two values",
            2,
            lambda make, o: make("coalesce", o),
            "`coalesce` of two.",
            (Example("ifnull(null, 7)", 7),),
            ("nvl",),
        ),
        ShortForm(
            "nullif",
            "nullif(a, b)",
            "two values",
            2,
            lambda make, o: make("case", [make("=", o), None, o[0]]),
            "Null if both are equal, else a.",
            (Example("nullif(7, 7)", None), Example("nullif(7, 2)", 7)),
        ),
        ShortForm(
            "if",
            "if(condition, a, b)",
            "a condition and two values",
            3,
            lambda make, o: make("case", o),
            "a if the condition is true, else b.",
            (Example("if(7 > 2, 'a', 'b')", "a"),),
        ),
        _extreme("least", F.least, less, "The least", 2),
        _extreme(
            "greatest",
            F.greatest,
            lambda a, b: less(b, a),
            "The greatest, and NaN is greater than every number,",
            7,
        ),
    ),
)
