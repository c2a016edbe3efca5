"""The order of tuples within a partition, of which the first few are kept."""

from __future__ import annotations

from medusa.engine.objects.query import Rank, Top
from medusa.engine.objects.schema import Schema
from medusa.overlay.alternatives import alternatives
from medusa.overlay.errors import InvalidInputError


def check_order(box: Rank | Top, schema: Schema) -> None:
    """Check the fields of a box's partitions and order.

    Args:
        schema: the schema of its input.

    Raises: InvalidInputError: a name is no field.
    """
    known = {field.name: field.type for field in schema.fields}
    for name in (*box.partition_by, *(each.field for each in box.order_by)):
        if name not in known:
            raise InvalidInputError(
                f"it goes by {name[:64]!a}, which is no field; {alternatives(name, known, known)}"
            )


def newest_first(box: Rank | Top, schema: Schema) -> bool:
    """Whether the order has the stream's time descending: then ties are in the reverse of the
    stream's order, too."""
    return any(each.field == schema.time and each.descending for each in box.order_by)
