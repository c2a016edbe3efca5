"""The limits on input from outside, as a page: each constant with its value and its reason.

A limit is a number in the code; the docstring at it says what it counts, and why. The lock file
names the limits with their values, so that a change of one is a line of a diff. Every constant
`MAX_...` is a limit; the lock names the others.
"""

from __future__ import annotations

import ast
import dataclasses
import importlib
import itertools
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

PACKAGES: Final = ("overlay", "dht", "engine", "contracts", "tools")

_POWER: Final = 2**40
"""Powers of two from this one on are written as `2^40`."""

_SIZES: Final = (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10))
_TIMES: Final = (("d", 86_400.0), ("h", 3_600.0), ("min", 60.0), ("s", 1.0), ("ms", 1e-3))
_UNITS: Final = {"S": 1.0, "SECONDS": 1.0, "US": 1e-6, "NS": 1e-9}
"""The unit of a constant, in seconds, by the last word of its name."""


@dataclasses.dataclass(frozen=True)
class Place:
    """The place of a number: `module.NAME`, or `module.Class.field` of a dataclass.

    Attributes:
        meaning: what the limit counts, and why it has its value: the docstring of the constant, or
            the field's part of the docstring of the class.
    """

    module: str
    path: str
    meaning: str

    @property
    def name(self) -> str:
        return f"{self.module.removeprefix('medusa.')}.{self.path}"

    @property
    def value(self) -> float:
        owner, _, name = self.path.rpartition(".")
        module = importlib.import_module(self.module)
        if owner:
            fields = dataclasses.fields(getattr(module, owner))
            value = next(each.default for each in fields if each.name == name)
        else:
            value = getattr(module, name)
        assert isinstance(value, int | float), self.name
        return value


def places(root: Path) -> dict[str, Place]:
    """Every constant of a module, and every field of a class with a default, by name."""
    found = {}
    for package in PACKAGES:
        for path in sorted((root / package).rglob("*.py")):
            parts = path.relative_to(root).with_suffix("").parts
            module = ".".join(("medusa", *parts)).removesuffix(".__init__")
            for place in _places(module, ast.parse(path.read_text())):
                found[place.name] = place
    return found


def _places(module: str, tree: ast.Module) -> Iterator[Place]:
    yield from (Place(module, name, text) for name, text in _beside(tree.body))
    for each in tree.body:
        if isinstance(each, ast.ClassDef):
            inside = ast.get_docstring(each) or ""
            for name, text in _beside(each.body):
                yield Place(module, f"{each.name}.{name}", _attribute(inside, name) or text)


def _beside(body: Iterable[ast.stmt]) -> Iterator[tuple[str, str]]:
    """The assigned names, each with the text below it, or below the last name of its row."""
    waiting: list[str] = []
    for each in body:
        match each:
            case (
                ast.AnnAssign(target=ast.Name(id=name), value=ast.expr())
                | ast.Assign(targets=[ast.Name(id=name)])
            ):
                waiting.append(name)
            case ast.Expr(value=ast.Constant(value=str(text))):
                yield from ((name, " ".join(text.split())) for name in waiting)
                waiting = []
            case _:
                yield from ((name, "") for name in waiting)
                waiting = []
    yield from ((name, "") for name in waiting)


def _attribute(docstring: str, name: str) -> str:
    """The text of a field under `Attributes:`."""
    attributes = textwrap.dedent(docstring.partition("Attributes:\n")[2])
    found = re.search(
        rf"^(?:\w+, )*{name}(?:, \w+)*: (.*?)(?=^\w|\Z)", attributes, re.MULTILINE | re.DOTALL
    )
    return " ".join(found[1].split()) if found else ""


def read_lock(text: str) -> dict[str, str]:
    """The values of the limits by name, as the lock has them."""
    return dict(line.rsplit(" ", 1) for line in text.splitlines() if line)


def chosen(locked: Mapping[str, str], known: Mapping[str, Place]) -> list[Place]:
    """The limits: every `MAX_...`, and the constants of the lock, even if they have moved. Raises:
    SystemExit: the code no longer has a limit of the lock.
    """
    names = {name for name in known if name.rpartition(".")[2].startswith("MAX_")}
    for name in locked:
        if not name.rpartition(".")[2].startswith("MAX_"):
            names.add(name if name in known else _moved(name, names, known))
    return [known[name] for name in sorted(names)]


def _moved(name: str, taken: Iterable[str], known: Mapping[str, Place]) -> str:
    """The limit of that name that is nearest to its former folder."""
    last = name.rpartition(".")[2]
    named = [each for each in set(known) - set(taken) if each.rpartition(".")[2] == last]
    shared = {each: len(_shared(each, name)) for each in named}
    nearest = [each for each in named if shared[each] == max(shared.values())]
    if len(nearest) != 1:
        raise SystemExit(f"the limit {name} is gone from the code: mend its line in the lock")
    return nearest[0]


def _shared(one: str, other: str) -> list[str]:
    """The number of folders and modules with which both names begin."""
    pairs = zip(one.split("."), other.split("."), strict=False)
    return [part for part, _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs)]


def lock(limits: Iterable[Place]) -> str:
    return "".join(f"{each.name} {each.value!r}\n" for each in limits)


def page(limits: Iterable[Place]) -> str:
    """The page: a table for each package."""
    parts = ["# Limits\n\nMade from the code by `make docs`.\n"]
    by_package: dict[str, list[Place]] = {}
    for each in limits:
        by_package.setdefault(each.name.partition(".")[0], []).append(each)
    for package in PACKAGES:
        parts.append(f"\n## {package}\n\n| limit | value | meaning |\n|---|---|---|\n")
        parts += [
            f"| `{each.name.partition('.')[2]}` | {in_words(each)} | {_cell(each.meaning)} |\n"
            for each in by_package.get(package, ())
        ]
    return "".join(parts)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def in_words(place: Place) -> str:
    """The value with a unit: `10 min`, `64 KiB`, `2^62`, `1,024`."""
    words = place.path.rpartition(".")[2].upper().split("_")
    value = place.value
    if words[-1] in _UNITS and "PER" not in words:
        return _scaled(value * _UNITS[words[-1]], _TIMES) or f"{value * _UNITS[words[-1]]:,.6g} s"
    if words[-1] == "KIB":
        return _scaled(value * 2**10, _SIZES) or f"{value:,} KiB"
    if "BYTES" in words or place.meaning.startswith("Bytes"):
        return _scaled(value, _SIZES) or f"{value:,} B"
    if isinstance(value, int) and value >= _POWER and value & (value - 1) == 0:
        return f"2^{value.bit_length() - 1}"
    return f"{value:,}"


def _scaled(value: float, units: Iterable[tuple[str, float]]) -> str:
    """The value in the largest unit that divides it."""
    for unit, size in units:
        if value >= size and value % size == 0:
            return f"{value / size:,.0f} {unit}"
    return ""
