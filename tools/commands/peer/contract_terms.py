"""Contract terms as people write and read them: money, durations, menus."""

from __future__ import annotations

import re
from typing import Final

from medusa.contracts.market.cost import QueueingCost
from medusa.contracts.market.prices import price_range
from medusa.contracts.terms import (
    EVERY_KIND,
    ContentTerms,
    LoadTerms,
    Menu,
    SuggestedTerms,
    Terms,
)
from medusa.engine.operators.registry import WORDS
from medusa.overlay.errors import InvalidInputError
from medusa.tools.client.times import show_duration

MICROS: Final = 1_000_000
"""Micros in one of the parties' money."""

_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800, "y": 31_557_600}


def parse_money(text: str) -> int:
    """Micros of an amount written as a decimal number.

    Raises:
        InvalidInputError: it is no such number, is below 0, or is finer than a micro.
    """
    match = re.fullmatch(r"([0-9]{1,20})(?:\.([0-9]{1,6}))?", text)
    if match is None:
        raise InvalidInputError(
            f"amount {text[:80]!a}: expected a number from 0 on with at most 6 decimals, as in 0.25"
        )
    return int(match[1]) * MICROS + int((match[2] or "0").ljust(6, "0"))


def show_money(micros: int) -> str:
    """An amount as a decimal number, without needless zeros."""
    whole, rest = divmod(abs(micros), MICROS)
    sign = "-" if micros < 0 else ""
    return f"{sign}{whole}" + (f".{rest:06}".rstrip("0") if rest else "")


def parse_duration(text: str) -> int:
    """Seconds of `30d`, `12h`, `90s`, `2w`, `1y`.

    Raises:
        InvalidInputError: it is none.
    """
    match = re.fullmatch(r"([0-9]{1,12})([smhdwy])", text)
    if match is None:
        raise InvalidInputError(
            f"duration {text[:80]!a}: expected a number and one of s, m, h, d, w, y, as in 30d"
        )
    return int(match[1]) * _SECONDS[match[2]]


def parse_menu(text: str) -> Menu:
    """Parse the menu of one side: `LOAD`, `LOAD:KINDS` or `LOAD:KINDS:PATTERNS`; lists with commas,
    all kinds are `*`.

    Raises:
        InvalidInputError: the load is no whole number, or there is no such kind. The rest is
            checked with the terms.
    """
    load, _, rest = text.partition(":")
    kinds, _, streams = rest.partition(":")
    if re.fullmatch(r"[0-9]{1,12}", load) is None:
        raise InvalidInputError(
            f"menu {text[:80]!a}: expected LOAD[:KINDS[:STREAMS]] with a whole number of units "
            "(1 % of a core), as in 40 or 40:filter,map:medusa://mit.edu/*"
        )
    named = tuple((kinds or EVERY_KIND).split(","))
    for kind in named:
        if kind not in {EVERY_KIND, *WORDS}:
            raise InvalidInputError(
                f"menu {text[:80]!a}: {kind[:80]!a} is no box kind; known are {', '.join(WORDS)}"
            )
    return Menu(
        named,
        tuple(streams.split(",")) if streams else ("*",),
        int(load),
    )


def computed_range(price: int, tasks: int, task_load: float, capacity: float) -> tuple[int, int]:
    """The price range under which load can flow through `tasks` full peers (NSDI 2004, 3.3).

    Args:
        price: cost in micros of a unit for a peer at its capacity. task_load, capacity: units.

    Raises:
        InvalidInputError: a peer has no room for so many tasks.
    """
    return price_range(QueueingCost(capacity, price), capacity, task_load, tasks)


def kind_of(terms: Terms) -> str:
    """The kind: load, content or suggested."""
    return {LoadTerms: "load", ContentTerms: "content", SuggestedTerms: "suggested"}[type(terms)]


def in_short(terms: Terms) -> str:
    """The terms in a few words."""
    match terms:
        case LoadTerms():
            low, high = show_money(terms.min_price), show_money(terms.max_price)
            price = low if low == high else f"{low} to {high}"
            return f"load at {price}"
        case ContentTerms():
            return f"{terms.stream} for {_content_price(terms)}"
        case SuggestedTerms():
            where = terms.alternative or terms.stream
            return f"{terms.stream}: read {where}" + (f" at {terms.peer[:8]}" if terms.peer else "")


def in_full(terms: Terms, proposer: str, accepter: str) -> list[tuple[str, str]]:
    """Every term, as (name, words)."""
    match terms:
        case LoadTerms():
            return _load_lines(terms, proposer, accepter)
        case ContentTerms():
            payer = accepter if terms.sender == proposer else proposer
            lines = [
                ("stream", terms.stream),
                ("sent by", terms.sender),
                ("paid by", f"{payer}: {_content_price(terms)}"),
            ]
            if terms.availability_s:
                lines.append(("standstill", f"at most {show_duration(terms.availability_s)}"))
            return lines
        case SuggestedTerms():
            lines = [("stream", terms.stream), ("to be read by", accepter)]
            if terms.alternative:
                lines.append(("instead as", terms.alternative))
            if terms.peer:
                lines.append(("from peer", terms.peer))
            return lines


def _load_lines(terms: LoadTerms, proposer: str, accepter: str) -> list[tuple[str, str]]:
    lines = [
        ("price", f"{show_money(terms.min_price)} to {show_money(terms.max_price)}"),
        ("", "per unit of load (1 % of a core) and second"),
        (f"{proposer} runs", _menu(terms.proposer_runs)),
        (f"{accepter} runs", _menu(terms.accepter_runs)),
        ("passing on", "allowed" if terms.sublet else "not allowed"),
    ]
    if terms.migration_cost:
        lines.append(("each move", f"must be worth {show_money(terms.migration_cost)}"))
    if terms.availability_s:
        lines.append(("standstill", f"at most {show_duration(terms.availability_s)}"))
    if terms.replicas:
        lines.append(("replicas", f"{terms.replicas} peers run each task"))
    return lines


def _menu(menu: Menu) -> str:
    if menu.most_load == 0:
        return "nothing"
    kinds = "" if EVERY_KIND in menu.kinds else f" of {', '.join(menu.kinds)}"
    streams = "" if "*" in menu.streams else f" over {', '.join(menu.streams)}"
    return f"up to {menu.most_load} units{kinds}{streams}"


def _content_price(terms: ContentTerms) -> str:
    parts = []
    if terms.per_message:
        parts.append(f"{show_money(terms.per_message)} a tuple")
    if terms.per_period:
        parts.append(f"{show_money(terms.per_period)} per {show_duration(terms.period_s)}")
    return " and ".join(parts) or "nothing"
