"""From a query network to tasks.

A task is the unit that runs, moves and fails over: its inputs merged, a path of boxes with at most
one stateful box, one output stream.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from medusa.engine.expressions.typed import MAX_NODES, FieldRef
from medusa.engine.expressions.user_functions import declared
from medusa.engine.language.check import ordered_boxes
from medusa.engine.language.folding import widths
from medusa.engine.objects.functions import UserFunction
from medusa.engine.objects.query import Box, Query
from medusa.engine.objects.schema import BEGINNING, END, Schema
from medusa.engine.operators.map import MapStep
from medusa.engine.operators.registry import operator_of
from medusa.engine.operators.shared.operator import State, about
from medusa.engine.operators.shared.step import Near, Part, Step, Windows
from medusa.engine.operators.typing import TypedBoxes, type_box
from medusa.overlay.errors import InvalidInputError

MAX_TASK_NODES: Final = 16_384
"""Nodes of one task's expressions. Measured: Spark takes 8 s to build that many, and 1.8 s of an
epoch; four times as many exceed its memory."""

MAX_QUERY_NODES: Final = 131_072
"""Nodes of all tasks of a query: more would take more than 10 s of Spark's time each epoch. A
filter that routes by one comparison to each of `MAX_PORTS` streams is within it."""


@dataclass(frozen=True, slots=True)
class EditionSteps:
    """The steps of a former edition of a task.

    Attributes:
        upto: they make its output up to this boundary, microseconds.
        modified: the boundary of the modification that ended them: `upto`, or later.
        former: steps of the edition before, which a task of panes computes as well; it marks their
            rows (`medusa.engine.operators.shared.panes.Layout.former`). Empty: there are none.
    """

    upto: int
    steps: tuple[Step, ...]
    modified: int
    former: tuple[Step, ...] = ()


@dataclass(frozen=True, slots=True)
class Task:
    """One task.

    Attributes:
        name: its output stream's name.
        query: the query's name.
        inputs: the streams it reads. If the first step is `sided`, they are its sides. Else they
            are merged in canonical order; all have the same fields, but one may allow nulls or
            longer strings where another does not.
        steps: applied in order. At most one depends on more than one tuple, and a `sided` one is
            the first. There may be none only if there are several inputs.
        source_inputs: the inputs that are source streams: their logs have `seq`.
        after, until: the query's boundaries: it reads the inputs between them.
        of: in a task that makes revisions, the task whose output they revise; else None.
            history_us: in such a task, how far behind its boundary its inputs may be revised.
            editions: the steps of former editions, the oldest first. former: see `EditionSteps`; in
            a task of one edition.
    """

    name: str
    query: str
    inputs: tuple[str, ...]
    steps: tuple[Step, ...]
    output: str
    input_schemas: tuple[Schema, ...]
    output_schema: Schema
    source_inputs: frozenset[str]
    after: int = BEGINNING
    until: int = END
    of: Task | None = None
    history_us: int = 0
    editions: tuple[EditionSteps, ...] = ()
    former: tuple[Step, ...] = ()

    def at(self, boundary: int) -> Task:
        """The task in the edition that makes the tuples after the boundary, up to
        `edition_until`."""
        found = next((each for each in self.editions if boundary < each.upto), None)
        if found is None:
            return replace(self, editions=())
        return replace(self, steps=found.steps, former=found.former, editions=())

    def edition_until(self, boundary: int) -> int:
        """The boundary up to which the edition at `boundary` is in effect, microseconds."""
        return next((each.upto for each in self.editions if boundary < each.upto), END)

    @property
    def nodes(self) -> int:
        """The nodes of its expressions."""
        nodes = 0
        before: Mapping[str, int] = {}
        for step in self.steps:
            nodes += step.nodes(before)
            before = step.nodes_after(before)
        return nodes

    @property
    def windows(self) -> Windows | None:
        """The windows of the task's results; None: it has no windows."""
        return next((each for each in self._reaches if isinstance(each, Windows)), None)

    @property
    def near(self) -> Near | None:
        """How far apart in time the tuples of one result are; None: any time."""
        return next((each for each in self._reaches if isinstance(each, Near)), None)

    @property
    def _reaches(self) -> Iterator[Windows | Near | None]:
        return (step.reach for step in self.steps)

    @property
    def has_state(self) -> bool:
        """Whether a result of the task may depend on more than one tuple of its inputs."""
        return any(each is not None for each in self._reaches)

    @property
    def tables(self) -> frozenset[str]:
        """The inputs that the task reads as tables: it needs the newest tuple of each key, however
        old."""
        return frozenset(name for step in self.steps for name in step.tables(self.inputs))

    @property
    def recalls(self) -> bool:
        """Whether the task reads its own output, as a table: see
        `medusa.engine.operators.totals.step`."""
        return any(step.recalls for step in self.steps)

    @property
    def functions(self) -> tuple[UserFunction, ...]:
        """The functions of users that the task calls, in any edition; each once. A task that makes
        revisions calls the functions of the task whose output it revises."""
        if self.of is not None:
            return self.of.functions
        steps = (*self.steps, *(step for each in self.editions for step in each.steps))
        return tuple(dict.fromkeys(call.function for step in steps for call in step.calls))

    @property
    def span_us(self) -> int:
        """How long after the stime of a tuple the task still computes results from it,
        microseconds."""
        return next((each.span_us for each in self._reaches if each is not None), 0)

    @property
    def sided(self) -> bool:
        """Whether the task's inputs are the sides of its first step, and are not merged."""
        return bool(self.steps) and self.steps[0].sided


@dataclass(frozen=True, slots=True)
class TypedQuery:
    """A query whose boxes are typed, once, and cut into tasks.

    Attributes:
        schemas: the schemas of all streams. tasks: each after those whose output it reads.
    """

    schemas: Mapping[str, Schema]
    tasks: tuple[Task, ...]


def plan(
    query: Query,
    schemas: Mapping[str, Schema],
    keep: frozenset[str] = frozenset(),
    sources: frozenset[str] | None = None,
) -> tuple[Task, ...]:
    """The tasks of a query: see `typed`."""
    return typed(query, schemas, keep, sources).tasks


def typed(
    query: Query,
    schemas: Mapping[str, Schema],
    keep: frozenset[str] = frozenset(),
    sources: frozenset[str] | None = None,
    boxes: TypedBoxes | None = None,
) -> TypedQuery:
    """Type the boxes of a query, and cut it into tasks.

    A stream becomes a task's output, which others can read, if not exactly one box reads it, if it
    is in `keep` or in the query's `outputs`, if a union, a join or a filter with several ports
    reads it, if the box that makes it is a top or calls a function of a user, and between one
    aggregate, rank, pattern or join and the next. All others are fused away. The results do not
    depend on the cut. The panes of a window (`medusa.engine.operators.shared.panes`) are a task,
    too.

    Args:
        schemas: the schemas of its inputs at least, as `inputs_of_checked` gives them.
        keep: further streams that must be readable.
        sources: which of the streams from elsewhere are source streams; None: all of them.
        boxes: the boxes that are typed already.

    Raises:
        InvalidInputError: as `check_query`.
    """
    with about(f"query {query.name}"):
        known = boxes or TypedBoxes()
        network = _Network(query, schemas, keep | frozenset(query.outputs), known)
    outside = frozenset(schemas) - network.made.keys()
    tasks = tuple(
        network.task(stream, outside if sources is None else outside & sources)
        for stream in network.made
        if stream in network.kept
    )
    _check_nodes(query, tasks)
    return TypedQuery(network.schemas, tasks)


def _check_nodes(query: Query, tasks: Sequence[Task]) -> None:
    sizes = [task.nodes for task in tasks]
    for task, size in zip(tasks, sizes, strict=True):
        if size > MAX_TASK_NODES:
            raise InvalidInputError(
                f"query {query.name}: what makes {task.name} has {size:,} parts of "
                f"expressions, at most {MAX_TASK_NODES:,} allowed: name a stream on the way to it "
                "as an output of the query, or give a filter fewer ports"
            )
    total = sum(sizes)
    if total > MAX_QUERY_NODES:
        raise InvalidInputError(
            f"query {query.name}: its expressions have {total:,} parts, at most "
            f"{MAX_QUERY_NODES:,} allowed: make several queries of it"
        )


class _Network:
    """A query's streams: the boxes that make and read them, and which of them are logs.

    Attributes:
        schemas: the schemas of all streams.
        made: the part that makes each stream of the query, in order of flow. kept: the streams
            among these that have a log.
    """

    def __init__(
        self,
        query: Query,
        schemas: Mapping[str, Schema],
        keep: frozenset[str],
        known: TypedBoxes,
    ) -> None:
        self._query = query
        self.schemas = dict(schemas)
        self._readers: dict[str, list[Box]] = {}
        self._nodes: dict[str, Mapping[str, int]] = {}
        self.made: dict[str, Part] = {}
        self.kept: set[str] = set()
        folded, functions = widths(query), declared(query)
        boxes = ordered_boxes(query)
        for box in boxes:
            for stream in box.inputs:
                self._readers.setdefault(stream, []).append(box)
        stateful: set[str] = set()
        for box in boxes:
            before = self._nodes.get(box.inputs[0], {})
            typed = known.typed(box, self.schemas, functions)
            if before and any(each.nodes(before) > MAX_NODES for each in typed.steps.values()):
                type_box(box, self.schemas, before, functions)  # a refusal names the place
            self.schemas.update(typed.schemas)
            carries = any(each in stateful and each not in self.kept for each in box.inputs)
            for stream in typed.schemas:
                if carries or operator_of(box).state is not State.NONE:
                    stateful.add(stream)
                step = typed.steps.get(stream)
                self._make(stream, box.inputs, step, folded.get(stream))
                calls = step is not None and bool(step.calls)
                if calls or stream in keep or self._is_cut(stream, stream in stateful):
                    self.kept.add(stream)
                if stream not in self.kept and step is not None:
                    self._nodes[stream] = step.nodes_after(before)

    def _make(
        self, stream: str, inputs: tuple[str, ...], step: Step | None, width_us: int | None
    ) -> None:
        """Note how a stream is made. width_us: of the panes that it is folded from, if it is."""
        parts = [Part(stream, inputs, None)]
        if step is not None:
            parts = [*step.parts(stream, inputs, width_us)]
        for part in parts:
            self.made[part.stream] = part
            if part.schema is not None:
                self.schemas[part.stream] = part.schema
            if part.kept:
                self.kept.add(part.stream)

    def task(self, output: str, sources: frozenset[str]) -> Task:
        steps: list[Step] = []
        stream = output
        while True:
            inputs, step = self.made[stream].inputs, self.made[stream].step
            if step is not None:
                steps.append(step)
            if step is None or inputs[0] not in self.made or inputs[0] in self.kept:
                break
            stream = inputs[0]
        if step is None and len(inputs) == 1:
            # A union of one source stream is a derived stream, too: equal stimes are in the order
            # of the payload, not of arrival, whether or not the cut makes a log of it.
            steps.append(_identity(self.schemas[stream]))
        return Task(
            name=output,
            query=self._query.name,
            inputs=inputs,
            steps=tuple(reversed(steps)),
            output=output,
            input_schemas=tuple(self.schemas[name] for name in inputs),
            output_schema=self.schemas[output],
            source_inputs=sources & frozenset(inputs),
            after=self._query.after,
            until=self._query.until,
        )

    def _is_cut(self, stream: str, after_state: bool) -> bool:
        readers = self._readers.get(stream, [])
        if len(readers) != 1:
            return True
        return operator_of(readers[0]).needs_log(after_state=after_state)


def _identity(schema: Schema) -> MapStep:
    return MapStep(tuple((each.name, FieldRef(each.name, each.type)) for each in schema.fields))
