"""The figures for people."""

from __future__ import annotations

from collections import Counter

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from medusa.overlay.names import SCHEME
from medusa.testnet.kit.checks import add_places, render_checks
from medusa.testnet.shared_intrusion.refusals import READ
from medusa.testnet.shared_intrusion.run import Answer, Result


def render_result(result: Result) -> RenderableType:
    """Show what each laboratory shared, the answers against the oracle, and the refusals."""
    places = Text()
    add_places(places, None, result.folder)
    return Group(
        _found(result),
        _answers(result),
        _rights(result),
        render_checks(_checks(result)),
        places,
    )


def _table(title: str, *headings: str) -> Table:
    made = Table(
        title=title, title_style="bold", title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False
    )
    made.add_column(headings[0], overflow="fold")
    for heading in headings[1:]:
        made.add_column(heading, justify="right", no_wrap=True)
    return made


def _found(result: Result) -> Table:
    table = _table(
        f"Found in {result.seconds:.1f} s (seed {result.seed})",
        *("laboratory", "connections", "to listed ones", "beacons", "planted", "beats"),
    )
    for each in result.found:
        numbers = (each.connections, each.listed, each.beacons, each.planted, each.beats)
        table.add_row(each.lab, *(f"{number:,}" for number in numbers))
    return table


def _answers(result: Result) -> Table:
    table = _table("Answers against plain Python over all rows", "stream", "reader", "rows", "")
    for each in result.answers:
        table.add_row(_short(each.stream), each.reader, f"{each.rows:,}", _verdict(each))
    return table


def _verdict(answer: Answer) -> Text:
    if answer.exact:
        return Text("exact", "green")
    return Text(f"{answer.missing:,} missing, {answer.extra:,} wrong", "red")


def _rights(result: Result) -> Table:
    """Show the readers: a row for each stream, a column for each participant."""
    table = _table("Who may read what, as asked", "stream", *result.participants)
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


def _checks(result: Result) -> list[tuple[str, bool, bool, str]]:
    ways = Counter(each.way for each in result.attempts if not each.allowed)
    refused = ", ".join(f"{count} by {way}" for way, count in sorted(ways.items()))
    wrong = "; ".join(
        f"{each.who} {'got' if each.allowed else 'was refused'} {each.stream} by {each.way}"
        for each in result.wrong
    )
    update = result.update
    return [
        (
            "Every answer is the oracle's",
            all(each.exact for each in result.answers),
            True,
            f"{sum(each.exact for each in result.answers)} of {len(result.answers)}",
        ),
        (
            "Nobody got a row of another, or could change its streams",
            not result.wrong,
            True,
            wrong or f"{result.refused} of {len(result.attempts)} attempts refused: {refused}",
        ),
        (
            "An address counts from the time on at which it is listed",
            update.good,
            True,
            f"{update.address}: {update.before} connections before, {update.early} counted; "
            f"{update.after} after, {update.counted} counted",
        ),
    ]
