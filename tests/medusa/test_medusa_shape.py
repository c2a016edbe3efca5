"""The shape of the code: classes are small, and folders import one way, also inside functions."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Final

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS: Final = ("overlay", "dht", "engine", "contracts", "tools", "testnet")

MOST_METHODS: Final = 25
"""Methods of a class, properties among them. A larger class mixes several ideas: give each idea
with state of its own a class."""

LARGER: Final = frozenset({"Election"})
"""Classes that are larger still. Remove a name here when its class is split."""


def large_classes(source: str) -> Iterator[tuple[str, int]]:
    """Return the classes of a module with too many methods, with the numbers of their methods."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ClassDef):
            methods = sum(
                isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef) for each in node.body
            )
            if methods > MOST_METHODS:
                yield node.name, methods


@pytest.mark.parametrize("folder", FOLDERS)
def test_no_class_has_more_methods_than_a_reader_keeps_in_mind(folder: str) -> None:
    large = {
        f"{path.relative_to(ROOT)}: {name} has {methods}"
        for path in (ROOT / folder).rglob("*.py")
        for name, methods in large_classes(path.read_text())
        if name not in LARGER
    }
    assert not large


def test_a_class_of_26_methods_is_found() -> None:
    body = "\n".join(f"    def f{number}(self): ..." for number in range(MOST_METHODS + 1))
    assert list(large_classes(f"class Large:\n{body}\n")) == [("Large", MOST_METHODS + 1)]
    assert not list(large_classes(f"class Small:\n{body.rpartition(chr(10))[0]}\n"))


ONE_WAY: Final = ("overlay", "dht", "engine/streams", "tools")
"""Trees of folders whose folders must not import each other in a circle."""


def imports_of(path: Path) -> Iterator[Path]:
    """Return our modules that a module imports, in any place."""
    for node in ast.walk(ast.parse(path.read_text())):
        names = []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        for name in names:
            if name.startswith("medusa."):
                module = ROOT / f"{name.removeprefix('medusa.').replace('.', '/')}.py"
                if module.is_file():
                    yield module


def circle(tree: Path) -> list[str]:
    """Return folders of the tree that import each other in a circle; empty: the imports have one
    direction."""
    graph: dict[str, set[str]] = {}
    for path in tree.rglob("*.py"):
        for module in imports_of(path):
            if module.parent != path.parent and module.is_relative_to(tree):
                graph.setdefault(str(path.parent), set()).add(str(module.parent))
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return [str(folder) for folder in error.args[1]]
    return []


@pytest.mark.parametrize("tree", ONE_WAY)
def test_folders_import_one_way(tree: str) -> None:
    assert circle(ROOT / tree) == []


def test_a_circle_by_a_late_import_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(globals(), "ROOT", tmp_path)
    for folder, text in (
        ("a", "import medusa.a.b.c"),
        ("a/b", "def f():\n    from medusa.a import d"),
    ):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / ("d.py" if folder == "a" else "c.py")).write_text(text)
    assert circle(tmp_path / "a")
