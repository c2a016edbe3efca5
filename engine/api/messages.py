"""The messages of the API: Table 1 of the first paper, method by method.

A method's name is its function's; bodies are Arrow IPC streams (one batch or more), never pickles.
"""

from __future__ import annotations

from msgspec import Struct

from engine.objects.alteration import Alteration
from engine.objects.availability import Availability
from engine.objects.availability_request import AvailabilityRequest
from engine.objects.definitions import StreamDefinition
from engine.objects.query import Query, QueryStatus
from engine.objects.schema import Schema
from engine.tasks.status import TaskStatus


class CreateSchema(Struct, frozen=True):
    """Define a schema: the fields of tuples, as of a topic's value."""

    schema: Schema


class CreateStream(Struct, frozen=True):
    """Define a source stream, as one creates a topic."""

    stream: StreamDefinition


class AlterStream(Struct, frozen=True):
    """Define a stream otherwise, while it runs."""

    stream: str
    alteration: Alteration


class DeleteStream(Struct, frozen=True):
    """Leave nothing of a source stream, its late tuples and its revisions; refused while read."""

    stream: str


class ReopenStream(Struct, frozen=True):
    """Let a source stream that has ended go on; refused where an answer depends on its end."""

    stream: str


class DeleteSchema(Struct, frozen=True):
    """Leave nothing of a schema; refused while a stream has it."""

    schema: str


class CreateQuery(Struct, frozen=True):
    """Define a query. It starts when it is asked to: see `SetQueryStatus`."""

    query: Query


class CreateXml(Struct, frozen=True):
    """create_query_xml (and schemas and streams): any document of either dialect.

    Attributes:
        availability: what is asked of all its queries, whatever their own attributes say.
    """

    text: str
    availability: AvailabilityRequest | None = None


class Created(Struct, frozen=True):
    """The object names that a call defined. remarks: see `Done`."""

    names: tuple[str, ...]
    remarks: tuple[str, ...] = ()


class SetQueryStatus(Struct, frozen=True):
    """Start, stop or delete a query."""

    query: str
    status: QueryStatus


class LookupObject(Struct, frozen=True):
    """Ask for everything that is published under a name."""

    name: str


class ObjectDescription(Struct, frozen=True):
    """What lookup_object answers.

    Attributes:
        entries: the kinds under that name, each as its entry's JSON.
        tasks: of a query of the participant that is asked, as they are now; none where its peer
            does not answer.
        private: kinds under that name whose entries are not for who asks.
    """

    name: str
    entries: dict[str, str]
    tasks: tuple[TaskStatus, ...] = ()
    private: tuple[str, ...] = ()


class ListObjects(Struct, frozen=True):
    """Ask for the names of all objects that can be listed."""


class Objects(Struct, frozen=True):
    """Names by kind, of the objects of every participant that answered.

    Attributes:
        availability: by query, of those that have a standby and whose definition was found in time.
        failing: by query, why it does not go on, of the participant that is asked.
    """

    names: dict[str, tuple[str, ...]]
    unreachable: tuple[str, ...] = ()
    availability: dict[str, Availability] = {}
    failing: dict[str, str] = {}


class Reopened(Struct, frozen=True):
    """The stream is open. had_ended: whether there was anything to do."""

    had_ended: bool = True


class QueryStatusSet(Struct, frozen=True):
    """The query has that status now.

    Attributes:
        trouble: why a query that is to run computes nothing yet, and the mend.
    """

    trouble: str = ""
