"""From a query network to tasks.

A task is the unit that runs, moves and fails over: its inputs merged, a path of boxes with at most
one stateful box, one output stream.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from medusa.engine.language import totals, tuple_windows
from medusa.engine.language.box_types import TypedBox, type_box
from medusa.engine.language.check import ordered_boxes
from medusa.engine.language.panes import panes_name, panes_schema, split, widths
from medusa.engine.language.steps import (
    AggregateStep,
    CumulateStep,
    FilterStep,
    JoinStep,
    MapStep,
    MatchStep,
    NearStep,
    RankStep,
    RecallingStep,
    SessionsStep,
    SpanStep,
    Step,
    TopStep,
    TotalsStep,
    TupleWindowsStep,
    TypedAggregate,
    WindowStep,
)
from medusa.engine.language.typed import FieldRef
from medusa.engine.language.user_functions import calls_of, declared
from medusa.engine.objects.functions import UserFunction
from medusa.engine.objects.query import (
    Aggregate,
    Box,
    Cumulate,
    Filter,
    Join,
    Match,
    Query,
    Rank,
    Sessions,
    Top,
    Totals,
    TupleWindows,
    Union,
)
from medusa.engine.objects.schema import BEGINNING, END, Schema
from medusa.overlay.errors import InvalidInputError

__all__ = [
    "AggregateStep",
    "EditionSteps",
    "FilterStep",
    "JoinStep",
    "MapStep",
    "MatchStep",
    "RankStep",
    "SpanStep",
    "Step",
    "Task",
    "TopStep",
    "TotalsStep",
    "TupleWindowsStep",
    "TypedAggregate",
    "WindowStep",
    "plan",
]


MAX_TASK_NODES: Final = 16_384
"""Nodes of one task's expressions. Measured: Spark takes 8 s to build so many and 1.8 s of an
epoch; four times as many are too many for its memory."""

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
            rows (`medusa.engine.language.panes.Layout.former`). Empty: none.
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
        inputs: the streams it reads. If the first step is a JoinStep, they are its sides. Else they
            are merged in canonical order; all have the same fields, but one may allow nulls or
            longer strings where another does not.
        steps: applied in order; at most one is a WindowStep or a NearStep, of which a JoinStep is
            the first; none only if inputs are several.
        source_inputs: the inputs that are source streams: their logs have `seq`.
        after, until: the query's boundaries: it reads the inputs between them.
        of: of a task that makes revisions, the task whose output they revise; else None.
        history_us: of such a task: how far behind its boundary its inputs may be revised.
        editions: the steps of former editions, the oldest first.
        former: see `EditionSteps`; of one edition.
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
        """The edition of it that makes the tuples after the boundary, up to `edition_until`."""
        found = next((each for each in self.editions if boundary < each.upto), None)
        if found is None:
            return replace(self, editions=())
        return replace(self, steps=found.steps, former=found.former, editions=())

    def edition_until(self, boundary: int) -> int:
        """The boundary up to which the edition at `boundary` counts, microseconds."""
        return next((each.upto for each in self.editions if boundary < each.upto), END)

    @property
    def nodes(self) -> int:
        """The nodes of its expressions."""
        return sum(step.nodes for step in self.steps)

    @property
    def window(self) -> WindowStep | None:
        """The step over windows, if there is one."""
        return next((step for step in self.steps if isinstance(step, WindowStep)), None)

    @property
    def has_state(self) -> bool:
        """Whether its results depend on more of its inputs than one tuple."""
        return self.window is not None or self.near is not None

    @property
    def tables(self) -> frozenset[str]:
        """The inputs that it reads as tables: of each key the newest tuple, however old."""
        if self.join is not None and self.join.table:
            return frozenset({self.join.right})
        last = self.steps[-1] if self.steps else None
        return (
            frozenset(self.inputs) if isinstance(last, TotalsStep) and last.changes else frozenset()
        )

    @property
    def recalls(self) -> bool:
        """Whether it reads its own output, as a table: see `medusa.engine.language.totals`."""
        return any(isinstance(step, RecallingStep) for step in self.steps)

    @property
    def functions(self) -> tuple[UserFunction, ...]:
        """The functions of users that it calls, in any edition; each once. One that makes revisions
        calls those of the task whose output it revises."""
        if self.of is not None:
            return self.of.functions
        steps = (*self.steps, *(step for each in self.editions for step in each.steps))
        return tuple(dict.fromkeys(call.function for step in steps for call in calls_of(step)))

    @property
    def span_us(self) -> int:
        """How long after the stime of a tuple it still makes results of it, microseconds."""
        if self.near is not None:
            return self.near.span_us
        return 0 if self.window is None else self.window.size_us

    @property
    def near(self) -> NearStep | None:
        """The step whose results each depend on the tuples that are near them in time."""
        return next((each for each in self.steps if isinstance(each, NearStep)), None)

    @property
    def join(self) -> JoinStep | None:
        """The join, if it has one."""
        first = self.steps[0] if self.steps else None
        return first if isinstance(first, JoinStep) else None


def plan(
    query: Query,
    schemas: Mapping[str, Schema],
    keep: frozenset[str] = frozenset(),
    sources: frozenset[str] | None = None,
) -> tuple[Task, ...]:
    """The tasks of a query, each after those whose output it reads.

    A stream becomes a task's output, which others can read, if not exactly one box reads it, if it
    is in `keep` or in the query's `outputs`, if a union, a join or a filter with several ports
    reads it, if the box that makes it is a top or calls a function of a user, and between one
    aggregate, rank, pattern or join and the next. All others are fused away. The results do not
    depend on the cut. The panes of a window (`medusa.engine.language.panes`) are a task, too.

    Args:
        schemas: of all streams, as `check_query` gives them.
        keep: further streams that must be readable.
        sources: which of the streams from elsewhere are source streams; None: all of them.

    Raises:
        InvalidInputError: as `check_query`.
    """
    network = _Network(query, schemas, keep | frozenset(query.outputs))
    outside = frozenset(schemas) - network.made.keys()
    tasks = tuple(
        network.task(stream, outside if sources is None else outside & sources)
        for stream in network.made
        if stream in network.kept
    )
    _check_nodes(query, tasks)
    return tasks


def _check_nodes(query: Query, tasks: Sequence[Task]) -> None:
    for task in tasks:
        if task.nodes > MAX_TASK_NODES:
            raise InvalidInputError(
                f"query {query.name}: what makes {task.name} has {task.nodes:,} parts of "
                f"expressions, at most {MAX_TASK_NODES:,} allowed: name a stream on the way to it "
                "as an output of the query, or give a filter fewer ports"
            )
    total = sum(task.nodes for task in tasks)
    if total > MAX_QUERY_NODES:
        raise InvalidInputError(
            f"query {query.name}: its expressions have {total:,} parts, at most "
            f"{MAX_QUERY_NODES:,} allowed: make several queries of it"
        )


@dataclass(frozen=True, slots=True)
class _Made:
    """How a stream is made: one step over `inputs`; None: their union."""

    inputs: tuple[str, ...]
    step: Step | None


_STATEFUL: Final = (Aggregate, Sessions, Cumulate, TupleWindows, Rank, Match, Join, Totals, Top)
"""The boxes of which a task has one at most."""


class _Network:
    """A query's streams: the boxes that make and read them, and which of them are logs.

    Attributes:
        made: how every stream that the query makes is made, in order of flow.
        kept: those of them that have a log.
    """

    def __init__(self, query: Query, schemas: Mapping[str, Schema], keep: frozenset[str]) -> None:
        self._query = query
        self._schemas = dict(schemas)
        self._readers: dict[str, list[Box]] = {}
        self._nodes: dict[str, Mapping[str, int]] = {}
        self.made: dict[str, _Made] = {}
        self.kept: set[str] = set()
        folded = widths(query)
        boxes = ordered_boxes(query)
        for box in boxes:
            for stream in box.inputs:
                self._readers.setdefault(stream, []).append(box)
        stateful: set[str] = set()
        for box in boxes:
            fresh = isinstance(box, (Union, Join))
            before = {} if fresh else self._nodes.get(box.inputs[0], {})
            typed = type_box(box, schemas, before, declared(query))
            for stream in typed.schemas:
                self._make(stream, typed, folded.get(stream))
                if isinstance(box, _STATEFUL) or self._carries(box, stateful):
                    stateful.add(stream)
                step = typed.steps.get(stream)
                calls = step is not None and bool(calls_of(step))
                ends = calls or isinstance(box, Top)  # a top goes on from the table that it makes
                cut = ends or self._is_cut(stream, after_aggregate=stream in stateful)
                if cut or stream in keep:
                    self.kept.add(stream)
                else:
                    self._nodes[stream] = _nodes_after(step, before)

    def _make(self, stream: str, typed: TypedBox, width_us: int | None) -> None:
        """Note how a stream is made. width_us: of the panes that it is folded from, if it is."""
        inputs, step = typed.box.inputs, typed.steps.get(stream)
        if isinstance(step, (TotalsStep, TupleWindowsStep)):
            inputs, step = self._make_of_table(stream, inputs, step)
        if width_us is not None and isinstance(step, AggregateStep):
            panes, combined = split(step, width_us)
            name = panes_name(stream)
            self.made[name] = _Made(inputs, panes)
            self.kept.add(name)
            self._schemas[name] = panes_schema(name, panes)
            inputs, step = (name,), combined
        self.made[stream] = _Made(inputs, step)

    def _make_of_table(
        self, stream: str, inputs: tuple[str, ...], step: TotalsStep | TupleWindowsStep
    ) -> tuple[tuple[str, ...], Step]:
        """Note how the table of totals, or of windows of tuples, is made; returns how their results
        are made of it."""
        name = panes_name(stream)
        self.made[name] = _Made(inputs, step)
        self.kept.add(name)
        if isinstance(step, TupleWindowsStep):
            self._schemas[name] = tuple_windows.tuples_schema(name, step)
            steps: Sequence[FilterStep | MapStep] = tuple_windows.result_steps(step)
        else:
            self._schemas[name] = totals.totals_schema(name, step)
            steps = totals.result_steps(step)
        *before, last = steps
        if before:
            self.made[f"{name}/part"] = _Made((name,), before[0])
            name = f"{name}/part"
        return (name,), last

    def task(self, output: str, sources: frozenset[str]) -> Task:
        steps: list[Step] = []
        stream = output
        while True:
            inputs, step = self.made[stream].inputs, self.made[stream].step
            if step is not None:
                steps.append(step)
            joined = isinstance(step, JoinStep)
            if step is None or joined or inputs[0] not in self.made or inputs[0] in self.kept:
                break
            stream = inputs[0]
        if step is None and len(inputs) == 1:
            # a union of one source stream is a derived stream too: ties of stime are in the order
            # of the payload, not of arrival, whether or not the cut makes a log of it
            steps.append(_identity(self._schemas[stream]))
        return Task(
            name=output,
            query=self._query.name,
            inputs=inputs,
            steps=tuple(reversed(steps)),
            output=output,
            input_schemas=tuple(self._schemas[name] for name in inputs),
            output_schema=self._schemas[output],
            source_inputs=sources & frozenset(inputs),
            after=self._query.after,
            until=self._query.until,
        )

    def _carries(self, box: Box, stateful: set[str]) -> bool:
        """Whether the path to this box has an aggregate, a pattern or a join."""
        if isinstance(box, (Union, Join)):
            return False
        (stream,) = box.inputs
        return stream in stateful and stream not in self.kept

    def _is_cut(self, stream: str, *, after_aggregate: bool) -> bool:
        readers = self._readers.get(stream, [])
        if len(readers) != 1:
            return True
        match readers[0]:
            case Union() | Join():
                return True
            case Filter(outputs=ports):
                return len(ports) > 1
            case _ if isinstance(readers[0], _STATEFUL):
                return after_aggregate
            case _:
                return False


def _nodes_after(step: Step | None, before: Mapping[str, int]) -> Mapping[str, int]:
    """The nodes of the expression that makes a field, by field that the task has made so far.

    Args:
        step: None of a union.
        before: the same, before the step.
    """
    match step:
        case None:
            return {}
        case FilterStep():
            return before
        case MapStep() | JoinStep():
            return {name: expression.nodes for name, expression in step.outputs}
        case AggregateStep() | SessionsStep() | CumulateStep():
            return {each.name: before.get(each.name, 1) for each in step.group_by}
        case MatchStep():
            return {each.name: before.get(each.name, 1) for each in step.partition_by}
        case RankStep() | TotalsStep() | TopStep() | TupleWindowsStep():
            return {}


def _identity(schema: Schema) -> MapStep:
    return MapStep(tuple((each.name, FieldRef(each.name, each.type)) for each in schema.fields))
