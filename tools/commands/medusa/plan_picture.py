"""The plan of a query as a picture: streams, and below each the tasks that read it."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.text import Text
from rich.tree import Tree

from medusa.engine.tasks.explaining import ExplainedTask, Explanation
from medusa.overlay.plain import plain
from medusa.tools.commands.medusa.explain_query import kept, placed

DEEPEST = 5
"""The most tasks below each other: a task that reads the last one begins a new tree, so that boxes
stay wide."""

_COLOURS = {
    "repeatable": "green",
    "convergent": "cyan",
    "deterministic": "yellow",
    "arbitrary": "red",
}
"""The colours of frames, by the class of the task."""


def plan_picture(explanation: Explanation) -> RenderableType:
    """The tasks as frames with their boxes, each below the first stream that it reads; below the
    others is its number."""
    return _Picture(plain(explanation)).drawn()


class _Picture:
    def __init__(self, explanation: Explanation) -> None:
        self._explanation = explanation
        self._tasks = {task.stream: task for task in explanation.tasks}
        self._numbers = {stream: number for number, stream in enumerate(self._tasks, 1)}
        self._waiting: list[str] = []  # streams that begin a tree

    def drawn(self) -> RenderableType:
        read = [name for task in self._explanation.tasks for name in task.reads]
        self._waiting = sorted({name for name in read if name not in self._tasks})
        trees: list[RenderableType] = [Text(f"query {self._explanation.query}", "bold")]
        while self._waiting:
            stream = self._waiting.pop(0)
            tree = Tree(self._root(stream), guide_style="dim")
            self._add_readers(tree, stream, 1)
            trees.append(tree)
        trees += [
            Text(f"window {each.box}: {each.why}", "dim") for each in self._explanation.windows
        ]
        return Group(*trees)

    def _root(self, stream: str) -> Text:
        number = self._numbers.get(stream)
        return Text(stream if number is None else f"{stream} (of {number})", "bold")

    def _add_readers(self, node: Tree, stream: str, depth: int) -> None:
        readers = [task for task in self._explanation.tasks if stream in task.reads]
        if readers and depth > DEEPEST:
            node.add(Text("read below", "dim"))
            self._waiting.append(stream)
            return
        for task in readers:
            number = self._numbers[task.stream]
            if task.reads[0] != stream:
                how = " as a table" if stream in task.tables else ""
                node.add(Text(f"read by {number}{how}: {task.stream}", "dim"))
                continue
            below = node.add(self._frame(task, number))
            self._add_readers(below, task.stream, depth + 1)

    def _frame(self, task: ExplainedTask, number: int) -> Panel:
        lines = [Text(each) for each in task.steps or ("their union",)]
        lines += [Text(f"and reads {each}", "dim") for each in task.reads[1:]]
        facts = [task.box_class]
        facts += [f"key {', '.join(task.key)}"] if task.key else []
        facts += [f"keeps {each}" for each in kept(task)]
        facts += [placed(task)] if task.place else []
        lines.append(Text("; ".join(facts), "dim"))
        return Panel(
            Group(*lines),
            title=Text(f"{number} {task.stream}"),
            title_align="left",
            border_style=_COLOURS.get(task.box_class, "none"),
        )
