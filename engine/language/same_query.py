"""Whether two queries are the same network, whatever the words of their expressions."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from medusa.engine.expressions.user_functions import declared
from medusa.engine.language.check import check_query
from medusa.engine.objects.functions import unpinned
from medusa.engine.objects.query import Query, streams_read
from medusa.engine.objects.schema import Schema
from medusa.engine.operators.shared.step import Step
from medusa.engine.operators.typing import type_box


def is_same(one: Query, other: Query, inputs: Mapping[str, Schema]) -> bool:
    """Whether both are the same query: names, boxes, what a task computes, outputs, readers,
    availability, part of the past, functions of users.

    These do not count: the words of an expression that mean the same (`a+1` and `a + 1`), the order
    of the boxes, outputs that no box reads (they are outputs anyway), the author's order of a
    window, panes, fingerprints of functions.

    Args:
        inputs: the schemas of the streams that the queries read and do not make. Raises:
            InvalidInputError: a query does not type-check.
    """
    one, other = (
        msgspec.structs.replace(each, functions=unpinned(each.functions)) for each in (one, other)
    )
    return _plain(one) == _plain(other) and _steps(one, inputs) == _steps(other, inputs)


def _plain(query: Query) -> Query:
    """The query without expressions, its parts in a canonical order."""
    read = streams_read(query)
    return msgspec.structs.replace(
        query,
        boxes=tuple(sorted((box.without_words() for box in query.boxes), key=lambda box: box.name)),
        outputs=tuple(sorted({stream for stream in query.outputs if stream in read})),
        readers=tuple(sorted(query.readers)),
        panes=(),
    )


def _steps(query: Query, inputs: Mapping[str, Schema]) -> dict[str, Step]:
    """Return the steps that make each stream, except unions, which have no step."""
    schemas = check_query(query, inputs)
    return {
        stream: step
        for box in query.boxes
        for stream, step in type_box(box, schemas, functions=declared(query)).steps.items()
    }
