"""Writes a query as XML: `read_document` gives the same query back."""

from __future__ import annotations

from xml.sax.saxutils import quoteattr  # writes, does not parse

from engine.language.check import ordered_boxes
from engine.language.xml.boxes import parameters_of, type_of, us_to_seconds
from engine.language.xml.documents import read_document
from engine.objects.availability import Availability, Mode
from engine.objects.query import Query, inputs_of, outputs_of
from engine.objects.schema import BEGINNING, END
from overlay.errors import InvalidInputError


def write_query(query: Query) -> str:
    """The canonical document of a query: `read_document` gives the same query back.

    Raises:
        InvalidInputError: it is no query, or has characters that XML cannot carry.
    """
    ordered_boxes(query)
    attributes = [("name", query.name), *_availability(query.availability), *_past(query)]
    told = " ".join(f"{name}={quoteattr(value)}" for name, value in attributes)
    lines = [f"<query {told}>"]
    for box in query.boxes:
        lines.append(f"  <box name={quoteattr(box.name)} type={quoteattr(type_of(box))}>")
        for tag, streams in (("input", inputs_of(box)), ("output", outputs_of(box))):
            lines += [
                f'    <{tag} port="{port}" stream={quoteattr(stream)}/>'
                for port, stream in enumerate(streams, 1)
            ]
        lines += [
            f"    <param name={quoteattr(name)} value={quoteattr(value)}/>"
            for name, value in parameters_of(box)
        ]
        lines.append("  </box>")
    lines += [f"  <output stream={quoteattr(stream)}/>" for stream in query.outputs]
    text = "\n".join([*lines, "</query>", ""])
    # one test for all that could go wrong on the way: it must read back the same
    if read_document(text).queries != (query,):
        raise InvalidInputError(f"query {query.name} cannot be written as XML")
    return text


def _availability(availability: Availability) -> list[tuple[str, str]]:
    """The attributes from which the same is read; none for the default."""
    found = []
    if availability.mode is not Mode.NONE:
        found += [("ha", availability.mode.value), ("recovery", availability.recovery.value)]
    if availability.bound_s:
        found.append(("bound", _seconds(availability.bound_s)))
    if availability.mode is Mode.PASSIVE_STANDBY:
        found.append(("checkpoint", _seconds(availability.checkpoint_s)))
    if availability.secondary:
        found.append(("secondary", availability.secondary))
    return found


def _past(query: Query) -> list[tuple[str, str]]:
    """The attributes from which the same is read; none for a query over everything."""
    found = []
    if query.after > BEGINNING:
        found.append(("from", us_to_seconds(query.after)))
    if query.until < END:
        found.append(("until", us_to_seconds(query.until)))
    if query.version:
        found.append(("version", str(query.version)))
    return found


def _seconds(seconds: float) -> str:
    return us_to_seconds(round(seconds * 1e6))
