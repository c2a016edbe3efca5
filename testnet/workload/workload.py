"""A workload, and the outcome of its run, as values and for people."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import pyarrow as pa
from rich.console import Group, RenderableType
from rich.text import Text

from medusa.testnet.kit.report import Column, new_table, table_of
from medusa.tools.trial.trial import SELF

Right = Callable[[], pa.Table]
"""A function that computes the right answer, independently of Medusa."""

STAGES: Final = {
    "rows": "the rows are generated",
    "post": "the rows are posted to a peer",
    "start": "Spark starts",
    "queries": "the queries run",
}
"""The stages of `medusa.testnet.workload.run.run_workload`."""


@dataclass(frozen=True)
class Script:
    """A text in SQL or XML, and the right answers.

    Attributes:
        right: the right answers, by the names of the streams that are its answers, without the
            participant.
        declares: the source streams that the text itself defines; the others that it reads have the
            columns of their rows.
    """

    text: str
    right: Mapping[str, Right]
    declares: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Workload:
    """A workload: its tables and its scripts.

    Attributes:
        title: its subject and size, for people. tables: the tables, by the names of the source
            streams, without the participant, their rows by time. scripts: the scripts in the order
            in which they run. participant: the owner of all streams.
    """

    title: str
    tables: Mapping[str, pa.Table]
    scripts: Sequence[Script]
    participant: str = SELF


@dataclass(frozen=True)
class Outcome:
    """The outcome of a query.

    Attributes:
        query: the name of its answer.
        input_rows: the number of rows that its script read. rows: the number of the answer's rows;
            for an updated table, of its final rows. missing: rows of the right answer that ours
            lacks. extra: rows of ours that are not right.
        exact: whether there are neither; None: it did not run.
        seconds: the time from the script's creation to the end of all its answers; the rows are in
            the streams by then.
        rows_per_s: rows of the input per second.
        refused: why it cannot be run. failed: why its run ended without an answer.
        job_s: for another system, the seconds in which the job ran by its own count.
    """

    query: str
    input_rows: int = 0
    rows: int = 0
    missing: int = 0
    extra: int = 0
    exact: bool | None = None
    seconds: float = 0.0
    rows_per_s: float = 0.0
    refused: str = ""
    failed: str = ""
    job_s: float = 0.0


@dataclass(frozen=True)
class Beside:
    """The same queries in another system, over the same rows.

    Attributes:
        system: its name.
        ratios: for each query that ran in both, Medusa's rows a second as a multiple of the other
        system's. job_ratios: the same, where the other system's seconds are those of its job alone,
        and Medusa's are all. skipped: why it did not run.
    """

    system: str
    outcomes: tuple[Outcome, ...] = ()
    ratios: Mapping[str, float] = field(default_factory=dict)
    job_ratios: Mapping[str, float] = field(default_factory=dict)
    skipped: str = ""


@dataclass(frozen=True)
class Result:
    """All outcomes.

    Attributes:
        posting_s: seconds in which the rows were posted and acknowledged.
        beside: the outcomes of another system; they do not affect the verdict.
    """

    title: str
    posting_s: float
    outcomes: tuple[Outcome, ...]
    beside: Beside | None = None

    @property
    def good(self) -> bool:
        """Whether each answer is the right one."""
        return all(each.exact is not False for each in self.outcomes)

    @property
    def failed(self) -> bool:
        """Whether a query that can be run gave no answer."""
        return any(each.failed for each in self.outcomes)


def with_beside(result: Result, theirs: Beside) -> Result:
    """The result with another system's outcomes, and the ratios to them."""
    ours = {each.query: each.rows_per_s for each in result.outcomes if each.exact is not None}
    both = [each for each in theirs.outcomes if each.exact is not None and each.query in ours]
    ratios = {each.query: ours[each.query] / each.rows_per_s for each in both}
    job_ratios = {
        each.query: ours[each.query] * each.job_s / each.input_rows for each in both if each.job_s
    }
    return replace(result, beside=replace(theirs, ratios=ratios, job_ratios=job_ratios))


def render_result(result: Result) -> RenderableType:
    """The table of the queries that ran, and the reasons of those that did not; then the same of
    the system beside Medusa."""
    parts: list[RenderableType] = [
        Text(f"{result.title}, posted in {result.posting_s:.1f} s", "bold"),
        table_of(_ran(result.outcomes), _QUERIES),
        *_reasons(result.outcomes),
    ]
    if result.beside is not None:
        parts += _beside(result.beside)
    return Group(*parts)


def _verdict(outcome: Outcome) -> Text:
    if outcome.exact:
        return Text("exact", "green")
    return Text(f"{outcome.missing:,} missing, {outcome.extra:,} wrong", "red")


_QUERIES: Final[tuple[Column[Outcome], ...]] = (
    Column("query", lambda each: each.query, words=True),
    Column("rows", lambda each: f"{each.rows:,}"),
    Column("", _verdict, words=True),
    Column("seconds", lambda each: f"{each.seconds:.1f}"),
    Column("input rows/s", lambda each: f"{each.rows_per_s:,.0f}"),
)


def _beside(beside: Beside) -> list[RenderableType]:
    title = Text(f"The same in {beside.system}", "bold")
    if beside.skipped:
        return [Text.assemble(title, Text(f" was skipped: {beside.skipped}", "yellow"))]
    headings = ("query", "rows", "", "input rows/s", "ratio", "job alone", "ratio")
    table = new_table(headings, ("query", ""))
    for each in _ran(beside.outcomes):
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


def _ran(outcomes: Sequence[Outcome]) -> list[Outcome]:
    return [each for each in outcomes if each.exact is not None]


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
