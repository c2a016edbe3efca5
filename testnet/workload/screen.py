"""A workload's outcomes for people: a row for each query."""

from __future__ import annotations

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from testnet.workload.workload import Outcome, Result


def render_result(result: Result) -> RenderableType:
    """The table of the queries that ran, and the reasons of those that did not."""
    title = Text(f"{result.title}, posted in {result.posting_s:.1f} s", "bold")
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("query", "rows", "", "seconds", "input rows/s"):
        table.add_column(heading, justify="left" if heading in {"query", ""} else "right")
    for each in result.outcomes:
        if each.exact is not None:
            table.add_row(
                each.query,
                f"{each.rows:,}",
                _verdict(each),
                f"{each.seconds:.1f}",
                f"{each.rows_per_s:,.0f}",
            )
    reasons = [
        Text.assemble((each.query, "bold"), f" {word}: {reason}", style=style)
        for each in result.outcomes
        for word, reason, style in (
            ("cannot run", each.refused, "yellow"),
            ("failed", each.failed, "red"),
        )
        if reason
    ]
    return Group(title, table, *reasons)


def _verdict(outcome: Outcome) -> Text:
    if outcome.exact:
        return Text("exact", "green")
    return Text(f"{outcome.missing:,} missing, {outcome.extra:,} wrong", "red")
