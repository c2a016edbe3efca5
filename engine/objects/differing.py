"""Differences between an object and a requested one of the same name, for people."""

from __future__ import annotations

from collections.abc import Iterable

from engine.objects.alteration import value_in_words
from engine.objects.definitions import StreamDefinition
from engine.objects.query import Query
from engine.objects.schema import Schema

SHOWN = 5
"""Things that are named in one error."""


def streams_differ(existing: StreamDefinition, asked: StreamDefinition) -> str:
    """The differing attributes, with both values; "": none. `edition` does not count, nor `leader`
    unless it is asked for."""
    ours = {"edition", "leader"} if not asked.leader else {"edition"}
    return listed(
        (
            f"{name.removesuffix('_us')} is {value_in_words(name, there)}, "
            f"not {value_in_words(name, here)}"
            for name in StreamDefinition.__struct_fields__
            if name not in ours
            and (there := getattr(existing, name)) != (here := getattr(asked, name))
        ),
        "; ",
    )


def schemas_differ(existing: Schema, asked: Schema) -> str:
    """The differing fields, time and key; "": none."""
    there = {field.name: field for field in existing.fields}
    here = {field.name: field for field in asked.fields}
    fields = [
        *(f"it has no field {name}" for name in here if name not in there),
        *(f"it has a field {name}" for name in there if name not in here),
        *(f"field {name} is another" for name in here if there.get(name, here[name]) != here[name]),
    ]
    if not fields and existing.fields != asked.fields:
        fields = ["its fields have another order"]
    time = [f"its time is {existing.time}"] if existing.time != asked.time else []
    key = [f"its key is {', '.join(existing.key) or 'none'}"] if existing.key != asked.key else []
    return listed([*fields, *time, *key], "; ")


def queries_differ(existing: Query, asked: Query) -> str:
    """The differing boxes and attributes; "": none."""
    there = {box.name: box for box in existing.boxes}
    here = {box.name: box for box in asked.boxes}
    boxes = [
        *(f"it has no box {name}" for name in here if name not in there),
        *(f"it has a box {name}" for name in there if name not in here),
        *(f"box {name} is another" for name in here if there.get(name, here[name]) != here[name]),
    ]
    if not boxes and existing.boxes != asked.boxes:
        boxes = ["its boxes have another order"]
    others = [
        f"{name} is another"
        for name in Query.__struct_fields__
        if name not in {"name", "boxes"} and getattr(existing, name) != getattr(asked, name)
    ]
    return listed([*boxes, *others], "; ")


def listed(texts: Iterable[str], between: str = ", ", most: int = SHOWN) -> str:
    """Up to `most` of the texts, for people; the others are counted."""
    found = list(texts)
    more = f" and {len(found) - most} more" if len(found) > most else ""
    return between.join(found[:most]) + more
