"""One window over a stream with a field of each kind, and its functions' results."""

from __future__ import annotations

from field_texts import fields_of

from medusa.engine.language.check import check_query
from medusa.engine.objects.query import Aggregate, AggregateCall, Query
from medusa.engine.objects.schema import Schema
from medusa.engine.operators.shared.step import Interval
from medusa.engine.reference.interpreter import run_task
from medusa.engine.tasks.plan import Task, plan

OUTPUT = "medusa://mit.edu/out"
SOURCE = Schema("medusa://mit.edu/s", fields_of("n long?, x double?, s string(20)?, t bool?"))
Rows = list[dict[str, object]]


def query(*functions: AggregateCall, size: int = 60, advance: int = 20) -> Query:
    box = Aggregate("w", SOURCE.name, OUTPUT, size, advance, (), functions)
    return Query("medusa://mit.edu/q", (box,))


def tasks(*functions: AggregateCall, pane: int | None = None, advance: int = 20) -> list[Task]:
    made = query(*functions, advance=advance)
    panes = () if pane is None else (("w", pane),)
    made = Query(made.name, made.boxes, panes=panes)
    return list(plan(made, check_query(made, {SOURCE.name: SOURCE})))


def computed(rows: Rows, *functions: AggregateCall, pane: int | None = None) -> Rows:
    files = {SOURCE.name: [{"seq": seq, **row} for seq, row in enumerate(rows)]}
    for task in tasks(*functions, pane=pane, advance=60):
        files[task.output] = run_task(task, files, -1_000, 1_000, Interval(-1_000, 1_000))
    return files[OUTPUT]


def of_values(function: str, values: list[object], parameter: float | str | None) -> object:
    """Return the result of one window, which must be the same for every division into panes."""
    whole, *folded = of_panes(function, values, parameter)
    assert folded == [whole, whole]
    return whole


def of_panes(function: str, values: list[object], parameter: float | str | None) -> list[object]:
    """Return the results of a window computed from tuples, and from panes of two widths."""
    rows = [{"stime": n % 60, "v": value} for n, value in enumerate(values)]
    rows.sort(key=lambda row: row["stime"])
    name = {str: "s", float: "x", bool: "t"}.get(type(values[0]), "n")
    each = AggregateCall(function, name, "o", parameter)
    blank = dict.fromkeys(("n", "x", "s", "t"))
    given = [{**blank, "stime": row["stime"], name: row["v"]} for row in rows]
    return [computed(given, each, pane=pane)[0]["o"] for pane in (None, 10, 3)]
