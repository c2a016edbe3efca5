"""PySpark's functions, imported when the first of them is called.

The rows of functions are read by clients, which have no Spark: so they name `F` of this module.
ADR 44 says why.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from medusa.engine.objects.schema import FieldType

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql import functions as F
else:
    Column = Any

    class _Late:
        def __getattr__(self, name: str) -> Callable[..., Any]:
            def function(*operands: Any, **named: Any) -> Any:  # noqa: ANN401 - any of Spark's
                return getattr(import_module("pyspark.sql.functions"), name)(*operands, **named)

            return function

    F = _Late()

__all__ = ["SPARK_NAMES", "Column", "F", "long_of"]

SPARK_NAMES: Final[Mapping[FieldType, str]] = {
    FieldType.BOOL: "boolean",
    FieldType.BYTE: "byte",
    FieldType.SHORT: "short",
    FieldType.INT: "int",
    FieldType.LONG: "long",
    FieldType.SINGLE: "float",
    FieldType.DOUBLE: "double",
    FieldType.STRING: "string",
    FieldType.TIMESTAMP: "timestamp",
}
"""Spark's names of the types of fields."""


def long_of(number: int) -> Column:
    """A literal of 64 bits."""
    return F.lit(number).cast("long")
