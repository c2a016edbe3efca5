"""The messages of the API: Table 1 of the first paper, method by method.

A method's name is its function's; bodies are Arrow IPC streams (one batch or more), never pickles.
"""

from __future__ import annotations

from msgspec import Struct

from medusa.engine.objects.alteration import Alteration
from medusa.engine.objects.availability import Availability, AvailabilityRequest
from medusa.engine.objects.definitions import StreamDefinition
from medusa.engine.objects.query import Query, QueryStatus
from medusa.engine.objects.schema import Schema
from medusa.engine.tasks.status import TaskStatus


class CreateSchema(Struct, frozen=True):
    """Define a schema: the fields of tuples, as of a topic's value."""

    schema: Schema


class CreateStream(Struct, frozen=True):
    """Define a source stream, as one creates a topic."""

    stream: StreamDefinition


class AlterStream(Struct, frozen=True):
    """Change the definition of a stream while it runs."""

    stream: str
    alteration: Alteration


class DeleteStream(Struct, frozen=True):
    """Delete a source stream with its late tuples and revisions; refused while it is read."""

    stream: str


class ReopenStream(Struct, frozen=True):
    """Let a source stream that has ended go on; refused if an answer depends on its end."""

    stream: str


class DeleteSchema(Struct, frozen=True):
    """Delete a schema; refused while a stream has it."""

    schema: str


class CreateQuery(Struct, frozen=True):
    """Define a query. `SetQueryStatus` starts it."""

    query: Query


class CreateDocument(Struct, frozen=True):
    """Define all schemas, streams, queries and views of a document: SQL, or XML of either dialect.

    Attributes:
        availability: the availability of all its queries, whatever their own attributes say.
    """

    text: str
    availability: AvailabilityRequest | None = None


class Created(Struct, frozen=True):
    """The object names that a call defined.

    Attributes:
        remarks: see `Done`.
        readers: for each stream and view among them, who may read it, in words.
    """

    names: tuple[str, ...]
    remarks: tuple[str, ...] = ()
    readers: dict[str, str] = {}


class SetQueryStatus(Struct, frozen=True):
    """Start, stop or delete a query."""

    query: str
    status: QueryStatus


class LookupObject(Struct, frozen=True):
    """Ask for the entries that are published under a name.

    Attributes:
        kind: an entry of that kind is enough; "": the caller wants those of all kinds.
    """

    name: str
    kind: str = ""


class ObjectDescription(Struct, frozen=True):
    """The answer to `LookupObject`.

    Attributes:
        entries: the kinds under that name, each with its entry's JSON.
        tasks: the present tasks of a query of the asked participant, if its peer answers.
        private: kinds under that name whose entries the caller may not have.
        unavailable: kinds of which it is not known whether they are there, each with the reason.
    """

    name: str
    entries: dict[str, str]
    tasks: tuple[TaskStatus, ...] = ()
    private: tuple[str, ...] = ()
    unavailable: dict[str, str] = {}


class ListObjects(Struct, frozen=True):
    """Ask for the names of all objects that can be listed."""


class Objects(Struct, frozen=True):
    """Names by kind, of the objects of every participant that answered.

    Attributes:
        availability: the availability of each query with a standby, if its definition was found in
            time.
        failing: for each query of the asked participant that does not go on: why.
    """

    names: dict[str, tuple[str, ...]]
    unreachable: tuple[str, ...] = ()
    availability: dict[str, Availability] = {}
    failing: dict[str, str] = {}


class Reopened(Struct, frozen=True):
    """The stream is open. had_ended: whether it had ended before."""

    had_ended: bool = True


class QueryStatusSet(Struct, frozen=True):
    """The query has that status now.

    Attributes:
        trouble: why a query that should run computes nothing yet, and the remedy.
    """

    trouble: str = ""
