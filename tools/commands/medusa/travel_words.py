"""Sentences about views, and about queries over an interval of their inputs."""

from __future__ import annotations

from engine.objects.query import Query
from engine.objects.schema import BEGINNING, END
from engine.objects.view import Last, Range, Recent, View
from tools.client.times import show_time


def view_in_words(view: View) -> str:
    """What a view shows."""
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


def past_in_words(query: Query) -> list[str]:
    """Over which part of its inputs a query is computed; nothing where over all."""
    if (query.after, query.until, query.version) == (BEGINNING, END, 0):
        return []
    over = interval_in_words(query.after, query.until)
    return [f"computed over its inputs {over}; version {query.version}"]


def interval_in_words(after: int, until: int) -> str:
    """The tuples with after < stime <= until."""
    begins = "the beginning" if after == BEGINNING else show_time(after)
    return f"from {begins} on" if until == END else f"from {begins} to {show_time(until)}"
