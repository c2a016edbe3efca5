"""`medusa view` and `medusa query copy`: read the interval, ask the peer, and print the answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from medusa.engine.objects.query import Query
from medusa.engine.objects.schema import BEGINNING, END
from medusa.engine.objects.view import Last, Range, Recent, Shows, View
from medusa.overlay.errors import InvalidInputError
from medusa.tools.client.at_prompt import ask
from medusa.tools.client.times import parse_time, show_time

if TYPE_CHECKING:
    from medusa.tools.client.calls import ClientCalls


def shown(last: int | None, last_seconds: float | None, range_: str | None) -> Shows:
    """The part of a stream that a view shows, by the one option that is given.

    Raises:
        InvalidInputError: a time is malformed.
    """
    if last is not None:
        return Last(last)
    if last_seconds is not None:
        return Recent(_microseconds(last_seconds))
    return parse_range(range_ or "")


def parse_range(text: str) -> Range:
    """
    Raises:
        InvalidInputError: it is not two times with two dots between them.
    """
    after, dots, until = text.partition("..")
    if not dots or not after or not until:
        raise InvalidInputError(
            f"range {text[:80]!a}: expected T0..T1, for the tuples after T0 and up to T1"
        )
    return Range(parse_time(after), parse_time(until))


def _microseconds(seconds: float) -> int:
    if not abs(seconds) < END / 1e6:  # this refuses NaN, too
        raise InvalidInputError(f"the last {seconds} seconds are not a time")
    return round(seconds * 1e6)


def create_view(home: str | None, view: View) -> tuple[View, dict[str, str]]:
    """Make a view; returns it, and who may read it, by its name."""

    async def make(client: ClientCalls) -> tuple[View, dict[str, str]]:
        return await client.create_view(view), client.readers

    return ask(home, make)


def delete_view(home: str | None, name: str) -> None:
    ask(home, lambda client: client.delete_view(name))


def copy_query(
    home: str | None, query: str, new: str, after: str, until: str
) -> tuple[tuple[str, ...], dict[str, str]]:
    """Copy a query; returns the names of the copy and of its streams, and who may read these.
    after, until: as people write times."""
    begins, ends = parse_time(after), parse_time(until)

    async def copy(client: ClientCalls) -> tuple[tuple[str, ...], dict[str, str]]:
        return await client.copy_query(query, new, begins, ends), client.readers

    return ask(home, copy)


def view_in_words(view: View) -> str:
    """A sentence about the part of a stream that a view shows."""
    match view.shows:
        case Last(rows=rows):
            told = f"the last {rows:,} tuples of {view.stream}"
        case Recent(span_us=span):
            told = f"the last {span / 1e6:g} s of {view.stream}"
        case Range():
            told = f"a part of {view.stream}"
    if view.is_fixed:
        return f"{told}: {interval_in_words(view.after, view.until)}, and nothing else"
    return f"{told}, moving with it; copied {interval_in_words(view.after, END)}"


def history_in_words(query: Query) -> list[str]:
    """A sentence about the interval of its inputs over which a query is computed; none if over
    all."""
    if (query.after, query.until, query.version) == (BEGINNING, END, 0):
        return []
    over = interval_in_words(query.after, query.until)
    return [f"computed over its inputs {over}; version {query.version}"]


def interval_in_words(after: int, until: int) -> str:
    """Words for the interval after < stime <= until."""
    begins = "the beginning" if after == BEGINNING else show_time(after)
    return f"from {begins} on" if until == END else f"from {begins} to {show_time(until)}"
