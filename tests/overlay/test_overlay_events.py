"""What a peer notes: bounded by kind, with the fields of its context, faults with an id."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
import trio

from overlay.events import MAX_EVENTS, MAX_OF_A_KIND, Events
from overlay.log import LOGGER, MAX_CAUSE, bound, bound_fields, checked_cause


@pytest.fixture
def lines() -> Iterator[list[logging.LogRecord]]:
    """What is logged meanwhile."""
    heard: list[logging.LogRecord] = []

    class Heard(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            heard.append(record)

    handler, level = Heard(), LOGGER.level
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
