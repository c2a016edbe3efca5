"""The accepted state of a source: the last post of each producer, and its bounds."""

from __future__ import annotations

from contextlib import suppress

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from medusa.engine.objects.schema import BEGINNING, END
from medusa.engine.streams.journal.entries import MAX_META_BYTES
from medusa.engine.streams.source.acceptance import (
    MAX_PRODUCERS,
    Acceptance,
    Entry,
    Writer,
    decode_entry,
)
from medusa.overlay.errors import DecodeError, SequenceGapError


def entry(producer: str, sequence: int, missed: tuple[int, ...] = ()) -> Entry:
    return Entry(producer, sequence, BEGINNING, 0, 0, BEGINNING, None, None, 0, missed=missed)


def posted_by(state: Acceptance, writer: Writer, sequence: int = 1) -> None:
    post = entry(writer.producer, sequence)
    state.apply(msgspec.structs.replace(post, participant=writer.participant))


def test_producers_are_forgotten_longest_quiet_first() -> None:
    state = Acceptance(slack_us=0, arrival=False)
    for number in range(MAX_PRODUCERS + 1):
        if number == 5:
            posted_by(state, Writer("p0"), 2)
        posted_by(state, Writer(f"p{number}"))
    assert len(state.snapshot().producers[""]) == MAX_PRODUCERS
    assert state.is_duplicate(Writer("p0"), 2)
    assert not state.is_duplicate(Writer("p1"), 1)
    assert state.is_duplicate(Writer("p2"), 1)


def test_a_participant_with_the_most_producers_loses_its_own_first() -> None:
    state = Acceptance(slack_us=0, arrival=False)
    for number in range(3):
        posted_by(state, Writer(f"sensor-{number}", "utah.edu"))
    for number in range(2 * MAX_PRODUCERS):
        posted_by(state, Writer(f"flood-{number}", "evil.org"))
    assert all(state.is_duplicate(Writer(f"sensor-{n}", "utah.edu"), 1) for n in range(3))
    remembered = state.snapshot().producers
    assert {who: len(last) for who, last in remembered.items()} == {
        "utah.edu": 3,
        "evil.org": MAX_PRODUCERS - 3,
    }
    with pytest.raises(SequenceGapError, match="post the rest as another one"):
        state.is_duplicate(Writer("flood-0", "evil.org"), 2)


def test_a_replica_forgets_what_its_leader_forgets() -> None:
    leader, replica = (Acceptance(slack_us=0, arrival=False) for _ in range(2))
    for number in range(MAX_PRODUCERS):
        posted_by(leader, Writer(f"p{number}", ("", "utah.edu", "mit.edu")[number % 3]))
    replica.restore(leader.snapshot())
    for number in range(100):
        for state in (leader, replica):
            posted_by(state, Writer(f"q{number}", "abc"[number % 3]))
    assert leader.snapshot() == replica.snapshot()
    assert list(leader.snapshot().producers) == list(replica.snapshot().producers)


def test_a_full_snapshot_fits_its_journal() -> None:
    state = Acceptance(slack_us=0, arrival=False)
    for number in range(MAX_PRODUCERS):
        posted_by(state, Writer(f"{number:04}" + "\U0001f600" * 127, f"{number:064}"), END)
    for number in range(64):
        post = entry(f"{number}" + "\U0001f600" * 127, END, tuple(range(4096)))
        state.apply(msgspec.structs.replace(post, participant=f"{number:064}"))
    assert len(msgspec.msgpack.encode(state.snapshot())) < MAX_META_BYTES


@given(st.binary(max_size=40) | st.sampled_from([b"\x91\xa1\xff", b"\x91\xa3s\xff\xff"]))
def test_an_entry_is_decoded_or_refused_with_one_error(meta: bytes) -> None:
    """The name may also be no UTF-8."""
    with suppress(DecodeError):
        decode_entry(meta)
