"""What a workload is, and how it went, as values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from tools.trial.rehearsal import SELF

Right = Callable[[], pa.Table]
"""Computes the right answer, independently of Medusa."""

STAGES: Final = {
    "rows": "the rows are generated",
    "post": "the rows are posted to a peer",
    "start": "Spark starts",
    "queries": "the queries run",
}
"""The stages of `testnet.workload.run.run_workload`."""


@dataclass(frozen=True)
class Script:
    """A text in SQL or XML, and the right answers.

    Attributes:
        right: by the names of the streams that are its answers, without the participant.
        declares: the source streams that the text itself defines; the others that it reads have the
            columns of their rows.
    """

    text: str
    right: Mapping[str, Right]
    declares: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Workload:
    """What is run.

    Attributes:
        title: what it is and how large, for people.
        tables: by the names of the source streams, without the participant, their rows by time.
        scripts: in the order in which they run.
        participant: who owns all streams.
    """

    title: str
    tables: Mapping[str, pa.Table]
    scripts: Sequence[Script]
    participant: str = SELF


@dataclass(frozen=True)
class Outcome:
    """How a query went.

    Attributes:
        query: the name of its answer.
        input_rows: that its script read.
        rows: of its answer; of a table that is updated, of the table in the end.
        missing: rows of the right answer that ours lacks. extra: rows of ours that are not right.
        exact: whether neither is there; None: it did not run.
        seconds: from the script's creation to the end of all its answers; the rows are in the
            streams by then.
        rows_per_s: of the input.
        refused: why it cannot be run. failed: why its run ended without an answer.
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


@dataclass(frozen=True)
class Result:
    """All outcomes. posting_s: seconds in which the rows were posted and acknowledged."""

    title: str
    posting_s: float
    outcomes: tuple[Outcome, ...]

    @property
    def good(self) -> bool:
        """Whether each answer is the right one."""
        return all(each.exact is not False for each in self.outcomes)

    @property
    def failed(self) -> bool:
        """Whether a query that can be run gave no answer."""
        return any(each.failed for each in self.outcomes)
