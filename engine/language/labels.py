"""Computes the labels of a query's streams, box by box, from the policies of its inputs."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from medusa.engine.language.check import ordered_boxes
from medusa.engine.objects.definitions import ANY, MAX_POLICIES, Policy, StreamEntry, base_of
from medusa.engine.objects.query import Query
from medusa.overlay.errors import InvalidInputError
from medusa.overlay.names import ObjectName

Readers = tuple[str, ...]
"""The readers of one stream, as its owner declares them."""


def labels(
    query: Query, inputs: Mapping[str, StreamEntry], declared: Mapping[str, Readers]
) -> Mapping[str, tuple[Policy, ...]]:
    """The label of every stream that a query makes: the policies of all streams it is made from.

    A stream with declared readers has no policy whose `declassify` names the query's owner.

    Args:
        inputs: the streams that others make and it reads. declared: readers of streams that it
            makes.

    Raises:
        InvalidInputError: a stream would have more than `MAX_POLICIES`.
    """
    known = tuple((name, e.stream.policies) for name, e in inputs.items() if e.stream.policies)
    return _labels(query, known, tuple(sorted(declared.items()))) if known or declared else {}


@lru_cache(maxsize=64)  # called for each stream of a query
def _labels(
    query: Query,
    inputs: tuple[tuple[str, tuple[Policy, ...]], ...],
    declared: tuple[tuple[str, Readers], ...],
) -> Mapping[str, tuple[Policy, ...]]:
    owner, readers = ObjectName.parse(query.name).participant, dict(declared)
    policies = {name: frozenset(found) for name, found in inputs}
    found: dict[str, tuple[Policy, ...]] = {}
    for box in ordered_boxes(query):
        read = frozenset[Policy]().union(*(policies.get(n, frozenset()) for n in box.inputs))
        for stream in box.outputs:
            label, own = read, readers.get(stream)
            if own is not None:
                label = frozenset(each for each in read if owner not in each.declassify)
            if len(label) > MAX_POLICIES:
                raise InvalidInputError(
                    f"{stream} would be made of {len(label)} streams that have restricted readers, "
                    f"at most {MAX_POLICIES} allowed: make several queries of {query.name}"
                )
            found[stream] = tuple(sorted(label))
            if own is not None and ANY not in own:
                label |= {Policy(stream, own)}
            policies[stream] = label
    return found


def label_of(labels: Mapping[str, tuple[Policy, ...]], stream: str) -> tuple[Policy, ...]:
    """The label of a stream that a query makes, or of that stream's revisions."""
    return labels.get(base_of(stream), ())
