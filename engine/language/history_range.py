"""Queries over a part of their inputs' history, and copies of queries over such a part.

A copy has the same boxes and its own streams. It gives the tuples that the original gave over that
time: tasks are functions of epochs, and windows are aligned to the epoch. Windows that begin before
that time, or end after it, are incomplete and omitted.
"""

from __future__ import annotations

from medusa.engine.objects.availability import Availability
from medusa.engine.objects.definitions import QueryEntry
from medusa.engine.objects.query import Query, streams_written
from medusa.engine.objects.schema import BEGINNING, END
from medusa.overlay.errors import InvalidInputError
from medusa.overlay.names import ObjectName


def check_history_range(query: Query) -> None:
    """Check the boundaries and the version of a query over history.

    Raises:
        InvalidInputError: an empty interval, a negative version, or a bound of a query that ends.
    """
    if not BEGINNING <= query.after < query.until <= END or query.after == END - 1:
        raise InvalidInputError(
            f"query {query.name}: it cannot be computed from {query.after} until {query.until}: "
            "the end must be later"
        )
    if query.version < 0:
        raise InvalidInputError(f"query {query.name}: its version is negative")
    if query.until < END and query.availability.bound_s:
        raise InvalidInputError(
            f"query {query.name}: one that ends has no bound: its results are of the past"
        )


def copy_of(entry: QueryEntry, name: str, after: int, until: int) -> Query:
    """The same boxes as a query that reads its inputs from boundary `after` to boundary `until`.

    * Each readable stream of the original is one of the copy, as `name`/path, with the readers
      that are declared for it there.
    * The copy has no standby: its results can be computed again.

    Raises:
        InvalidInputError: the query or one of its names is invalid.
    """
    original = entry.query
    copy = ObjectName.parse(name)
    names = {
        stream: str(copy.child(_within(stream, original.name)))
        for stream in streams_written(original)
    }
    if len(set(names.values())) < len(names):
        names = {s: str(copy.child(ObjectName.parse(s).path)) for s in names}

    declared = {**entry.readers, **dict(original.readers)}

    def new_name(stream: str) -> str:
        return names.get(stream, stream)

    query = Query(
        name,
        tuple(box.renamed(new_name) for box in original.boxes),
        # as with any query, streams of revisions are added
        tuple(names[stream] for stream in entry.outputs if stream in names),
        Availability(),
        after=after,
        until=until,
        version=original.version + 1,
        readers=tuple((new_name(stream), given) for stream, given in declared.items()),
    )
    check_history_range(query)
    return query


def _within(stream: str, query: str) -> str:
    """A stream's path, relative to the query's name if it begins with that name."""
    if stream.startswith(f"{query}/"):
        return stream.removeprefix(f"{query}/")
    return ObjectName.parse(stream).path
