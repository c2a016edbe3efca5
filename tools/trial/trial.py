"""Reads a document over recorded files: the objects that a trial creates, in a federation of one
participant."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Final

from msgspec import structs

from medusa.engine.language.document import Document
from medusa.engine.objects.availability import Availability
from medusa.engine.objects.definitions import MAX_SPAN_US, Idle, StreamDefinition
from medusa.engine.objects.query import Query, streams_read, streams_written
from medusa.engine.objects.schema import Schema, wrong_name
from medusa.engine.reading import read_draft
from medusa.overlay.errors import InvalidInputError, NotFoundError
from medusa.overlay.names import SCHEME, ObjectName
from medusa.tools.rows.columns import OURS
from medusa.tools.trial.recordings import RecordingError, recording_of, with_key

SELF: Final = "you"
"""The participant of names without one, if there is no home."""


@dataclass(frozen=True, slots=True)
class Trial:
    """The objects to create, and the files to post.

    Attributes:
        files: the files of each source stream. outputs: the streams whose tuples are the answer, in
            order.
        made: all streams that its queries make, by the document's names. shown: the document's name
            of each stream that has another name in the trial. names: the fields by the columns that
            are named otherwise, in all files.
        left_out: the columns of files that are no fields, and why.
    """

    participant: str
    document: Document
    files: Mapping[str, Path]
    outputs: tuple[str, ...]
    made: Mapping[str, str]
    shown: Mapping[str, str]
    names: Mapping[str, str] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()

    def as_given(self, text: str) -> str:
        """A text with the document's names."""
        for made in sorted(self.shown, key=len, reverse=True):
            text = text.replace(made, self.shown[made])
        return text


def trial_of(
    text: str,
    files: Mapping[str, Path],
    time: str | None,
    own: str = SELF,
    *,
    case: str | None = None,
    keys: Mapping[str, tuple[str, ...]] | None = None,
    names: Mapping[str, str] | None = None,
) -> Trial:
    """The trial of a document.

    Args:
        files: the files, by the streams' names as the user gave them.
        time: see `medusa.tools.trial.recordings.recording_of`.
        own: the participant of names without one.
        case: a path for all its names, under `own`; None: the names stay.
        keys: the columns of the keys of the streams that the document does not declare and reads as
            tables, by the streams' names.
        names: see `Trial`.

    Raises:
        InvalidInputError: the document is wrong; the message names the place and the reason.
            RecordingError: a file or a key is wrong. NotFoundError: a stream has no file, or the
            file does not exist.
    """
    base = f"{SCHEME}{own}/"
    draft = read_draft(text, base)
    given = {qualified(name, own): file for name, file in files.items()}
    if draft.uses:
        raise NotFoundError(f"schema {min(draft.uses)} is not defined in the query")
    tables = {qualified(name, own): key for name, key in (keys or {}).items()}

    left_out: dict[str, str] = {}

    def schema_read(name: str) -> Schema:
        file = _file_of(name, given)
        found = recording_of(file, f"{name}/schema", time, names)
        left_out.update(found.left_out)
        return with_key(found.schema, tables[name], file) if name in tables else found.schema

    read = {name: schema_read(name) for name in sorted(draft.reads)}
    try:
        document = draft.complete(read, {}, tables.keys() & read.keys())
    except InvalidInputError as error:
        raise _with_reason(error, left_out) from None
    made = {stream for query in document.queries for box in query.boxes for stream in box.outputs}
    used = {stream for query in document.queries for stream in streams_read(query)}
    for name in sorted(used - made):
        if name not in read and all(stream.name != name for stream in document.streams):
            read[name] = schema_read(name)
    if not document.queries:
        raise InvalidInputError("it has no query to try")
    if time is not None and all(schema.time != time for schema in read.values()):
        raise RecordingError(f"--time {time[:80]!a}: no file of an undeclared stream has it")
    for stream in document.streams:
        if stream.name not in made:
            _file_of(stream.name, given, read=stream.name in used)
    _check_all_read(document, read, given, tables)
    _check_mapped(names or {}, [*document.schemas, *read.values()])
    trial = _ours(document, read, tables, given, None if case is None else (own, case))
    foreign = (f"{reason}: left out" for name, reason in left_out.items() if name not in OURS)
    return replace(trial, names=names or {}, left_out=tuple(foreign))


def _with_reason(error: InvalidInputError, left_out: Mapping[str, str]) -> InvalidInputError:
    """The error, with the reason for which a column that it names is no field."""
    for column, reason in left_out.items():
        written = re.sub(r"\W", r"[\\W_]", column)  # `order id` by order_id
        found = re.search(rf"\bfield (\w+\.)?(?P<field>{written})(?!\w)", str(error), re.IGNORECASE)
        if found is not None:
            place = _PLACE.search(str(error))
            end = place.start() if place else len(str(error))
            why = f"{reason}: left out{_other_name(column, found['field'])}"
            return type(error)(f"{str(error)[:end]}; {why}{str(error)[end:]}")
    return error


def _other_name(column: str, wanted: str) -> str:
    """How to rename a column to the name that a query uses."""
    if not wrong_name(column):
        return ""
    field = "FIELD" if wrong_name(wanted) else wanted
    return f"; --map {shlex.quote(f'{column}={field}')} takes it"


_PLACE: Final = re.compile(r", at line \d+, column \d+$")


def _check_mapped(names: Mapping[str, str], schemas: Sequence[Schema]) -> None:
    """Refuse a field that no stream has."""
    for column, name in names.items():
        if all(schema.field(name) is None for schema in schemas):
            raise RecordingError(f"--map {column}={name}: no stream has a field {name!r}")


def qualified(name: str, own: str) -> str:
    """The whole name of one that may be without a participant."""
    return str(ObjectName.parse(name if name.startswith(SCHEME) else f"{SCHEME}{own}/{name}"))


def _check_all_read(
    document: Document, read: Collection[str], given: Collection[str], tables: Collection[str]
) -> None:
    """Refuse a file or a key for a stream that the document does not read.

    Args:
        read: the streams that it reads and does not declare.
    """
    unknown = sorted({*given} - {*read} - {each.name for each in document.streams})
    if unknown:
        raise RecordingError(f"--stream {unknown[0]}: the query reads no such stream")
    strange = sorted({*tables} - {*read})
    if strange:
        raise RecordingError(
            f"--table {strange[0]}: the query declares it, or does not read it: --table is for "
            "the tables of others"
        )


def _file_of(stream: str, given: Mapping[str, Path], *, read: bool = True) -> Path:
    """The file of a stream that the document reads, or only declares."""
    if stream not in given:
        say = f"say --stream {stream.rpartition('/')[2]}=FILE"
        if not read:
            raise NotFoundError(
                f"it declares {stream}, which no query reads: leave it out, or {say}"
            )
        alike = get_close_matches(stream, sorted(given), 1, cutoff=0.8)
        meant = f", or is {alike[0]} meant?" if alike else ""
        raise NotFoundError(f"the query reads {stream}: {say}{meant}")
    return given[stream]


def _ours(
    document: Document,
    read: Mapping[str, Schema],
    tables: Collection[str],
    given: Mapping[str, Path],
    under: tuple[str, str] | None,
) -> Trial:
    """The document with all objects as ours: a peer can create no others.

    Args:
        tables: the streams among `read` that are tables.
        under: the participant and the path for all names.
    """
    participant, case = under or (ObjectName.parse(document.queries[0].name).participant, "")
    begin = f"{SCHEME}{participant}/{case}/" if case else f"{SCHEME}{participant}/"
    shown: dict[str, str] = {}

    def own_name(name: str) -> str:
        parsed = ObjectName.parse(name)
        own = parsed.participant == participant
        made = f"{begin}{parsed.path}" if own else f"{begin}of.{parsed.participant}/{parsed.path}"
        if made != name:
            shown[made] = name
        return made

    schemas = [*document.schemas, *read.values()]
    streams = [
        *document.streams,
        *(
            StreamDefinition(name, schema.name, table=name in tables)
            for name, schema in read.items()
        ),
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
                    idle=Idle.EXPLICIT,  # recorded rows have times that differ from the clock's
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
            explain=document.explain,
            remarks=document.remarks,
        ),
        {own_name(name): file for name, file in given.items()},
        tuple(own_name(stream) for stream in outputs),
        {s: own_name(s) for query in document.queries for s in sorted(streams_written(query))},
        shown,
    )


def _alone(query: Query, own_name: Callable[[str], str]) -> Query:
    """The query without a standby, because the peer is alone."""
    return structs.replace(
        query,
        name=own_name(query.name),
        boxes=tuple(box.renamed(own_name) for box in query.boxes),
        outputs=tuple(map(own_name, query.outputs)),
        availability=Availability(),
        readers=(),
    )


def _answers(query: Query) -> list[str]:
    """The streams that no box of the query reads, and the streams that it names as outputs."""
    inner = {stream for box in query.boxes for stream in box.inputs}
    made = [stream for box in query.boxes for stream in box.outputs]
    return [stream for stream in made if stream not in inner or stream in query.outputs]
