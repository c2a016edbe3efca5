"""The greeting between two programs of different protocols: each says which one is too old."""

from __future__ import annotations

from typing import Final

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from medusa.overlay.certificates import PeerName
from medusa.overlay.errors import RefusedError
from medusa.overlay.events import Events
from medusa.overlay.greeting import (
    INSTANCE_BYTES,
    PROTOCOL,
    Answer,
    Verdict,
    receive_hello,
    receive_verdict,
    send_hello,
    send_verdict,
)
from medusa.overlay.links import Refusals
from medusa.overlay.names import PeerId

OURS: Final = PROTOCOL.to_bytes(2)
INSTANCE: Final = bytes(range(INSTANCE_BYTES))

OTHERS: Final = st.integers(0, 2**16 - 1).filter(lambda number: number != PROTOCOL)
AFTER: Final = st.binary(max_size=64)
"""Bytes that another protocol may have after its number."""


def too_old(theirs: int) -> str:
    return "this side is too old" if theirs > PROTOCOL else "the other side is too old"


@given(OTHERS, AFTER)
def test_a_dialler_of_another_protocol_is_refused_with_our_number(
    theirs: int, after: bytes
) -> None:
    async def accept() -> None:
        there, here = trio.testing.memory_stream_pair()
        await there.send_all(theirs.to_bytes(2) + after)
        with pytest.raises(RefusedError, match=f"speaks protocol {theirs}.*{too_old(theirs)}"):
            await receive_hello(here)
        assert await there.receive_some() == OURS

    trio.run(accept)


@given(OTHERS, AFTER)
def test_a_dialler_refuses_a_peer_of_another_protocol_and_remembers_why(
    theirs: int, after: bytes
) -> None:
    async def dial() -> None:
        here, there = trio.testing.memory_stream_pair()
        await there.send_all(theirs.to_bytes(2) + after)
        events = Events()
        refusals = Refusals(events)
        with pytest.raises(RefusedError, match=f"utah.edu refuses this peer: .*{too_old(theirs)}"):
            await refusals.greet(here, PeerName("utah.edu", PeerId(bytes(20))), INSTANCE)
        assert await there.receive_some() == OURS + INSTANCE
        assert too_old(theirs) in refusals.reasons["utah.edu"]
        assert too_old(theirs) in events.recent()[0].text

    trio.run(dial)


@given(st.sampled_from(Answer), st.text(max_size=40))
def test_peers_of_one_protocol_hear_hello_and_verdict_as_they_were_sent(
    answer: Answer, text: str
) -> None:
    async def greet() -> None:
        here, there = trio.testing.memory_stream_pair()
        await send_hello(here, INSTANCE)
        assert await receive_hello(there) == INSTANCE
        verdict = Verdict(answer, INSTANCE, text)
        await send_verdict(there, verdict)
        assert await receive_verdict(here) == verdict

    trio.run(greet)
