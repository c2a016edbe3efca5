"""The editions of a query: its present boxes, and former versions of some of them.

A query that is modified at boundary T makes the tuples after T with its new parameters. Those
before T may still have to be computed, by a new task or by another peer. So former boxes are kept
until no peer can need them.

Results that were emitted stay true, and every window that ends later is wholly of the new edition.
So T (`earliest`) is not behind any result that others may know, nor behind the start of such a
window.

Windows that overlap are always open. If they are folded from panes, T is so late that the panes of
all windows that end after T can be made with the new parameters, and meanwhile also with the old
ones: a modification of the panes counts `overlap_us` before T. Sans IO.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import lcm
from typing import Final

import msgspec
from msgspec import Struct

from medusa.engine.objects.query import Box, Query
from medusa.engine.objects.schema import BEGINNING, END, Schema
from medusa.engine.operators.shared.step import Step
from medusa.engine.tasks.plan import EditionSteps, Task
from medusa.engine.tasks.windows import first_whole, whole_after
from medusa.overlay.errors import ConflictError, InvalidInputError

MAX_EDITIONS: Final = 32
"""Former editions of one query: a peer that computes it plans them all."""


MAX_CHARACTERS: Final = 2**20
"""Characters of all editions' expressions together: a peer plans some 100,000 a second."""


class Edition(Struct, frozen=True):
    """Some boxes of a query, as they were in a former edition.

    Attributes:
        upto: the boxes made the tuples up to this boundary, microseconds. boxes: they replace the
            boxes of the same names in the next edition.
    """

    upto: int
    boxes: tuple[Box, ...]


def restored(query: Query, edition: Edition) -> Query:
    """The former edition of a query.

    Raises:
        InvalidInputError: the query has no box of that name.
    """
    boxes = {box.name: box for box in edition.boxes}
    unknown = boxes.keys() - {box.name for box in query.boxes}
    if unknown:
        raise InvalidInputError(f"{query.name} has no box {min(unknown)[:64]!a}")
    made = tuple(boxes.get(box.name, box) for box in query.boxes)
    return msgspec.structs.replace(query, boxes=made)


def check_history(query: Query, editions: Sequence[Edition]) -> None:
    """Check the number, size and order of editions. Raises: InvalidInputError."""
    if len(editions) > MAX_EDITIONS:
        raise InvalidInputError(
            f"{len(editions)} former editions; at most {MAX_EDITIONS} are allowed"
        )
    boxes = (*query.boxes, *(box for each in editions for box in each.boxes))
    characters = (1 + len(editions)) * sum(len(text) for box in boxes for text in box.texts)
    if characters > MAX_CHARACTERS:
        raise InvalidInputError(
            f"the expressions of all its editions have up to {characters:,} characters, at most "
            f"{MAX_CHARACTERS:,} are allowed: let its consumers catch up first"
        )
    boundaries = [each.upto for each in editions]
    if boundaries != sorted(boundaries) or END in boundaries:
        raise InvalidInputError("its former editions do not follow one another")


def succeeded(before: Iterable[Task], now: Iterable[Task], upto: int) -> tuple[Task, ...]:
    """The tasks of an edition; up to a boundary they compute with the steps of the edition before.

    Args:
        before: the tasks of the edition before, with their own former steps.

    Raises:
        InvalidInputError: a task has other inputs, or its output other fields.
    """
    known = {task.name: task for task in before}
    tasks = list(now)
    overlaps = _overlaps(tasks)
    begins: dict[str, int] = {}
    made = []
    for task in tasks:
        old = known.get(task.name)
        if old is None or old.inputs != task.inputs:
            raise InvalidInputError(f"{task.name} was not made of these streams before")
        _check_same(task.name, old.output_schema, task.output_schema)
        for before_it, step in zip(old.steps, task.steps, strict=False):
            step.check_succeeds(task.name, before_it)
        editions = list(old.editions)
        steps = old.steps
        if steps != task.steps and task.name in overlaps:
            begin = max(BEGINNING, upto - overlaps[task.name], *(each.upto for each in editions))
            begins[task.name] = begin
            editions.append(EditionSteps(begin, steps, upto))
            editions.append(EditionSteps(upto, task.steps, upto, former=steps))
        elif task.inputs[0] in begins:
            editions.append(EditionSteps(upto, _of_former(steps, begins[task.inputs[0]]), upto))
        elif steps != task.steps:
            editions.append(EditionSteps(upto, steps, upto))
        made.append(replace(task, editions=tuple(editions)))
    return tuple(made)


def _overlaps(tasks: Iterable[Task]) -> dict[str, int]:
    """For each stream of panes of overlapping windows: how long before the boundary T of a
    modification it must be computed with the new parameters, microseconds."""
    found = {}
    for task in tasks:
        window = task.windows
        if window is not None and window.of_panes and window.overlapping:
            found[task.inputs[0]] = window.size_us - window.grain_us
    return found


def _of_former(steps: Sequence[Step], begin: int) -> tuple[Step, ...]:
    """The same steps for a task over panes, when both a former edition and the present one make the
    panes after the boundary `begin`."""
    return tuple(step.of_former(begin) for step in steps)


def trimmed(tasks: Iterable[Task], upto: int) -> tuple[Task, ...]:
    """The tasks without former editions that end at that boundary or before."""
    return tuple(
        replace(task, editions=tuple(each for each in task.editions if each.modified > upto))
        for task in tasks
    )


def changed(before: Iterable[Task], now: Iterable[Task]) -> frozenset[str]:
    """The tasks whose steps differ, and tasks that must distinguish old panes from new ones."""
    known = {task.name: task.steps for task in before}
    tasks = list(now)
    found = frozenset(task.name for task in tasks if known[task.name] != task.steps)
    panes = found & _overlaps(tasks).keys()
    return found | {task.name for task in tasks if task.inputs[0] in panes}


def affected(tasks: Iterable[Task], names: Collection[str]) -> frozenset[str]:
    """The named tasks, and all that read their outputs, directly or not.

    Args:
        tasks: each after those whose output it reads.
    """
    found = set(names)
    for task in tasks:
        if not found.isdisjoint(task.inputs):
            found.add(task.name)
    return frozenset(found)


def made_since(tasks: Sequence[Task], settled: Mapping[str, int]) -> dict[str, int]:
    """For each output that modifications changed: the boundary after which the present edition
    makes it. Args: settled: the same boundaries for dropped editions.
    """
    found = dict(settled)
    for upto in sorted({each.modified for task in tasks for each in task.editions}):
        found |= dict.fromkeys(affected(tasks, changing(tasks, upto)), upto)
    return found


def changing(tasks: Iterable[Task], boundary: int) -> dict[str, int]:
    """The tasks that the modification at that boundary changes, and for each the boundary after
    which it is changed, microseconds."""
    return {
        task.name: min(uptos)
        for task in tasks
        if (uptos := [each.upto for each in task.editions if each.modified == boundary])
    }


def _check_same(stream: str, before: Schema, now: Schema) -> None:
    if (before.fields, before.time) != (now.fields, now.time):
        raise InvalidInputError(
            f"{stream} would have the fields {_listed(now)} instead of {_listed(before)}, which "
            "those who read it go by: keep them, or make another query"
        )


def _listed(schema: Schema) -> str:
    fields = (
        f"{each.name} {each.type}{'' if each.size is None else f'({each.size})'}"
        f"{' or null' if each.nullable else ''}"
        for each in schema.fields
    )
    text = ", ".join(fields)
    if schema.time is not None:
        text += f" (time {schema.time})"
    return text if len(text) <= 300 else text[:297] + "..."


@dataclass(frozen=True, slots=True)
class Footing:
    """One peer's boundaries of a query, microseconds; names that are missing in a mapping have
    none. Attributes: given: by task: the boundary up to which others may know its output. usable:
    by stream: the boundary after which this peer has the stream of the present edition.
    """

    given: Mapping[str, int]
    usable: Mapping[str, int]

    def joined(self, usable: Mapping[str, int]) -> Footing:
        """The footing in which each stream is usable after the later one of both boundaries."""
        both = {
            name: max(self.usable.get(name, BEGINNING), usable.get(name, BEGINNING))
            for name in self.usable.keys() | usable.keys()
        }
        return Footing(self.given, both)


def earliest(tasks: Sequence[Task], names: frozenset[str], footing: Footing, least: int) -> int:
    """The earliest boundary, from `least` on, after which the new edition can take effect. Args:
    tasks: the tasks of the new edition, each after those whose output it reads. names: the tasks
    that change, as `changed` returns them. Raises: InvalidInputError: there is none, because
    overlapping windows read a stream that changes. ConflictError: an output has ended, or the
    boundary would be beyond all time.
    """
    at = max([least, *(footing.given.get(name, BEGINNING) for name in names)])
    if at == BEGINNING:
        return at  # nothing has been computed yet
    changes = affected(tasks, names)
    made = {task.name: task for task in tasks}
    period = 1
    for task in tasks:
        window = task.windows
        if task.near is not None:
            _refuse_mixed(task, changes)
            at = max(at, _whole(task, footing)) if task.name in names else at
        if window is None:
            continue
        if not changes.isdisjoint(task.inputs):
            # windows must not have tuples of both editions
            if not window.overlapping:
                period = lcm(period, window.advance_us)
                continue
            panes = made.get(task.inputs[0])
            if not window.of_panes or panes is None or changes & {*panes.inputs}:
                raise InvalidInputError(
                    f"{task.name} is made of overlapping windows over "
                    f"{min(changes.intersection(task.inputs))}: there is no boundary at which none "
                    "of them is open, and they would mix old tuples and new ones; make another "
                    "query, or let those windows not overlap"
                )
            # two editions make the panes of the first new window; a third edition must not
            known = (footing.usable.get(name, BEGINNING) for name in (panes.name, task.name))
            begin = max(footing.given.get(panes.name, BEGINNING), _whole(panes, footing), *known)
            at = max(at, begin + window.size_us - window.grain_us)
            period = lcm(period, window.grain_us)
        elif task.name in names:
            at = max(at, _whole(task, footing))
    at = -(-(at + 1) // period) * period - 1
    if at >= END:
        ended = [name for name in names if footing.given.get(name) == END]
        why = f"{min(ended)} has ended" if ended else "the boundary would be beyond all time"
        raise ConflictError(f"{why}: there is nothing to come that could be made otherwise")
    return at


def _refuse_mixed(task: Task, changes: frozenset[str]) -> None:
    changed = changes.intersection(task.inputs)
    if changed and task.span_us:
        raise InvalidInputError(
            f"{task.name} is made of tuples of {min(changed)} that are near each other, and would "
            "mix old ones with new ones: make another query"
        )


def _whole(task: Task, footing: Footing) -> int:
    """The boundary after which all results of a task come from inputs of the present edition."""
    known = max(footing.usable.get(stream, BEGINNING) for stream in task.inputs)
    if known == BEGINNING or task.windows is None:
        return whole_after(task, known)
    return first_whole(task.windows, known)
