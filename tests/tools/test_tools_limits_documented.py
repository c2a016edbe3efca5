"""SECURITY.md: its table of limits says what the code says, and the tests that it names exist."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import math
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "SECURITY.md"
PACKAGES = ("overlay", "dht", "engine", "contracts", "tools")

NOT_FROM_OUTSIDE = {
    "medusa.contracts.delivery.MAX_HURRIED",  # calls of our own
    "medusa.dht.node.MAX_WAIT_S",
    "medusa.engine.replication.digests.MAX_DIGEST",  # what we say ourselves
    "medusa.engine.replication.digests.MAX_VERSIONS",
    "medusa.engine.replication.stored_query.MAX_LEFT",  # our own past
    "medusa.engine.replication.replicas.secondary_state.MAX_LEASES_TOLD",
    "medusa.engine.streams.store.store.MAX_FILE_NAME",  # of every file system
    "medusa.tools.home.addresses.MAX_PORT",  # of TCP
}

BYTES = {"B": 1.0, "KiB": 2.0**10, "MiB": 2.0**20, "GiB": 2.0**30}
SECONDS = {
    "ns": 1e-9,
    "µs": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "min": 60.0,
    "h": 3_600.0,
    "d": 86_400.0,
}
TIMES = {"S": 1.0, "SECONDS": 1.0, "US": 1e-6, "NS": 1e-9}
"""In which a constant counts seconds, by the last word of its name."""


class Limit(NamedTuple):
    """A row of the table. where: the dotted name of a constant, or of a field with a default."""

    what: str
    value: str
    reason: str
    where: str


def rows_under(header: str) -> Iterator[list[str]]:
    """The cells of the rows of every table with that header."""
    inside = False
    for line in PAGE.read_text().splitlines():
        inside = line == header or (inside and line.startswith("|"))
        if inside and line != header and not line.startswith("|---"):
            yield [cell.strip() for cell in line.strip("|").split(" | ")]


def limits() -> list[Limit]:
    found = []
    for cells in rows_under("| limit | value | reason | where |"):
        what, value, reason, where = cells
        found.append(Limit(what, value, reason, where.strip("`")))
    return found


def number_of(text: str) -> float:
    """`1,024`, `0.25`, `1/8` or `2^62`."""
    if "/" in text:
        above, below = text.split("/")
        return int(above) / int(below)
    if "^" in text:
        base, power = text.split("^")
        return float(int(base) ** int(power))
    return float(text.replace(",", ""))


def value_of(text: str, where: str) -> float:
    """What the table says, as the constant of that name would say it."""
    number, _, unit = text.partition(" ")
    words = where.rpartition(".")[2].upper().split("_")
    if words[-1] in TIMES and words[-2] != "PER":
        return number_of(number) * SECONDS[unit] / TIMES[words[-1]]
    if words[-1] == "KIB":
        return number_of(number) * BYTES[unit] / BYTES["KiB"]
    return number_of(number) * (BYTES[unit] if unit else 1.0)


def in_code(where: str) -> float:
    """The value of `module.CONSTANT`, or the default of `module.Class.field`."""
    module, _, name = where.rpartition(".")
    if module.rpartition(".")[2][:1].isupper():
        module, _, owner = module.rpartition(".")
        kind = getattr(importlib.import_module(module), owner)
        (field,) = (each for each in dataclasses.fields(kind) if each.name == name)
        assert isinstance(field.default, int | float), where
        return float(field.default)
    return float(getattr(importlib.import_module(module), name))


def test_limits_are_what_the_page_says() -> None:
    wrong = [
        f"{limit.where} is {value}, not {limit.value}"
        for limit in limits()
        if not math.isclose(value_of(limit.value, limit.where), value := in_code(limit.where))
    ]
    assert wrong == []
    assert all(limit.what and limit.reason for limit in limits())


def test_each_limit_is_listed_once() -> None:
    listed = [limit.where for limit in limits()]
    assert len(listed) > 200
    assert len(set(listed)) == len(listed)


def constants() -> Iterator[str]:
    """The names of all constants `MAX_...` of modules."""
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            module = ".".join(("medusa", *path.relative_to(ROOT).with_suffix("").parts))
            for statement in ast.parse(path.read_text()).body:
                match statement:
                    case ast.AnnAssign(target=ast.Name(id=name)):
                        pass
                    case ast.Assign(targets=[ast.Name(id=name)]):
                        pass
                    case _:
                        continue
                if name.startswith("MAX_"):
                    yield f"{module}.{name}"


def test_every_limit_is_listed() -> None:
    found = set(constants())
    listed = {limit.where for limit in limits()}
    assert sorted(found - listed - NOT_FROM_OUTSIDE) == []
    assert found >= NOT_FROM_OUTSIDE
    assert not listed & NOT_FROM_OUTSIDE


@cache
def functions_of(path: Path) -> frozenset[str]:
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    body = ast.parse(path.read_text()).body
    return frozenset(each.name for each in body if isinstance(each, kinds))


def shown_by(cell: str) -> Iterator[tuple[str, str]]:
    """File and function of each test that a cell names; a file may be that of the one before."""
    path = ""
    for named, function in re.findall(r"`([\w/.]*)::(\w+)`", cell):
        path = named or path
        yield path, function


def test_every_attack_is_shown_by_tests_that_exist() -> None:
    attacks = list(rows_under("| # | attack | what happens now | shown by |"))
    assert {number for number, *_ in attacks} == {*map(str, range(1, 21)), "S"}
    for _, attack, _, cell in attacks:
        named = list(shown_by(cell))
        assert named, attack
        for path, function in named:
            assert function in functions_of(ROOT / path), f"{path}::{function}"
