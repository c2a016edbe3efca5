"""The plan of a query in words: its tasks, what each keeps of its inputs, and why windows are
folded from panes or not."""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd

from msgspec import Struct

from medusa.engine.language.aggregates import call_of
from medusa.engine.language.box_texts import order_text
from medusa.engine.language.classes import BoxClass, class_of
from medusa.engine.language.matches import pattern_text
from medusa.engine.language.panes import (
    LIMIT_PANES,
    LONG,
    OVERLAP,
    has_room,
    pane_us,
    panes_name,
)
from medusa.engine.language.steps import (
    AggregateStep,
    FilterStep,
    Form,
    Step,
    TotalsStep,
    TupleWindowsStep,
)
from medusa.engine.objects.functions import UserFunction
from medusa.engine.objects.query import (
    Aggregate,
    Box,
    Cumulate,
    Filter,
    Join,
    Map,
    Match,
    Query,
    Rank,
    Sessions,
    Top,
    Totals,
    TupleWindows,
    Union,
)
from medusa.engine.objects.schema import BEGINNING
from medusa.engine.tasks.network import Network
from medusa.engine.tasks.plan import Task
from medusa.engine.tasks.windows import horizon_us
from medusa.overlay.names import ObjectName


class ExplainedCall(Struct, frozen=True):
    """A function of a user that a task calls.

    Attributes:
        function: name and types. source: the place of its code.
        deterministic: whether it is declared so; else the task is of the class arbitrary.
        runs: the peers that may run the task.
    """

    function: str
    source: str
    deterministic: bool
    runs: str


class ExplainedTask(Struct, frozen=True):
    """One task.

    Attributes:
        stream: its output. reads: its inputs.
        steps: in order, each with its box; empty: it is a union and no more.
        keeps_s: how much of its inputs it keeps behind its boundary, seconds.
        key: what tells the tuples of its output apart; empty: nothing.
        box_class: the weakest of its boxes' classes: see `medusa.engine.language.classes.BoxClass`.
        tables: the inputs that it reads as tables, of which it keeps the newest tuple of each key.
        recalls: its state is the table that its own output is.
        place: id (hex) of the peer that computes it; "": not known, or none does.
        state: see `medusa.engine.tasks.status.TaskStatus`; "": not known.
        calls: the functions of users that it calls.
    """

    stream: str
    reads: tuple[str, ...]
    steps: tuple[str, ...]
    keeps_s: float
    key: tuple[str, ...] = ()
    box_class: str = ""
    tables: tuple[str, ...] = ()
    recalls: bool = False
    place: str = ""
    state: str = ""
    calls: tuple[ExplainedCall, ...] = ()


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
        since: the boundary, microseconds, after which this plan counts. Until then the plan of
            the query as it was before its last modification does.
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
    of = task if task.of is None else task.of
    made = _made_by(of, query)
    if task.of is None:
        # a union of one stream is put into order by a step of no box, and so are totals that are
        # picked out of what they are made of
        steps = list(map(_in_words, reversed([*made, None][: len(task.steps)]), task.steps))
    return ExplainedTask(
        task.output,
        task.inputs,
        tuple(steps),
        horizon_us(task) / 1e6,
        task.output_schema.key,
        str(_weakest([box for box, _ in made], of, query.functions)),
        tuple(sorted(task.tables)),
        task.recalls,
        calls=tuple(_call(each, query) for each in task.functions),
    )


def _weakest(boxes: Sequence[Box], task: Task, functions: Sequence[UserFunction]) -> BoxClass:
    """The weakest class of a task's boxes; a union, which has no step, is deterministic."""
    classes = [class_of(box, functions) for box in boxes]
    if not task.steps or len(task.inputs) > 1:
        classes.append(BoxClass.DETERMINISTIC)
    order = list(BoxClass)
    return max(classes, key=order.index, default=BoxClass.DETERMINISTIC)


def _call(function: UserFunction, query: Query) -> ExplainedCall:
    owner = ObjectName.parse(query.name).participant
    code = f" {function.fingerprint[:12]}" if function.fingerprint else ""
    return ExplainedCall(
        function.signature,
        function.source,
        function.deterministic,
        f"peers of {owner} that allow the same code{code}",
    )


def _made_by(task: Task, query: Query) -> list[tuple[Box, str]]:
    """The boxes whose steps the task has, the last one first, each with the stream it makes."""
    made = {stream: box for box in query.boxes for stream in box.outputs}
    for box in query.boxes:
        if isinstance(box, (Aggregate, Totals)):
            made[panes_name(box.output)] = box
    found: list[tuple[Box, str]] = []
    stream = task.output
    while stream not in task.inputs and stream in made and not isinstance(made[stream], Union):
        box = made[stream]
        found.append((box, stream))
        if panes_name(stream) in task.inputs:
            break
        if isinstance(box, Join):
            break
        (stream,) = box.inputs
    return found


def _in_words(made: tuple[Box, str] | None, step: Step) -> str:
    if made is not None:
        box, stream = made
        return f"{box.name}: {_of_box(box, stream, step)}"
    if isinstance(step, FilterStep):
        return "the totals alone, without the values that they have counted"
    return "union: into order"


def _of_box(box: Box, stream: str, step: Step) -> str:
    """What a box does to make the stream, by that step."""
    match box:
        case Filter():
            return f"filter: {_of_port(box, stream)}"
        case Map():
            return f"map: {', '.join(f'{text} as {name}' for name, text in box.expressions)}"
        case Join():
            return _join(box)
        case Rank() | Top():
            return _first(box)
        case Match():
            return _match(box)
        case Union():
            return "union: into order"
        case _:
            return _functions(box, step)


def _functions(box: Aggregate | Sessions | Cumulate | TupleWindows | Totals, step: Step) -> str:
    functions = ", ".join(f"{call_of(each)} as {each.output}" for each in box.functions)
    by = f" by {', '.join(box.group_by)}" if box.group_by else ""
    match box:
        case Aggregate():
            over = _windows(box, step, by)
        case Sessions():
            gap, longest = _s(box.gap_us), _s(box.longest_us)
            over = f"sessions with gaps of {gap} at most, cut if longer than {longest}{by}"
        case Cumulate():
            step_s, size = _s(box.step_us), _s(box.size_us)
            over = f"windows that grow every {step_s} up to {size}{by}"
        case TupleWindows() if isinstance(step, TupleWindowsStep):
            over = f"windows of {box.size:,} tuples that advance by {box.advance:,}{by}"
            over += f", their last tuple's number as {box.number}" if box.number else ""
        case TupleWindows():
            return "the windows, without the tuples that they are made of"
        case Totals() if isinstance(step, TotalsStep):
            of = "the rows of a table" if box.changes else "all so far"
            over = f"a table of the totals of {of}{by}"
        case Totals():
            return "the totals, of what they are made of"
    return f"{over}: {functions}"


def _join(box: Join) -> str:
    fields = ", ".join(f"{text} as {name}" for name, text in box.expressions)
    if box.table:
        return (
            f"{box.kind} join of {box.left} and the table {box.right} at its time, where "
            f"{box.predicate}: {fields}"
        )
    return (
        f"{box.kind} join of {box.left} and {box.right}, from {_s(-box.before_us)} to "
        f"{_s(box.after_us)}, where {box.predicate}: {fields}"
    )


def _first(box: Rank | Top) -> str:
    order = ", ".join(map(order_text, box.order_by))
    if isinstance(box, Top):
        by = " and ".join(box.partition_by)
        return f"a table of the first {box.most:,} so far of each {by}, by {order}"
    by = "".join(f" and {name}" for name in box.partition_by)
    window = "instant" if box.size_us == 1 else f"window of {_s(box.size_us)}"
    return f"the first {box.most:,} of each {window}{by}, by {order or 'arrival'}"


def _match(box: Match) -> str:
    by = f" by {', '.join(box.partition_by)}" if box.partition_by else ""
    return (
        f"match of {pattern_text(box.steps)}{by}, within {_s(box.within_us)}, contiguity "
        f"{box.contiguity}"
    )


def _of_port(box: Filter, stream: str) -> str:
    """The condition under which a tuple leaves by that output."""
    port = box.outputs.index(stream)
    before = [f"({text}) is not true" for text in box.predicates[:port]]
    return " and ".join([*before, *box.predicates[port : port + 1]])


def _windows(box: Aggregate, step: Step, by: str) -> str:
    assert isinstance(step, AggregateStep), "of an aggregate"
    if step.form is Form.PARTIAL:
        return f"partial results of panes of {_s(step.size_us)}{by}"
    window = f"windows of {_s(step.size_us)} every {_s(step.advance_us)}{by}"
    if step.form is Form.COMBINED:
        window += f", of {step.size_us // step.grain_us:,} panes each"
    return window


def _window(box: Aggregate, query: Query) -> ExplainedWindow:
    width = dict(query.panes).get(box.name)
    pane_s = None if width is None else width / 1e6
    why = _why(box, width)
    return ExplainedWindow(box.name, box.size_us / 1e6, box.advance_us / 1e6, pane_s, why)


def _why(box: Aggregate, width: int | None) -> str:
    overlap = -(-box.size_us // box.advance_us)
    if width is None:
        return f"made of its tuples: {_why_not(box, overlap)}"
    if overlap >= OVERLAP:
        return f"folded from panes: a tuple is read once, not in each of {overlap:,} windows"
    panes = box.size_us // width
    return f"folded from panes: it closes by reading {panes:,} panes, not all of its tuples"


def _why_not(box: Aggregate, overlap: int) -> str:
    if not has_room(box):
        return "its panes would have too many fields, or too long a name"
    if pane_us(box.size_us, box.advance_us) is not None:
        return (
            "that was decided when the query was created, and a modification leaves it so; create "
            "it anew, with fewer tasks if it has hundreds, to have it folded from panes"
        )
    if overlap >= OVERLAP or box.size_us // gcd(box.size_us, box.advance_us) > LIMIT_PANES:
        return (
            f"its size and its advance have no common divisor that makes {LIMIT_PANES:,} panes or "
            "fewer of it"
        )
    return (
        f"panes pay where a tuple is in {OVERLAP} windows or more, or where a window has {LONG} "
        "panes or more"
    )


def _s(microseconds: int) -> str:
    return f"{microseconds / 1e6:g} s"
