"""The outbox under random adds, sends, answers and broken connections."""

from __future__ import annotations

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from medusa.engine.streams.messages import Posted
from medusa.overlay.errors import BusyError, DeadlineError, DecodeError, InvalidInputError
from medusa.tools.client.link import Patience
from medusa.tools.client.outbox import WINDOW_BYTES, WINDOW_POSTS, Outbox

pytestmark = pytest.mark.usefixtures("autojump_clock")


def _posted(sequence: int) -> Posted:
    return Posted(sequence, 0, 0, 0)


@settings(max_examples=200)
@given(st.lists(st.sampled_from(["put", "send", "answer", "break"]), max_size=120))
def test_every_connection_carries_a_contiguous_run_from_the_oldest_unanswered(
    steps: list[str],
) -> None:
    outbox = Outbox()
    put = answered = 0
    sent: list[int] = []
    for step in steps:
        if step == "put" and outbox.has_room(10):
            outbox.put(b"x" * 10, None, end=False)
            put += 1
        elif step == "send" and (envelope := outbox.next_unsent()) is not None:
            sent.append(envelope.post.sequence)
        elif step == "answer" and sent and sent[-1] > answered:
            answered += 1
            outbox.settle(_posted(answered))
        elif step == "break":
            outbox.rewind()
            sent = []
        assert len(outbox) == put - answered <= WINDOW_POSTS
        assert sent == list(range(sent[0], sent[0] + len(sent))) if sent else True
        assert not sent or sent[0] <= answered + 1


def test_the_window_is_bounded_by_posts_and_bytes() -> None:
    outbox = Outbox()
    for _ in range(WINDOW_POSTS):
        assert outbox.has_room(1)
        outbox.put(b"x", None, end=False)
    assert not outbox.has_room(1)
    large = Outbox()
    assert large.has_room(WINDOW_BYTES + 1), "one alone always may go"
    large.put(b"x", None, end=False)
    assert not large.has_room(WINDOW_BYTES)


@pytest.mark.parametrize("sequence", [0, 2, 99])
def test_an_answer_out_of_order_is_a_fault_of_the_peer(sequence: int) -> None:
    outbox = Outbox()
    for _ in range(3):
        outbox.put(b"", None, end=False)
        outbox.next_unsent()
    with pytest.raises(DecodeError, match="1 was next"):
        outbox.settle(_posted(sequence))


def test_an_answer_to_nothing_is_a_fault_of_the_peer() -> None:
    with pytest.raises(DecodeError):
        Outbox().settle(_posted(1))


async def test_patience_lasts_as_long_as_it_says() -> None:
    patience = Patience(10.0)
    started = trio.current_time()

    async def bear_for_ever() -> None:
        while True:
            await patience.bear(BusyError("full"))

    with pytest.raises(BusyError):
        await bear_for_ever()
    assert trio.current_time() - started == pytest.approx(10.0)


async def test_progress_renews_patience() -> None:
    patience = Patience(10.0)
    for _ in range(100):
        await patience.bear(DeadlineError("slow"))
        patience.progress()


async def test_errors_that_waiting_cannot_mend_are_raised_at_once() -> None:
    started = trio.current_time()
    with pytest.raises(InvalidInputError):
        await Patience(10.0).bear(InvalidInputError("wrong"))
    assert trio.current_time() == started
