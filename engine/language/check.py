"""Type-checking of query networks."""

from __future__ import annotations

from collections.abc import Mapping
from graphlib import CycleError, TopologicalSorter
from typing import Final

import msgspec

from medusa.engine.expressions.user_functions import check_declared, declared
from medusa.engine.language.classes import applied, check_availability
from medusa.engine.language.folding import check_panes
from medusa.engine.language.history_range import check_history_range
from medusa.engine.objects.availability import AvailabilityRequest
from medusa.engine.objects.query import (
    Box,
    Query,
    streams_read,
    streams_written,
)
from medusa.engine.objects.schema import BEGINNING, END, Schema
from medusa.engine.operators.shared.operator import about, refuse_repeated
from medusa.engine.operators.typing import check_shape, type_box
from medusa.overlay.errors import InvalidInputError

MAX_BOXES: Final = 256
"""Boxes in one query: each costs a peer a task at worst."""


def check_query(query: Query, known: Mapping[str, Schema]) -> dict[str, Schema]:
    """The schemas of all streams that the query reads or makes.

    Args:
        known: schemas of streams that others make; the query may not make one of them.

    Raises:
        InvalidInputError: an unknown stream, two producers of one, a loop, a type error, more
            availability than its boxes allow...
    """
    schemas = inputs_of_checked(query, known)
    with about(f"query {query.name}"):
        for box in ordered_boxes(query):
            schemas.update(type_box(box, schemas, functions=declared(query)).schemas)
    return schemas


def inputs_of_checked(query: Query, known: Mapping[str, Schema]) -> dict[str, Schema]:
    """Check all of a query but its types; gives the schemas of its inputs.

    Args:
        known: see `check_query`.

    Raises:
        InvalidInputError: as `check_query`, but for type errors.
    """
    ordered_boxes(query)
    check_declared(query)
    check_availability(query, query.availability)
    check_history_range(query)
    check_panes(query)
    written = streams_written(query)
    for name in sorted(written):
        if name in known:
            raise InvalidInputError(
                f"query {query.name}: stream {name} is produced elsewhere already"
            )
    schemas: dict[str, Schema] = {}
    for name in sorted(streams_read(query) - written):
        if name not in known:
            raise InvalidInputError(f"query {query.name}: there is no stream {name}")
        schemas[name] = known[name]
    return schemas


def completed(
    query: Query,
    request: AvailabilityRequest,
    *,
    after: int = BEGINNING,
    until: int = END,
    version: int = 0,
) -> Query:
    """The query of a text, with its availability and its part of the past. Its types are checked
    when it is created.

    Raises:
        InvalidInputError: the network's shape is wrong, whatever the schemas, the availability is
            more than its boxes allow, or there is no such part.
    """
    ordered_boxes(query)
    query = applied(query, request)
    query = msgspec.structs.replace(query, after=after, until=until, version=version)
    check_history_range(query)
    return query


def ordered_boxes(query: Query) -> list[Box]:
    """The boxes, each after those whose output it reads.

    Raises:
        InvalidInputError: the network's shape is wrong, whatever the schemas.
    """
    with about(f"query {query.name}"):
        _check_network(query)
        makers = {
            stream: number for number, box in enumerate(query.boxes) for stream in box.outputs
        }
        sorter = TopologicalSorter(
            {
                number: [makers[stream] for stream in box.inputs if stream in makers]
                for number, box in enumerate(query.boxes)
            }
        )
        ordered: list[Box] = []
        try:
            sorter.prepare()
        except CycleError as error:
            names = ", ".join(query.boxes[number].name for number in sorted(set(error.args[1])))
            raise InvalidInputError(f"the boxes {names} form a loop") from None
        while sorter.is_active():
            ready = sorted(sorter.get_ready())
            ordered += [query.boxes[number] for number in ready]
            sorter.done(*ready)
        return ordered


def _check_network(query: Query) -> None:
    if not 0 < len(query.boxes) <= MAX_BOXES:
        raise InvalidInputError(f"it has {len(query.boxes)} boxes; 1 to {MAX_BOXES} are allowed")
    for box in query.boxes:
        check_shape(box)
    refuse_repeated("box name", [box.name for box in query.boxes])
    producers: dict[str, str] = {}
    for box in query.boxes:
        for stream in box.outputs:
            if stream in producers:
                raise InvalidInputError(
                    f"stream {stream} has two producers, boxes {producers[stream]} and {box.name}"
                )
            producers[stream] = box.name
    for stream in query.outputs:
        if stream not in producers:
            raise InvalidInputError(f"output stream {stream[:80]!a} is made by no box of it")
    refuse_repeated("output stream", query.outputs)
