"""A workload's outcomes for people: a row for each query."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from medusa.testnet.workload.workload import Beside, Outcome, Result


def render_result(result: Result) -> RenderableType:
    """The table of the queries that ran, and the reasons of those that did not; then the same of
    the system beside Medusa."""
    parts: list[RenderableType] = [
        Text(f"{result.title}, posted in {result.posting_s:.1f} s", "bold"),
        _queries(result.outcomes),
        *_reasons(result.outcomes),
    ]
    if result.beside is not None:
        parts += _beside(result.beside)
    return Group(*parts)


def _queries(outcomes: Sequence[Outcome]) -> Table:
    table = _table("query", "rows", "", "seconds", "input rows/s")
    for each in outcomes:
        if each.exact is not None:
            table.add_row(
                each.query,
                f"{each.rows:,}",
                _verdict(each),
                f"{each.seconds:.1f}",
                f"{each.rows_per_s:,.0f}",
            )
    return table


def _beside(beside: Beside) -> list[RenderableType]:
    title = Text(f"The same in {beside.system}", "bold")
    if beside.skipped:
        return [Text.assemble(title, Text(f" was skipped: {beside.skipped}", "yellow"))]
    table = _table("query", "rows", "", "input rows/s", "ratio", "job alone", "ratio")
    for each in beside.outcomes:
        if each.exact is not None:
            table.add_row(
                each.query,
                f"{each.rows:,}",
                _verdict(each),
                f"{each.rows_per_s:,.0f}",
                _ratio(beside.ratios.get(each.query)),
                f"{each.input_rows / each.job_s:,.0f}" if each.job_s else "",
                _ratio(beside.job_ratios.get(each.query)),
            )
    note = Text(
        "ratio: Medusa's rows/s as a multiple of these. job alone: without the job's planning and "
        "submission; of Medusa's time all counts.",
        "dim",
    )
    return [title, table, note, *_reasons(beside.outcomes)]


def _ratio(ratio: float | None) -> str:
    return "" if ratio is None else f"{ratio:.2f}"


def _table(*headings: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in headings:
        table.add_column(heading, justify="left" if heading in {"query", ""} else "right")
    return table


def _reasons(outcomes: Sequence[Outcome]) -> list[Text]:
    return [
        Text.assemble((each.query, "bold"), f" {word}: {reason}", style=style)
        for each in outcomes
        for word, reason, style in (
            ("cannot run", each.refused, "yellow"),
            ("failed", each.failed, "red"),
        )
        if reason
    ]


def _verdict(outcome: Outcome) -> Text:
    if outcome.exact:
        return Text("exact", "green")
    return Text(f"{outcome.missing:,} missing, {outcome.extra:,} wrong", "red")
