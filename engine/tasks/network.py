from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec
from msgspec import Struct

from medusa.engine.language.check import check_query, inputs_of_checked
from medusa.engine.language.folding import widths
from medusa.engine.language.labels import Readers, label_of, labels
from medusa.engine.language.tables import made_of_tables, tables_of
from medusa.engine.objects.definitions import (
    ANY,
    DEFAULT_HISTORY_US,
    REVISIONS,
    AlteredOutput,
    Policy,
    StreamDefinition,
    StreamEntry,
    base_of,
)
from medusa.engine.objects.query import Query
from medusa.engine.objects.schema import Schema
from medusa.engine.operators.shared.panes import panes_name
from medusa.engine.operators.typing import TypedBoxes
from medusa.engine.tasks.plan import Task, TypedQuery, typed
from medusa.engine.tasks.query_editions import Edition, restored, succeeded
from medusa.engine.tasks.revised_tasks import revised_streams, with_revisions

MAX_EDITION: Final = 2**62
"""The greatest edition of a stream: it is the sum of the inputs' editions, and must fit a
message."""


TABLE_HISTORY_US: Final = 60_000_000
"""The history of a table that only its own task reads, a minute: each job of the task reads
everything that is not folded."""


class Network(Struct, frozen=True):
    """A query and the streams against which it was checked: everything that planning its tasks
    needs. Attributes: inputs: the streams of others that it reads. kept: streams of its own that
    must be readable, besides its outputs. editions: its former editions, the oldest first. readers:
    declared readers of its streams, from before the query. altered: the alterations of its outputs.
    """

    query: Query
    inputs: dict[str, StreamEntry]
    kept: tuple[str, ...] = ()
    editions: tuple[Edition, ...] = ()
    readers: dict[str, tuple[str, ...]] = {}
    altered: dict[str, AlteredOutput] = {}

    def schemas(self) -> dict[str, Schema]:
        """The schema of every stream. Raises: InvalidInputError: it does not type-check."""
        return check_query(self.query, {name: e.schema for name, e in self.inputs.items()})

    def typed(self, boxes: TypedBoxes | None = None) -> TypedQuery:
        """The newest edition of the query, checked, typed and planned, with tasks of revisions.

        Args:
            boxes: those that are typed already.

        Raises:
            InvalidInputError: as `schemas`.
        """
        known = {name: entry.schema for name, entry in self.inputs.items()}
        sources = frozenset(name for name, e in self.inputs.items() if not e.stream.query)
        given = inputs_of_checked(self.query, known)
        made = typed(self.query, given, frozenset(self.kept), sources, boxes)
        tasks = with_revisions(made.tasks, revised_streams(self.query, self.inputs))
        return TypedQuery(made.schemas, tasks)

    @property
    def policies(self) -> tuple[Policy, ...]:
        """The policies of all inputs: a participant that satisfies them may know the query."""
        found = {each for entry in self.inputs.values() for each in entry.stream.policies}
        return tuple(sorted(found))

    def tasks(self) -> tuple[Task, ...]:
        """The tasks, each after those whose output it reads.

        Raises:
            InvalidInputError: as `schemas`; or its editions do not have the same streams.
        """
        tasks = self.typed().tasks
        if not self.editions:
            return tasks
        *older, last = self.editions
        before = msgspec.structs.replace(
            self, query=restored(self.query, last), editions=tuple(older)
        )
        return succeeded(before.tasks(), tasks, last.upto)

    def entry_of(self, stream: str, schema: Schema, leader: str) -> StreamEntry:
        """The catalog's entry of an input, or of a stream that the query makes at `leader`."""
        found = self.inputs.get(stream)
        if found is not None:
            return found
        revised = revised_streams(self.query, self.inputs)
        altered = self.altered.get(base_of(stream), AlteredOutput())
        usual = DEFAULT_HISTORY_US
        if stream in map(panes_name, made_of_tables(self.query)):
            usual = TABLE_HISTORY_US
        declared = {**self.readers, **dict(self.query.readers), **self._altered_readers}
        definition = StreamDefinition(
            name=stream,
            schema=schema.name,
            history_us=usual if altered.history_us is None else altered.history_us,
            readers=declared.get(base_of(stream), (ANY,)),
            query=self.query.name,
            leader=leader,
            revised=stream in revised,
            label=self._label(stream, declared),
            edition=self._edition(altered),
            table=stream in tables_of(self.query, self._tables),
        )
        span = revised.get(stream.removesuffix(f"/{REVISIONS}"), 0)
        if span > definition.history_us:  # readers may have to read it again
            definition = msgspec.structs.replace(definition, history_us=span)
        return StreamEntry(definition, schema)

    def _label(self, stream: str, declared: Mapping[str, Readers]) -> tuple[Policy, ...]:
        """The label of a stream that the query makes. Panes have data from which an output is made,
        so readers that are declared for the output may not read them."""
        made_of = (*widths(self.query), *made_of_tables(self.query))
        of = {panes_name(name): name for name in made_of}.get(base_of(stream))
        if of is None:
            return label_of(labels(self.query, self.inputs, declared), stream)
        undeclared = {name: readers for name, readers in declared.items() if name != of}
        return label_of(labels(self.query, self.inputs, undeclared), of)

    def _edition(self, altered: AlteredOutput) -> int:
        """The output's edition: it grows with each alteration of the output or of an input, because
        each may change its readers. All peers that make the output compute the same number."""
        inputs = sum(entry.stream.edition for entry in self.inputs.values())
        return min(altered.edition + inputs, MAX_EDITION)

    @property
    def _tables(self) -> frozenset[str]:
        return frozenset(name for name, entry in self.inputs.items() if entry.stream.table)

    @property
    def _altered_readers(self) -> dict[str, tuple[str, ...]]:
        named = ((name, altered.readers) for name, altered in self.altered.items())
        return {name: readers for name, readers in named if readers is not None}
