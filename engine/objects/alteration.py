from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec
from msgspec import UNSET, Struct, UnsetType

from medusa.engine.objects.definitions import Idle, StreamDefinition, check_stream
from medusa.engine.objects.functions import unpinned
from medusa.engine.objects.query import Box, Query
from medusa.engine.objects.schema import Field, Schema
from medusa.overlay.errors import InvalidInputError


class Alteration(Struct, frozen=True, omit_defaults=True):
    """New values for some attributes of a `StreamDefinition`, which describes them; UNSET:
    unchanged."""

    readers: tuple[str, ...] | UnsetType = UNSET
    writers: tuple[str, ...] | UnsetType = UNSET
    declassify: tuple[str, ...] | UnsetType = UNSET
    slack_us: int | UnsetType = UNSET
    history_us: int | UnsetType = UNSET
    idle: Idle | UnsetType = UNSET
    max_ahead_us: int | UnsetType | None = UNSET
    lateness_us: int | UnsetType = UNSET
    idle_timeout_us: int | UnsetType = UNSET

    @property
    def changes(self) -> dict[str, object]:
        """The values by attribute."""
        fields = ((name, getattr(self, name)) for name in self.__struct_fields__)
        return {name: value for name, value in fields if value is not UNSET}

    def in_words(self) -> str:
        """The changes, for people."""
        return ", ".join(
            f"{name.removesuffix('_us')} {value_in_words(name, value)}"
            for name, value in self.changes.items()
        )

    def then(self, later: Alteration) -> Alteration:
        """Return this alteration, followed by a later one."""
        return msgspec.structs.replace(self, **later.changes)


def value_in_words(name: str, value: object) -> str:
    """The value of a stream's attribute as text for people."""
    if isinstance(value, tuple):
        return ", ".join(map(str, value)) or "nobody"
    if name.endswith("_us") and isinstance(value, int):
        return f"{value / 1e6:g} s"
    return "none" if value is None else str(value)


OF_OUTPUTS = frozenset({"readers", "history_us"})
"""The attributes of a query's output that can change. The others concern posts, which it does not
take, or time, which comes from its inputs."""


def altered(stream: StreamDefinition, alteration: Alteration) -> StreamDefinition:
    """The definition of the next edition; the same definition if nothing changes.

    Raises:
        InvalidInputError: an invalid definition, or an attribute that the stream does not have.
    """
    if stream.view is not None:
        raise InvalidInputError(
            f"{stream.name} is a view of {stream.view.stream}: it has what that one has"
        )
    others = sorted(alteration.changes.keys() - OF_OUTPUTS) if stream.query else []
    if others:
        raise InvalidInputError(
            f"{stream.name} is produced by {stream.query}: it has no "
            f"{others[0].removesuffix('_us')}; its readers and its history can be altered"
        )
    found = msgspec.structs.replace(stream, **alteration.changes)
    if found == stream:
        return stream
    check_stream(found)
    was, becomes = stream.lateness_us, found.lateness_us
    if was != becomes and not 0 < becomes < was:
        raise InvalidInputError(
            f"{stream.name}: its lateness of {was / 1e6:g} s can only become less, and not 0: the "
            "queries that read it keep their inputs for that long: create another stream"
        )
    return msgspec.structs.replace(found, edition=stream.edition + 1)


SHOWN = 5
"""Most differences that one error names."""


def streams_differ(existing: StreamDefinition, asked: StreamDefinition) -> str:
    """The differing attributes, with both values; "": none. `edition` does not count, nor do a
    `leader` or readers that the request does not name: an existing stream keeps its own."""
    ours = {"edition"}
    ours |= set() if asked.leader else {"leader"}
    ours |= {"readers"} if asked.readers is UNSET else set()
    return listed(
        (
            f"{name.removesuffix('_us')} is {value_in_words(name, there)}, "
            f"not {value_in_words(name, here)}"
            for name in StreamDefinition.__struct_fields__
            if name not in ours and (there := _said(existing, name)) != (here := _said(asked, name))
        ),
        "; ",
    )


def _said(stream: StreamDefinition, name: str) -> object:
    return stream.admitted if name == "readers" else getattr(stream, name)


def schemas_differ(existing: Schema, asked: Schema) -> str:
    """The differences in fields, time and key, in words; "": none."""
    fields = _parts_differ("field", "fields", existing.fields, asked.fields)
    time = [f"its time is {existing.time}"] if existing.time != asked.time else []
    key = [f"its key is {', '.join(existing.key) or 'none'}"] if existing.key != asked.key else []
    return listed([*fields, *time, *key], "; ")


_DECIDED: Final = {"name", "boxes", "panes"}
"""Attributes of a query that do not define it, or that are compared separately."""


def queries_differ(existing: Query, asked: Query) -> str:
    """The differing boxes and attributes, in words; "": none. Panes are decided by the query's
    peer, and so are the functions that a document does not declare."""
    boxes = _parts_differ("box", "boxes", existing.boxes, asked.boxes)
    others = [
        f"{name} is another"
        for name in Query.__struct_fields__
        if name not in {"name", "boxes", "panes", "functions"}
        and getattr(existing, name) != getattr(asked, name)
    ]
    there = {each.name: each for each in unpinned(existing.functions)}
    functions = [
        f"function {each.name} is another"
        for each in unpinned(asked.functions)
        if there.get(each.name, each) != each
    ]
    return listed([*boxes, *others, *functions], "; ")


def _parts_differ(
    kind: str, kinds: str, existing: Sequence[Field | Box], asked: Sequence[Field | Box]
) -> list[str]:
    there = {part.name: part for part in existing}
    here = {part.name: part for part in asked}
    found = [
        *(f"it has no {kind} {name}" for name in here if name not in there),
        *(f"it has a {kind} {name}" for name in there if name not in here),
        *(f"{kind} {n} is another" for n, part in here.items() if there.get(n, part) != part),
    ]
    if not found and existing != asked:
        return [f"its {kinds} have another order"]
    return found


def listed(texts: Iterable[str], between: str = ", ", most: int = SHOWN) -> str:
    """Up to `most` of the texts, for people; the others are counted."""
    found = list(texts)
    more = f" and {len(found) - most} more" if len(found) > most else ""
    return between.join(found[:most]) + more
