"""The results of the scenario: its answers, refusals and checks, as values and for people."""

from __future__ import annotations

from collections import Counter
from typing import Final

from msgspec import Struct
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from medusa.overlay.names import SCHEME
from medusa.testnet.kit.report import Check, Column, add_places, new_table, render_checks, table_of
from medusa.testnet.shared_intrusion.refusals import READ, Attempt


class Answer(Struct, frozen=True):
    """A stream against the oracle, as one participant received it.

    Attributes:
        missing: rows of the right answer that it lacks. extra: rows that are not right.
    """

    stream: str
    reader: str
    rows: int
    expected: int
    missing: int
    extra: int

    @property
    def exact(self) -> bool:
        return not (self.missing or self.extra)


class Found(Struct, frozen=True):
    """The findings in one laboratory's connections, from the stream that it shares.

    Attributes:
        connections: the connections that it posted. listed: of these, connections to listed
            addresses.
        beacons: pairs of a host and an address that are beacons by the pattern.
        planted: of these, the planted ones.
    """

    lab: str
    connections: int
    listed: int
    beacons: int
    planted: int
    beats: int


class Update(Struct, frozen=True):
    """The address that was put on the list while the script ran.

    Attributes:
        before, after: the numbers of connections to the address before and after it was put on the
        list, at both laboratories together. early: the number of connections that the shared stream
        had counted when the list changed. counted: the number that the shared stream counted in the
        end.
    """

    address: str
    before: int
    after: int
    early: int
    counted: int

    @property
    def good(self) -> bool:
        """Whether exactly the later connections count."""
        return self.early == 0 and self.counted == self.after


class Result(Struct, frozen=True):
    """All figures. seconds: the time from the first post to the last answer, the refusals
    included."""

    participants: tuple[str, ...]
    seed: int
    found: tuple[Found, ...]
    answers: tuple[Answer, ...]
    update: Update
    attempts: tuple[Attempt, ...]
    seconds: float
    folder: str | None = None

    @property
    def refused(self) -> int:
        """The number of refused attempts."""
        return sum(not each.allowed for each in self.attempts)

    @property
    def wrong(self) -> tuple[Attempt, ...]:
        """Attempts that should have ended otherwise."""
        return tuple(each for each in self.attempts if each.allowed != each.right)

    @property
    def good(self) -> bool:
        """Whether every answer is exact, and nobody got more or less than its right."""
        return all(each.exact for each in self.answers) and self.update.good and not self.wrong


def render_result(result: Result) -> RenderableType:
    """Show what each laboratory shared, the answers against the oracle, and the refusals."""
    places = Text()
    add_places(places, None, result.folder)
    return Group(
        _found(result), _answers(result), _rights(result), render_checks(_checks(result)), places
    )


def _found(result: Result) -> Table:
    title = f"Found in {result.seconds:.1f} s (seed {result.seed})"
    return table_of(result.found, _FOUND, title=title)


_FOUND: Final[tuple[Column[Found], ...]] = (
    Column("laboratory", lambda each: each.lab, words=True),
    Column("connections", lambda each: f"{each.connections:,}"),
    Column("to listed ones", lambda each: f"{each.listed:,}"),
    Column("beacons", lambda each: f"{each.beacons:,}"),
    Column("planted", lambda each: f"{each.planted:,}"),
    Column("beats", lambda each: f"{each.beats:,}"),
)


def _answers(result: Result) -> Table:
    title = "Answers against plain Python over all rows"
    return table_of(result.answers, _ANSWERS, title=title)


def _verdict(answer: Answer) -> Text:
    if answer.exact:
        return Text("exact", "green")
    return Text(f"{answer.missing:,} missing, {answer.extra:,} wrong", "red")


_ANSWERS: Final[tuple[Column[Answer], ...]] = (
    Column("stream", lambda each: _short(each.stream), words=True),
    Column("reader", lambda each: each.reader),
    Column("rows", lambda each: f"{each.rows:,}"),
    Column("", _verdict),
)


def _rights(result: Result) -> Table:
    """Show the readers: a row for each stream, a column for each participant."""
    headings = ("stream", *result.participants)
    table = new_table(headings, ("stream",), title="Who may read what, as asked")
    reads = {(each.stream, each.who): each for each in result.attempts if each.way == READ}
    for stream in dict.fromkeys(stream for stream, _ in reads):
        cells = []
        for who in result.participants:
            each = reads[stream, who]
            word, style = ("reads", "green") if each.allowed else ("refused", "yellow")
            cells.append(Text(word, style if each.allowed == each.right else "bold red"))
        table.add_row(_short(stream), *cells)
    return table


def _short(stream: str) -> str:
    return stream.removeprefix(SCHEME)


def _checks(result: Result) -> list[Check]:
    ways = Counter(each.way for each in result.attempts if not each.allowed)
    refused = ", ".join(f"{count} by {way}" for way, count in sorted(ways.items()))
    wrong = "; ".join(
        f"{each.who} {'got' if each.allowed else 'was refused'} {each.stream} by {each.way}"
        for each in result.wrong
    )
    update, exact = result.update, sum(each.exact for each in result.answers)
    return [
        Check(
            "Every answer is the oracle's",
            exact == len(result.answers),
            f"{exact} of {len(result.answers)}",
        ),
        Check(
            "Nobody got a row of another, or could change its streams",
            not result.wrong,
            wrong or f"{result.refused} of {len(result.attempts)} attempts refused: {refused}",
        ),
        Check(
            "An address counts from the time on at which it is listed",
            update.good,
            f"{update.address}: {update.before} connections before, {update.early} counted; "
            f"{update.after} after, {update.counted} counted",
        ),
    ]
