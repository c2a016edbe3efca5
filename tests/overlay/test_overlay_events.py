"""The events of a peer are bounded by kind, have the fields of their context, and faults have an
id. The text of every event begins with a verb; the test reads the code of all events."""

from __future__ import annotations

import ast
import logging
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import trio

from medusa.overlay.events import MAX_EVENTS, MAX_OF_A_KIND, Events
from medusa.overlay.log import LOGGER, MAX_CAUSE, bound, bound_fields, checked_cause


@pytest.fixture
def lines() -> Iterator[list[logging.LogRecord]]:
    """Return the lines that are logged in the block."""
    heard: list[logging.LogRecord] = []

    class Recorder(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            heard.append(record)

    handler, level = Recorder(), LOGGER.level
    LOGGER.addHandler(handler)
    LOGGER.setLevel(logging.DEBUG)
    yield heard
    LOGGER.setLevel(level)
    LOGGER.removeHandler(handler)


def fields_of(record: logging.LogRecord) -> dict[str, object]:
    return dict(record.__dict__["fields"])


def test_ever_new_words_of_one_kind_do_not_push_out_the_others() -> None:
    events = Events(lambda: 7.0)
    events.note("warning", "the home moves")
    for number in range(MAX_EVENTS):
        events.note("warning", f"10.0.0.{number}: connection refused")
    texts = [event.text for event in events.recent()]
    assert texts[0] == "the home moves"
    assert len(texts) == MAX_OF_A_KIND + 1
    assert texts[-1] == f"10.0.0.{MAX_EVENTS - 1}: connection refused"


def test_all_kinds_together_are_bounded() -> None:
    events = Events(lambda: 7.0)
    for kind in range(MAX_EVENTS // MAX_OF_A_KIND + 2):
        scope: dict[str, object] = {"events": events}
        line = f"for n in range({MAX_OF_A_KIND}): events.note('info', f'{kind} {{n}}')"
        exec(compile(line, f"kind_{kind}.py", "exec"), scope)
    assert len(events.recent()) == MAX_EVENTS
    assert events.recent()[-1].text.startswith(f"{MAX_EVENTS // MAX_OF_A_KIND + 1} ")


async def test_fields_go_with_the_context_into_tasks(lines: list[logging.LogRecord]) -> None:
    events = Events(peer="mit.edu/3fa9c1d2")

    async def work() -> None:
        with bound(task="a"):
            events.note("info", "inside", stream="s")

    async with trio.open_nursery() as nursery:
        with bound(query="q", task="b"):
            nursery.start_soon(work)
    events.note("info", "outside")
    inside, outside = lines
    assert fields_of(inside) == {
        "peer": "mit.edu/3fa9c1d2",
        "query": "q",
        "task": "a",
        "stream": "s",
    }
    assert fields_of(outside) == {"peer": "mit.edu/3fa9c1d2"}
    assert bound_fields() == {}


def test_debug_is_for_the_log_alone(lines: list[logging.LogRecord]) -> None:
    events = Events()
    events.note("debug", "a call ended")
    assert events.recent() == ()
    assert [line.getMessage() for line in lines] == ["a call ended"]
    assert lines[0].filename == "test_overlay_events.py"


def test_a_fault_has_an_id_and_its_traceback(lines: list[logging.LogRecord]) -> None:
    events = Events(peer="mit.edu/3fa9c1d2")
    with bound(cause="abc123"):
        assert events.fault("post failed", ValueError("boom")) == "abc123"
    other = events.fault("post failed", ExceptionGroup("two", [ValueError("a"), KeyError("b")]))
    assert checked_cause(other) == other != "abc123"
    first, second = events.recent()
    assert (first.level, first.text, first.cause) == (
        "error",
        "post failed: ValueError('boom')",
        "abc123",
    )
    assert second.text == "post failed: ValueError('a'); KeyError('b')"
    assert fields_of(lines[0])["cause"] == "abc123"
    assert lines[1].exc_info is not None


def test_a_life_lived_again_gives_the_same_ids() -> None:
    lives = [Events(lambda at=at: at, "mit.edu/1") for at in (1.0, 1.0, 2.0)]
    one, again, later = [[life.new_cause() for _ in range(3)] for life in lives]
    assert one == again
    assert len({*one, *later}) == 6


@pytest.mark.parametrize("label", ["", "A", "a b", "a\n", "x" * (MAX_CAUSE + 1), "é", "a-b"])
def test_a_strangers_cause_that_is_no_id_is_none(label: str) -> None:
    assert checked_cause(label) == ""


ROOT = Path(__file__).parents[2]
FOLDERS = ("overlay", "dht", "contracts", "engine", "tools")

_VERBS = """
accepted admitted altered asks became believes cannot could cut dated deleted did differs
disbelieved disbelieves disconnected does doubts dropped ended failed fetched finds follows found
gave gives goes got hears invited keeps left let listens lost misses modified moved needs pays
proposed publishes read reads refused refuses renewed reopened replaced restored resumed revoked
runs saw sells sends serves set stands started stopped stops takes took waits withdrew
"""
VERBS = frozenset(_VERBS.split())

MADE_ELSEWHERE = {
    ("overlay/exchange.py", "change.text"),  # texts of a `Change`
    ("contracts/delivery.py", "text"),  # texts of `Book._news`
    ("engine/spark/executor.py", "note.text"),  # of a `Note`
    ("tools/market/settler.py", "text"),  # of a `Note`
    ("tools/market/trader.py", "text"),  # of a `Note`
}
"""Places outside an event's own module from which its text comes; the test reads these, too."""

MAKERS = {"contracts/book.py": "_news"}
"""Functions that return such texts, in addition to those that the test finds from the place of the
event."""

_Function = ast.FunctionDef | ast.AsyncFunctionDef


class Code:
    """A module, and the places from which the texts of its events come."""

    def __init__(self, path: Path) -> None:
        self.name = path.relative_to(ROOT).as_posix()
        self.tree = ast.parse(path.read_text())
        self.parents = {
            child: node for node in ast.walk(self.tree) for child in ast.iter_child_nodes(node)
        }
        self._functions: dict[str, list[_Function]] = {}
        for node in self.parents:
            if isinstance(node, _Function):
                self._functions.setdefault(node.name, []).append(node)

    def functions(self, name: str) -> list[_Function]:
        return self._functions.get(name, [])

    def around(self, node: ast.AST) -> _Function | None:
        found = self.parents.get(node)
        while found is not None and not isinstance(found, _Function):
            found = self.parents.get(found)
        return found

    def texts(self) -> Iterator[ast.expr]:
        """Return the text of every event that this module notes or makes."""
        for node in self.parents:
            if not isinstance(node, ast.Call):
                continue
            match node.func:
                case ast.Attribute(value, "note") if ast.unparse(value).endswith("events"):
                    yield node.args[1]
                case ast.Attribute(value, "fault") if ast.unparse(value).endswith("events"):
                    yield node.args[0]
                case ast.Name("Note"):
                    yield node.args[1]
                case ast.Name("Change") if self.name.startswith("overlay/"):
                    yield node.args[0]
                case _:
                    pass
        for function in self.functions(MAKERS.get(self.name, "")):
            yield from _returned(function)


@cache
def codes() -> tuple[Code, ...]:
    return tuple(Code(path) for name in FOLDERS for path in sorted((ROOT / name).rglob("*.py")))


def _returned(function: _Function) -> list[ast.expr]:
    found = [n.value for n in ast.walk(function) if isinstance(n, ast.Return) and n.value]
    return [value for value in found if ast.unparse(value) != "''"]  # an empty text makes no event


def _assigned(function: _Function, name: str) -> list[ast.expr]:
    return [
        node.value
        for node in ast.walk(function)
        if isinstance(node, ast.Assign) and any(ast.unparse(to) == name for to in node.targets)
    ]


def _given(code: Code, function: _Function, name: str) -> list[ast.expr]:
    """Return the expressions that callers in the same module pass to a function for that
    argument."""
    names = [each.arg for each in function.args.args if each.arg != "self"]
    if name not in names:
        return []
    return [
        node.args[names.index(name)]
        for node in code.parents
        if isinstance(node, ast.Call)
        and ast.unparse(node.func).removeprefix("self.") == function.name
    ]


def beginnings(code: Code, text: ast.expr) -> Iterator[str]:
    """Return the words with which a text may begin; the source of the expression if they are
    unknown."""
    sources: list[ast.expr] = []
    match text:
        case ast.Constant(str() as words) if words.split():
            yield words.split()[0].rstrip(":")
            return
        case ast.JoinedStr([ast.FormattedValue(value), *_]):
            sources = [value]
        case ast.JoinedStr([first, *_]):
            sources = [first]
        case ast.IfExp(_, one, other):
            sources = [one, other]
        case ast.Name(name):
            function = code.around(text)
            if function is not None:
                sources = _assigned(function, name) or _given(code, function, name)
        case ast.Subscript(ast.Name(name)):
            sources = [
                value
                for node in code.tree.body
                if isinstance(node, ast.AnnAssign)
                and ast.unparse(node.target) == name
                and isinstance(node.value, ast.Dict)
                for value in node.value.values
            ]
        case ast.Call(ast.Name(name) | ast.Attribute(attr=name)):
            yield from _of_call(code, name, text)
            return
        case _:
            pass
    if not sources:
        yield ast.unparse(text)
    for source in sources:
        yield from beginnings(code, source)


def _of_call(code: Code, name: str, text: ast.expr) -> Iterator[str]:
    for place in (code, *codes()):
        functions = place.functions(name)
        if functions:
            for value in (value for each in functions for value in _returned(each)):
                yield from beginnings(place, value)
            return
    yield ast.unparse(text)


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_event_begins_with_a_verb(folder: str) -> None:
    others = [
        f"{code.name}:{text.lineno}: {first}"
        for code in codes()
        if code.name.startswith(f"{folder}/")
        for text in code.texts()
        for first in beginnings(code, text)
        if first not in VERBS and (code.name, first) not in MADE_ELSEWHERE
    ]
    assert others == []


def test_the_events_of_all_code_are_found() -> None:
    assert sum(1 for code in codes() for _ in code.texts()) > 150
    used = {first for code in codes() for text in code.texts() for first in beginnings(code, text)}
    assert used >= VERBS, sorted(VERBS - used)
