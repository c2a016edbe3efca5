"""Every package that the commands import is installed with them."""

from __future__ import annotations

import ast
import sys
import tomllib
from collections.abc import Iterable, Iterator
from importlib.metadata import packages_distributions, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
FOLDERS = ("overlay", "dht", "engine", "contracts", "tools")
OPTIONAL = {"bytewax", "pyflink"}
"""Packages that `testnet/bench/others.py` names in an error if they are missing."""


@pytest.mark.parametrize(
    ("extra", "folders"), [("peer", FOLDERS), ("testnet", (*FOLDERS, "testnet"))]
)
def test_imported_packages_are_dependencies(extra: str, folders: tuple[str, ...]) -> None:
    """Each extra installs what its folders import; the testnet is an extra of its own."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = [*project["dependencies"], *project["optional-dependencies"]["peer"]]
    if extra == "testnet":
        named += project["optional-dependencies"]["testnet"]
    installed = with_theirs({Requirement(each).name for each in named})
    owners = packages_distributions()
    missing = {
        f"{path}: {name}"
        for path, name in imported(folders)
        if name not in OPTIONAL
        and installed.isdisjoint(canonicalize_name(each) for each in owners.get(name, ()))
    }
    assert missing == set()


def imported(folders: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Return our files, each with the top-level names of others' packages that it imports at run
    time."""
    for package in folders:
        for path in sorted((ROOT / package).rglob("*.py")):
            for name in names_in(ast.parse(path.read_text())):
                if name not in sys.stdlib_module_names and name != "medusa":
                    yield str(path.relative_to(ROOT)), name


def names_in(node: ast.AST) -> Iterator[str]:
    """Return names without those that only a type checker imports."""
    match node:
        case ast.If(test=ast.Name(id="TYPE_CHECKING"), orelse=otherwise):
            for each in otherwise:
                yield from names_in(each)
            return
        case ast.Import(names=names):
            yield from (each.name.partition(".")[0] for each in names)
        case ast.ImportFrom(module=str(module), level=0):
            yield module.partition(".")[0]
    for child in ast.iter_child_nodes(node):
        yield from names_in(child)


def with_theirs(names: set[str]) -> set[str]:
    """Return the packages that pip installs along with these."""
    found: set[str] = set()
    todo = list(names)
    while todo:
        name = canonicalize_name(todo.pop())
        if name in found:
            continue
        found.add(name)
        wanted = [Requirement(each) for each in requires(name) or ()]
        todo += [
            each.name
            for each in wanted
            if each.marker is None or each.marker.evaluate({"extra": ""})
        ]
    return found
