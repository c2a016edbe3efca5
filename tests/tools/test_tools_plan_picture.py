"""`medusa query explain --plot`: tasks in frames, each below the stream that it reads."""

from __future__ import annotations

import io
from itertools import pairwise

import pytest
from rich.console import Console

from medusa.engine.operators.shared.operator import ExplainedWindow
from medusa.engine.tasks.explaining import ExplainedTask, Explanation
from medusa.tools.commands.medusa.plan_picture import DEEPEST, plan_picture

pytestmark = pytest.mark.quick


def drawn(*tasks: ExplainedTask, windows: tuple[ExplainedWindow, ...] = ()) -> list[str]:
    """Return the lines of a picture."""
    console = Console(width=90, record=True, file=io.StringIO())
    console.print(plan_picture(Explanation("q", tasks, windows)))
    return console.export_text().splitlines()


def line_of(lines: list[str], words: str) -> int:
    (found,) = (number for number, line in enumerate(lines) if words in line)
    return found


def column_of(lines: list[str], words: str) -> int:
    return lines[line_of(lines, words)].index(words)


WEB = ExplainedTask("web", ("conns",), ("web: filter: port = 80",), 0.0, (), "repeatable")
COUNTS = ExplainedTask(
    "counts",
    ("web",),
    ("counts: windows of 60 s",),
    60.0,
    ("window_start", "ip"),
    "convergent",
    place="34a4c6ea" * 5,
    state="running",
)
OWNED = ExplainedTask(
    "owned",
    ("counts", "owners"),
    ("owned: inner join",),
    0.0,
    (),
    "deterministic",
    ("owners",),
    recalls=True,
)


def test_a_task_is_below_what_it_reads_first_and_named_below_the_rest() -> None:
    windows = (ExplainedWindow("counts", 60.0, 60.0, None, "made of its tuples"),)
    lines = drawn(WEB, COUNTS, OWNED, windows=windows)
    assert lines[0] == "query q"
    assert line_of(lines, "1 web") < line_of(lines, "2 counts") < line_of(lines, "3 owned ──")
    columns = [column_of(lines, each) for each in ("╭─ 1 web", "╭─ 2 counts", "╭─ 3 owned")]
    assert columns == [4, 8, 12]
    other = line_of(lines, "read by 3 as a table: owned")
    assert lines[other - 1].strip() == "owners"
    assert lines[-1] == "window counts: made of its tuples"


def test_a_frame_has_the_boxes_the_class_the_key_what_is_kept_and_the_place() -> None:
    lines = drawn(WEB, COUNTS, OWNED)
    text = " ".join(line.strip(" │") for line in lines)
    assert "web: filter: port = 80 repeatable; keeps nothing of what it reads" in text
    assert (
        "convergent; key window_start, ip; keeps 1m00s of what it reads; at peer 34a4c6ea, running"
    ) in text
    assert "owned: inner join and reads owners deterministic; keeps the newest tuple of" in text
    assert "each key of owners; keeps the table that it makes" in text


def test_a_long_chain_goes_on_in_a_tree_of_its_own() -> None:
    names = ["conns", *(f"s{number}" for number in range(DEEPEST + 2))]
    tasks = [
        ExplainedTask(made, (read,), (f"{made}: map",), 0.0, (), "repeatable")
        for read, made in pairwise(names)
    ]
    lines = drawn(*tasks)
    assert all(any(f"{made}: map" in line for line in lines) for made in names[1:])
    last = names[DEEPEST]
    assert lines[line_of(lines, "read below") + 1] == f"{last} (of {DEEPEST})"
    assert column_of(lines, f"╭─ {DEEPEST + 1} {names[DEEPEST + 1]}") == 4


def test_a_union_is_of_its_streams() -> None:
    union = ExplainedTask("u", ("a", "b"), (), 0.0, (), "deterministic")
    lines = drawn(union)
    assert line_of(lines, "their union") < line_of(lines, "and reads b")
    assert "read by 1: u" in lines[line_of(lines, "read by")]


def test_a_name_is_no_markup_and_no_control() -> None:
    odd = ExplainedTask("[red]x", ("a\x1b[2J",), ("f: filter: a = '[b]'",), 0.0, (), "repeatable")
    text = "\n".join(drawn(odd))
    assert "[red]x" in text
    assert "a = '[b]'" in text
    assert "\x1b" not in text
