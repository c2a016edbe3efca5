"""The terms of a contract. Money is integer micros of the parties' money; load is in units of 1 %
of a core, so a price is micros per unit and second."""

from __future__ import annotations

import re
from typing import Final

from msgspec import Struct

from medusa.overlay.errors import InvalidInputError
from medusa.overlay.identity import parse_peer_id
from medusa.overlay.names import MAX_NAME, ObjectName

UNITS_PER_CORE: Final = 100
"""Units of load in a core: one unit is 1 % of a core."""

NS_PER_UNIT_SECOND: Final = 10**9 // UNITS_PER_CORE
"""CPU nanoseconds of one unit of load during one second."""

EVERY_KIND: Final = "*"
"""An entry of a menu that stands for every kind of box, also for kinds of later releases."""

_KIND: Final = re.compile(r"[a-z_]{1,32}", re.ASCII)

MAX_PRICE: Final = 2**40
"""Micros, of any price in a contract: a million of money for one unit of load or one tuple; sums
over the life of a contract stay within 63 bits."""

MAX_LOAD: Final = 2**16 * UNITS_PER_CORE
"""Units of load on a menu: 65,536 cores; more is a mistake."""

MAX_PATTERNS: Final = 16
"""The most stream patterns of a menu: two full menus fit into a document."""

MAX_CLAUSE_S: Final = 10 * 366 * 86_400
"""Seconds that a clause or a period may span: no contract is valid for longer."""

MAX_REPLICAS: Final = 16
"""Peers that a clause may require to run one task: each costs the whole work."""

_PATTERN = re.compile(r"[A-Za-z0-9._:/*?-]+")


class Menu(Struct, frozen=True, array_like=True):
    """The tasks that one side will run for the other.

    Attributes:
        kinds: box kinds (filter, map, union, aggregate...); a task may have no other. `*`: all.
        streams: patterns (shell style) of the streams its tasks may read, as in medusa://a.edu/*.
        most_load: units of load at once; 0: nothing.
    """

    kinds: tuple[str, ...] = (EVERY_KIND,)
    streams: tuple[str, ...] = ("*",)
    most_load: int = 0


class LoadTerms(Struct, frozen=True, array_like=True, tag="load_terms"):
    """Each side runs tasks for the other at a price within a range (NSDI 2004: bounded price).

    Attributes:
        min_price, max_price: micros per unit of load and second.
        proposer_runs, accepter_runs: the tasks that each side will run for the other.
        sublet: whether a task may be passed on to a third party.
        migration_cost: micros that each move costs the side that gives the task away; only moves
            that are worth it take place.
        availability_s: seconds of standstill after which the owner takes a task home; 0: no clause.
        replicas: how many peers must run a task at once; 0: no clause. It is recorded; only active
            standby acts on it.
    """

    min_price: int
    max_price: int
    proposer_runs: Menu = Menu()
    accepter_runs: Menu = Menu()
    sublet: bool = True
    migration_cost: int = 0
    availability_s: int = 0
    replicas: int = 0


class ContentTerms(Struct, frozen=True, array_like=True, tag="content_terms"):
    """The receiver pays the sender for a stream (Cherniack et al., CIDR 2003: content contract).

    Attributes:
        stream: its object name. sender: the party that delivers it; the other one pays.
        per_message: micros a tuple. per_period: micros for each full period of `period_s`, on top.
        availability_s: longest promised standstill of the stream, seconds; 0: no clause.
    """

    stream: str
    sender: str
    per_message: int = 0
    per_period: int = 0
    period_s: int = 0
    availability_s: int = 0


class SuggestedTerms(Struct, frozen=True, array_like=True, tag="suggested_terms"):
    """The proposer suggests another source of a stream; the receiver may ignore it, or accept it
    and read from there from then on.

    Attributes:
        stream: the stream that the receiver reads now.
        peer: id (hex) of a peer to read it from instead.
        alternative: another stream with the same content, "" for the same stream.
    """

    stream: str
    peer: str = ""
    alternative: str = ""


Terms = LoadTerms | ContentTerms | SuggestedTerms


def amount_of(rows: int, cost_ns: int, price: int) -> int:
    """The micros owed for running a task over `rows` input tuples.

    Args:
        rows: input tuples. cost_ns: the agreed CPU nanoseconds for a tuple.
        price: micros per unit of load and second.
    """
    return rows * cost_ns * price // NS_PER_UNIT_SECOND


def check_terms(terms: Terms, proposer: str, accepter: str) -> None:
    """Check the terms between two parties.

    Raises:
        InvalidInputError: a price, menu, clause or name is out of bounds; names it, and the mend.
    """
    match terms:
        case LoadTerms():
            _check_load(terms)
        case ContentTerms():
            _check_content(terms, (proposer, accepter))
        case SuggestedTerms():
            _check_suggested(terms)


def _check_load(terms: LoadTerms) -> None:
    check_within("min_price", terms.min_price, MAX_PRICE)
    check_within("max_price", terms.max_price, MAX_PRICE)
    check_within("migration_cost", terms.migration_cost, MAX_PRICE)
    check_within("availability_s", terms.availability_s, MAX_CLAUSE_S)
    check_within("replicas", terms.replicas, MAX_REPLICAS)
    if terms.min_price > terms.max_price:
        raise InvalidInputError(
            f"prices {terms.min_price} to {terms.max_price} micros: the least is above the most"
        )
    _check_menu("what the proposer runs", terms.proposer_runs)
    _check_menu("what the accepter runs", terms.accepter_runs)
    if terms.proposer_runs.most_load == terms.accepter_runs.most_load == 0:
        raise InvalidInputError("neither side runs anything: give one of them a most_load above 0")


def _check_menu(what: str, menu: Menu) -> None:
    check_within(f"{what}: most_load", menu.most_load, MAX_LOAD)
    for kind in menu.kinds:
        if kind != EVERY_KIND and _KIND.fullmatch(kind) is None:
            raise InvalidInputError(f"{what}: {kind[:80]!a} is no name of a box kind, like filter")
    if not menu.kinds or len(set(menu.kinds)) != len(menu.kinds):
        raise InvalidInputError(f"{what}: name each box kind once, and at least one")
    if not 0 < len(menu.streams) <= MAX_PATTERNS:
        raise InvalidInputError(f"{what}: must have 1 to {MAX_PATTERNS} stream patterns")
    for pattern in menu.streams:
        if len(pattern) > MAX_NAME or _PATTERN.fullmatch(pattern) is None:
            raise InvalidInputError(
                f"{what}: {pattern[:80]!a} is no stream pattern; use letters of object names, "
                "* and ?, as in medusa://mit.edu/*"
            )


def _check_content(terms: ContentTerms, parties: tuple[str, str]) -> None:
    ObjectName.parse(terms.stream)
    if terms.sender not in parties:
        raise InvalidInputError(
            f"sender {terms.sender[:80]!a}: must be a party, {parties[0]} or {parties[1]}"
        )
    check_within("per_message", terms.per_message, MAX_PRICE)
    check_within("per_period", terms.per_period, MAX_PRICE)
    check_within("period_s", terms.period_s, MAX_CLAUSE_S)
    check_within("availability_s", terms.availability_s, MAX_CLAUSE_S)
    if (terms.per_period > 0) != (terms.period_s > 0):
        raise InvalidInputError("per_period and period_s belong together: give both, or neither")


def _check_suggested(terms: SuggestedTerms) -> None:
    ObjectName.parse(terms.stream)
    if not terms.peer and not terms.alternative:
        raise InvalidInputError("nothing is suggested: name a peer, or an alternative stream")
    if terms.peer:
        parse_peer_id(terms.peer)
    if terms.alternative:
        ObjectName.parse(terms.alternative)
        if terms.alternative == terms.stream and not terms.peer:
            raise InvalidInputError(f"the alternative to {terms.stream} is the same stream")


def check_within(what: str, value: int, most: int) -> None:
    """
    Raises:
        InvalidInputError: the value is not within 0 to `most`.
    """
    if not 0 <= value <= most:
        raise InvalidInputError(f"{what}: {value} is not within 0 to {most}")
