"""The plan of a query in words: its tasks, what each keeps of its inputs, and why windows are
folded from panes or not."""

from __future__ import annotations

from msgspec import Struct

from engine.language.panes import LONG, OVERLAP, pane_us, panes_name
from engine.language.steps import AggregateStep, FilterStep, Form, MapStep, Step
from engine.objects.query import Aggregate, Query, Union, inputs_of, outputs_of
from engine.objects.schema import BEGINNING
from engine.tasks.network import Network
from engine.tasks.plan import Task
from engine.tasks.windows import horizon_us


class ExplainedTask(Struct, frozen=True):
    """One task.

    Attributes:
        stream: its output. reads: its inputs.
        steps: each with its box, in order; empty: it only merges its inputs.
        keeps_s: how much of its inputs it keeps behind its boundary, seconds.
    """

    stream: str
    reads: tuple[str, ...]
    steps: tuple[str, ...]
    keeps_s: float


class ExplainedWindow(Struct, frozen=True):
    """One aggregate.

    Attributes:
        size_s, advance_s: of its windows, seconds.
        pane_s: the width of the panes that they are folded from, seconds; None: of their tuples.
        why: the reason.
    """

    box: str
    size_s: float
    advance_s: float
    pane_s: float | None
    why: str


class Explanation(Struct, frozen=True):
    """The plan of one query.

    Attributes:
        since: the boundary after which it counts, microseconds; up to it, the edition before.
    """

    query: str
    tasks: tuple[ExplainedTask, ...]
    windows: tuple[ExplainedWindow, ...]
    since: int = BEGINNING


def explain(network: Network, since: int = BEGINNING) -> Explanation:
    """The plan of a query.

    Args:
        since: see `Explanation`.

    Raises:
        InvalidInputError: as `Network.tasks`.
    """
    windows = (box for box in network.query.boxes if isinstance(box, Aggregate))
    return Explanation(
        network.query.name,
        tuple(_task(task, network.query) for task in network.tasks()),
        tuple(_window(box, network.query) for box in windows),
        since,
    )


def _task(task: Task, query: Query) -> ExplainedTask:
    steps = ["revisions"]
    if task.of is None:
        # the union of a single stream has a step of its own, which puts it into order
        names = [*_boxes(task, query), "union"][: len(task.steps)]
        words = map(_in_words, task.steps)
        steps = [f"{name}: {each}" for name, each in zip(reversed(names), words, strict=True)]
    return ExplainedTask(task.output, task.inputs, tuple(steps), horizon_us(task) / 1e6)


def _boxes(task: Task, query: Query) -> list[str]:
    """The names of the boxes whose steps the task has, the last one first."""
    made = {stream: box for box in query.boxes for stream in outputs_of(box)}
    for box in query.boxes:
        if isinstance(box, Aggregate):
            made[panes_name(box.output)] = box
    found: list[str] = []
    stream = task.output
    while stream not in task.inputs and stream in made and not isinstance(made[stream], Union):
        box = made[stream]
        found.append(box.name)
        if panes_name(stream) in task.inputs:
            break
        (stream,) = inputs_of(box)
    return found


def _in_words(step: Step) -> str:
    match step:
        case FilterStep():
            return "filter"
        case MapStep():
            return "map"
        case AggregateStep(form=form):
            groups = ", ".join(field.name for field in step.group_by)
            by = f" by {groups}" if groups else ""
            functions = ", ".join(f"{each.function} as {each.output}" for each in step.functions)
            if form is Form.PARTIAL:
                return f"partial results of panes of {_s(step.size_us)}{by}: {functions}"
            window = f"windows of {_s(step.size_us)} every {_s(step.advance_us)}{by}"
            if form is Form.COMBINED:
                window += f", of {step.size_us // step.grain_us:,} panes each"
            return f"{window}: {functions}"


def _window(box: Aggregate, query: Query) -> ExplainedWindow:
    width = dict(query.panes).get(box.name)
    pane_s = None if width is None else width / 1e6
    why = _why(box, width)
    return ExplainedWindow(box.name, box.size_us / 1e6, box.advance_us / 1e6, pane_s, why)


def _why(box: Aggregate, width: int | None) -> str:
    overlap = -(-box.size_us // box.advance_us)
    if width is None and pane_us(box.size_us, box.advance_us) is not None:
        return (
            "made of its tuples: that was decided when the query was created; create it anew to "
            "have it folded from panes"
        )
    if width is None:
        return (
            f"made of its tuples: panes pay where a tuple is in {OVERLAP} windows or more, "
            f"or where a window has {LONG} panes or more"
        )
    if overlap >= OVERLAP:
        return f"folded from panes: a tuple is read once, not in each of {overlap:,} windows"
    panes = box.size_us // width
    return f"folded from panes: it closes by reading {panes:,} panes, not all of its tuples"


def _s(microseconds: int) -> str:
    return f"{microseconds / 1e6:g} s"
