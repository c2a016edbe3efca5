"""Only the room of an operator and the registry ask for the kind of a box or step (ADR 45)."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, get_args

from medusa.engine.objects.query import Box
from medusa.engine.operators.registry import KINDS, WORDS, AnyStep, operator_of
from medusa.testnet.simulation.networks import DRAWN

ROOT: Final = Path(__file__).parents[3]
FOLDERS: Final = ("overlay", "dht", "engine", "contracts", "tools", "testnet")
NAMES: Final = {kind.__name__ for kind in (*get_args(Box), *get_args(AnyStep))}
WHERE: Final = ("objects.query", "operators.")

MOST_FUNCTIONS: Final = 5
MOST_FILES: Final = 5
"""The greatest numbers of functions that ask for a kind, and of files with such functions: they may
only decrease."""


def names_in(node: ast.AST) -> set[str]:
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}


def own_nodes(function: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a function without those of functions within it."""
    for node in ast.iter_child_nodes(function):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node
            yield from own_nodes(node)


def asks(function: ast.AST, kinds: set[str]) -> bool:
    """Whether a function tests that a value is of one of these kinds."""
    for node in own_nodes(function):
        match node:
            case ast.Call(func=ast.Name(id="isinstance" | "issubclass"), args=[_, of]):
                asked = names_in(of)
            case ast.MatchClass(cls=ast.Name(id=name)):
                asked = {name}
            case ast.Compare(ops=[ast.Is() | ast.IsNot() | ast.Eq() | ast.In()]):
                asked = names_in(node)
            case _:
                continue
        if asked & kinds:
            return True
    return False


def functions_that_ask(text: str) -> list[str]:
    """The functions of a module that test for a kind."""
    tree = ast.parse(text)
    kinds = {
        each.asname or each.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and any(part in (node.module or "") for part in WHERE)
        for each in node.names
        if each.name in NAMES
    }
    for node in tree.body:  # and constants that are derived from them
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if names_in(node.value) & kinds:
                kinds |= {each.id for each in targets if isinstance(each, ast.Name)}
    functions = (
        node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )
    return [each.name for each in functions if asks(each, kinds)]


def is_room(path: Path) -> bool:
    parts = path.relative_to(ROOT).parts
    return parts[:2] == ("engine", "operators") and len(parts) == 4 and parts[2] != "shared"


def test_few_functions_ask_for_a_kind() -> None:
    """The registry distinguishes kinds of boxes; outside the operators' folders few other functions
    do."""
    found = {
        path.relative_to(ROOT): asking
        for folder in FOLDERS
        for path in sorted((ROOT / folder).rglob("*.py"))
        if not is_room(path) and (asking := functions_that_ask(path.read_text()))
    }
    assert Path("engine/operators/registry.py") in found
    told = "\n".join(f"{path}: {', '.join(asking)}" for path, asking in found.items())
    assert sum(map(len, found.values())) <= MOST_FUNCTIONS, told
    assert len(found) <= MOST_FILES, told


def test_a_function_that_asks_is_seen() -> None:
    """A function asks by isinstance, by match, by a constant of kinds, and by comparing a class."""
    head = "from medusa.engine.objects.query import Filter, Map\nBOTH = (Filter, Map)\n"
    for body in (
        "return isinstance(box, Filter)",
        "return isinstance(box, (int, Map))",
        "return isinstance(box, BOTH)",
        "return type(box) is Map",
        "match box:\n        case Filter(outputs=[_]):\n            pass",
    ):
        assert functions_that_ask(f"{head}def f(box):\n    {body}\n") == ["f"], body
    assert functions_that_ask(f"{head}def f(box):\n    return Filter(box)\n") == []


def test_every_kind_has_an_operator() -> None:
    """The registry knows each box, and each kind knows the word of its steps."""
    assert len(KINDS) == len(get_args(Box))
    assert {each.word for each in get_args(AnyStep)} <= set(WORDS)
    for each in KINDS:
        assert each.__name__.endswith("Operator")
    assert operator_of.__module__ == "medusa.engine.operators.registry"


def test_only_the_parts_of_spark_import_pyspark() -> None:
    """PySpark is imported with the first job: the executor imports the modules that need it."""
    allowed = re.compile(r"engine/((spark|dataframes)/\w+|operators/\w+/spark(_\w+)?)\.py")
    found = [
        str(path.relative_to(ROOT))
        for folder in FOLDERS[:-1]
        for path in sorted((ROOT / folder).rglob("*.py"))
        if re.search(r"^\s*(from|import) pyspark", path.read_text(), re.MULTILINE)
    ]
    late = {"engine/scalars/late.py"}  # only the type checker imports the name there
    assert len(found) > 20
    assert not [path for path in found if path not in late and not allowed.fullmatch(path)]


def test_every_kind_of_box_is_drawn() -> None:
    """The simulator and the property tests draw each kind, and Spark is compared with DuckDB."""
    assert set(DRAWN) == set(get_args(Box))
    compared = ("epoch_networks.py", "test_engine_spark_tables.py")
    trees = [ast.parse((ROOT / "tests/engine/spark" / file).read_text()) for file in compared]
    assert {kind.__name__ for kind in get_args(Box)} <= set().union(*map(names_in, trees))
