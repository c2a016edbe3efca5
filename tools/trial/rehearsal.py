"""A document over recorded files: what a trial creates, in a federation of one participant."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from msgspec import structs

from engine.language.document import Document, read_draft
from engine.language.history_range import renamed
from engine.objects.availability import Availability
from engine.objects.definitions import MAX_SPAN_US, StreamDefinition
from engine.objects.query import Query, inputs_of, outputs_of, streams_read
from engine.objects.schema import Schema
from overlay.errors import InvalidInputError, NotFoundError
from overlay.names import SCHEME, ObjectName
from tools.trial.recordings import schema_of_file

SELF: Final = "you"
"""The participant of names without one, where there is no home that says another."""


@dataclass(frozen=True, slots=True)
class Trial:
    """What is created, and the files that are posted.

    Attributes:
        files: by source stream. outputs: the streams whose tuples are the answer, in order.
        shown: the names that the document gives streams of other participants.
    """

    participant: str
    document: Document
    files: Mapping[str, Path]
    outputs: tuple[str, ...]
    shown: Mapping[str, str]


def trial_of(text: str, files: Mapping[str, Path], time: str | None, own: str = SELF) -> Trial:
    """The trial of a document.

    Args:
        files: by the streams' names as they were given.
        time: see `tools.trial.recordings.schema_of_file`.
        own: the participant of names without one.

    Raises:
        InvalidInputError: the document or a file is wrong; names the place and the reason.
        NotFoundError: no file is given for a stream, or there is no such file.
    """
    base = f"{SCHEME}{own}/"
    draft = read_draft(text, base)
    given = {_qualified(name, base): file for name, file in files.items()}
    if draft.uses:
        raise NotFoundError(f"schema {min(draft.uses)} is not defined in the query")
    read = {
        name: schema_of_file(_file_of(name, given), f"{name}/schema", time)
        for name in sorted(draft.reads)
    }
    document = draft.complete(read, {})
    made = {
        stream for query in document.queries for box in query.boxes for stream in outputs_of(box)
    }
    for name in sorted({s for q in document.queries for s in streams_read(q)} - made):
        if name not in read and all(stream.name != name for stream in document.streams):
            read[name] = schema_of_file(_file_of(name, given), f"{name}/schema", time)
    if not document.queries:
        raise InvalidInputError("it has no query to try")
    for stream in document.streams:
        if stream.name not in made:
            _file_of(stream.name, given)
    unknown = sorted(set(given) - read.keys() - {each.name for each in document.streams})
    if unknown:
        raise InvalidInputError(f"--stream {unknown[0]}: the query reads no such stream")
    return _ours(document, read, given)


def _qualified(name: str, base: str) -> str:
    return str(ObjectName.parse(name if name.startswith(SCHEME) else f"{base}{name}"))


def _file_of(stream: str, given: Mapping[str, Path]) -> Path:
    if stream not in given:
        raise NotFoundError(
            f"the query reads {stream}: say --stream {stream.rpartition('/')[2]}=FILE"
        )
    return given[stream]


def _ours(document: Document, read: Mapping[str, Schema], given: Mapping[str, Path]) -> Trial:
    """The document with all objects as ours: a peer can create no others."""
    participant = ObjectName.parse(document.queries[0].name).participant
    shown: dict[str, str] = {}

    def own_name(name: str) -> str:
        parsed = ObjectName.parse(name)
        if parsed.participant == participant:
            return name
        made = f"{SCHEME}{participant}/of.{parsed.participant}/{parsed.path}"
        shown[made] = name
        return made

    schemas = [*document.schemas, *read.values()]
    streams = [
        *document.streams,
        *(StreamDefinition(name, schema.name) for name, schema in read.items()),
    ]
    queries = [_alone(query, own_name) for query in document.queries]
    outputs = [stream for query in document.queries for stream in _answers(query)]
    return Trial(
        participant,
        Document(
            tuple(structs.replace(each, name=own_name(each.name)) for each in schemas),
            tuple(
                structs.replace(
                    each,
                    name=own_name(each.name),
                    schema=own_name(each.schema),
                    history_us=MAX_SPAN_US,
                    max_ahead_us=None,
                    leader="",
                    k_safety=0,
                    readers=("*",),
                    writers=(),
                    declassify=(),
                )
                for each in streams
            ),
            tuple(queries),
            tuple(
                structs.replace(each, name=own_name(each.name), stream=own_name(each.stream))
                for each in document.views
            ),
        ),
        {own_name(name): file for name, file in given.items()},
        tuple(own_name(stream) for stream in outputs),
        shown,
    )


def _alone(query: Query, own_name: Callable[[str], str]) -> Query:
    """The query at a peer that has no other to survive it."""
    return structs.replace(
        query,
        name=own_name(query.name),
        boxes=tuple(renamed(box, own_name) for box in query.boxes),
        outputs=tuple(map(own_name, query.outputs)),
        availability=Availability(),
        readers=(),
    )


def _answers(query: Query) -> list[str]:
    """The streams that no box of the query reads, and those that it names as outputs."""
    inner = {stream for box in query.boxes for stream in inputs_of(box)}
    made = [stream for box in query.boxes for stream in outputs_of(box)]
    return [stream for stream in made if stream not in inner or stream in query.outputs]
