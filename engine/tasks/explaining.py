"""The plan of a query in words: its tasks, the part of its inputs that each keeps, and why windows
are folded from panes or not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from medusa.engine.language.classes import class_of
from medusa.engine.language.folding import widths
from medusa.engine.language.tables import made_of_tables
from medusa.engine.objects.functions import UserFunction
from medusa.engine.objects.query import Box, Query
from medusa.engine.objects.schema import BEGINNING
from medusa.engine.operators.registry import operator_of
from medusa.engine.operators.shared.operator import BoxClass, ExplainedWindow
from medusa.engine.operators.shared.panes import panes_name
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
        steps: in order, each with its box; empty: it is only a union. keeps_s: how much of its
            inputs it keeps behind its boundary, seconds. key: the fields that identify a tuple of
            its output; empty: none do. box_class: the weakest of its boxes' classes: see
            `medusa.engine.operators.shared.operator.BoxClass`.
        tables: the inputs that it reads as tables, of which it keeps the newest tuple of each key.
        recalls: whether its state is its own output, a table. place: id (hex) of the peer that
            computes it; "": this is not known, or no peer does.
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


class Explanation(Struct, frozen=True):
    """The plan of one query.

    Attributes:
        since: the boundary, microseconds, after which this plan is in effect. Up to this boundary,
            the plan before the query's last modification is in effect.
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
    query = network.query
    panes = dict(query.panes)
    windows = (operator_of(box).explained(panes.get(box.name)) for box in query.boxes)
    return Explanation(
        query.name,
        tuple(_task(task, query) for task in network.tasks()),
        tuple(each for each in windows if each is not None),
        since,
    )


_ORDERED: Final = "union: into order"
_PICKED: Final = "the results alone, without the values that they are made of"


def _task(task: Task, query: Query) -> ExplainedTask:
    steps = ["revisions"]
    of = task if task.of is None else task.of
    made = _made_by(of, query)
    if task.of is None:
        # A step without a box puts a union of one stream into order. Steps without boxes also make
        # totals and windows of tuples from the tables behind them.
        first = _PICKED if made and operator_of(made[-1][0]).made_of_table else _ORDERED
        widths_of = dict(query.panes)
        words = [
            f"{box.name}: {operator_of(box).in_words(stream, widths_of.get(box.name))}"
            for box, stream in made
        ]
        steps = [*reversed([*words, first][: len(task.steps)])]
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
    beside = (*widths(query), *made_of_tables(query))
    made |= {panes_name(stream): made[stream] for stream in beside}
    found: list[tuple[Box, str]] = []
    stream = task.output
    while stream not in task.inputs and stream in made and operator_of(made[stream]).has_step:
        box = made[stream]
        found.append((box, stream))
        if panes_name(stream) in task.inputs or len(box.inputs) > 1:
            break
        stream = box.inputs[0]
    return found
