"""The time of a peer while its machine's clock is set, and others' clocks agree or differ."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from medusa.overlay.clock import AGREE_S, ANCHOR_S, FRESH_S, MAX_STEP_S, MEETING_S, Clock, shown
from medusa.overlay.events import Events
from medusa.overlay.timing import OverlayTiming
from medusa.overlay.troubles import Reason

NOW = 1_800_000_000.0
DAY = 86_400.0

TIMING = OverlayTiming()


class Machine:
    """Two clocks of one machine, and a peer that reads both once a second."""

    def __init__(self, off: float = 0.0) -> None:
        self.true = NOW
        self.off = off
        self.events = Events(lambda: self.true)
        self.clock = Clock(
            self.events, TIMING, lambda: self.true + self.off, lambda: self.true - NOW
        )
        self.followed = 0
        self.clock.set.add(self._set)

    def _set(self) -> None:
        self.followed += 1

    @property
    def wrong_s(self) -> float:
        """Return the difference of the peer's time from the true one."""
        return self.clock() - self.true

    def pass_time(self, seconds: float) -> None:
        for _ in range(int(seconds)):
            self.true += 1
            self.clock.look()

    def errors(self) -> list[str]:
        return [event.text for event in self.events.recent() if event.level == "error"]


@pytest.fixture
def machine() -> Machine:
    return Machine()


def test_a_leap_is_a_trouble_until_it_is_set_back_or_believed(machine: Machine) -> None:
    machine.pass_time(100)
    assert list(machine.clock.troubles()) == []
    machine.off = 3600.0
    machine.pass_time(1)
    (found,) = machine.clock.troubles()
    assert found.reason is Reason.CLOCK
    assert found.sentence.startswith(f"this machine's clock leapt to {shown(NOW + 3701)}")
    assert "set it (`timedatectl set-ntp true`)" in found.sentence
    machine.off = 0.0
    machine.pass_time(1)
    assert list(machine.clock.troubles()) == []


def test_most_others_with_another_time_are_a_trouble_until_they_agree(machine: Machine) -> None:
    for who in ("a", "b", "c"):
        machine.clock.receive(who, NOW + (7200 if who != "c" else 0))
    (found,) = machine.clock.troubles()
    assert f"says {shown(NOW)}, those of most other participants {shown(NOW + 7200)}" in found.what
    machine.clock.receive("a", NOW)
    assert list(machine.clock.troubles()) == []


@pytest.mark.parametrize("leap_s", [-3000.0, 100 * DAY, -100 * DAY, 3600.0])
def test_a_clock_that_leaps_and_is_set_back_changes_nothing(
    machine: Machine, leap_s: float
) -> None:
    machine.pass_time(100)
    machine.off = leap_s
    machine.pass_time(TIMING.clock_hold_s - 10)
    assert machine.wrong_s == 0
    (error,) = machine.errors()
    assert shown(NOW + 101) in error
    assert shown(NOW + 101 + leap_s) in error
    assert "set it" in error
    machine.off = 0.0
    machine.pass_time(TIMING.clock_hold_s)
    assert machine.wrong_s == 0
    assert machine.followed == 0


@pytest.mark.parametrize("leap_s", [-3000.0, 100 * DAY])
def test_a_leap_that_no_peer_contradicts_is_believed_in_the_end(
    machine: Machine, leap_s: float
) -> None:
    machine.off = leap_s
    machine.pass_time(TIMING.clock_hold_s - 10)
    assert machine.wrong_s == 0
    machine.pass_time(20)
    assert machine.wrong_s == leap_s
    assert machine.followed == 1


def test_a_leap_is_believed_at_once_where_others_agree(machine: Machine) -> None:
    """A wrong clock is set right; or a whole site wakes from suspension."""
    machine.off = 3600.0
    machine.clock.receive("utah.edu", machine.true + 3600 + AGREE_S / 2)
    machine.pass_time(1)
    assert machine.wrong_s == 3600


def test_a_leap_that_others_contradict_is_never_believed(machine: Machine) -> None:
    machine.off = 100 * DAY
    for _ in range(30):
        machine.clock.receive("utah.edu", machine.true)
        machine.clock.receive("cmu.edu", machine.true + 5)
        machine.clock.receive("liar.edu", machine.true + 100 * DAY)
        machine.pass_time(60)
    assert machine.wrong_s == 0
    machine.pass_time(FRESH_S + TIMING.clock_hold_s)  # no peer contradicts the clock any more
    assert machine.wrong_s == 100 * DAY


def test_one_participant_with_many_voices_is_one(machine: Machine) -> None:
    machine.off = 100 * DAY
    for _ in range(100):
        machine.clock.receive("liar.edu", machine.true + 100 * DAY)
    machine.clock.receive("utah.edu", machine.true)
    machine.clock.receive("cmu.edu", machine.true)
    machine.pass_time(10)
    assert machine.wrong_s == 0


def test_time_is_never_taken_from_others(machine: Machine) -> None:
    for _ in range(60):
        for participant in ("a.edu", "b.edu", "c.edu"):
            machine.clock.receive(participant, machine.true + 3600)
        machine.pass_time(60)
    assert machine.wrong_s == 0


def test_a_clock_that_others_contradict_is_named_with_both_times(machine: Machine) -> None:
    machine.clock.receive("cmu.edu", machine.true)
    for _ in range(10):
        machine.clock.receive("utah.edu", machine.true + 3000)
        machine.clock.receive("brown.edu", machine.true + 3000)
        machine.pass_time(60)
    (error,) = {text for text in machine.errors() if shown(NOW) in text}
    assert shown(NOW + 3000) in error
    assert "+3000 s" in error
    assert "set it" in error
    assert len(machine.errors()) < 3, "not at every word of theirs"


@pytest.mark.parametrize("wrong_s", [-7200.0, 7200.0])
def test_two_differing_clocks_do_not_show_which_is_wrong(wrong_s: float) -> None:
    """Both peers report the difference, with the same two times, and each uses its own time;
    neither waits for ever before irrevocable steps."""
    one, other = Machine(), Machine(wrong_s)
    for _ in range(3 + int(TIMING.clock_hold_s / FRESH_S)):
        one.clock.receive("other.edu", other.true + wrong_s)
        other.clock.receive("one.edu", one.true)
        for machine, of, theirs, ours in (
            (one, "other.edu", one.true + wrong_s, one.true),
            (other, "one.edu", other.true, other.true + wrong_s),
        ):
            (trouble,) = machine.clock.troubles()
            assert (trouble.reason, trouble.thing) == (Reason.CLOCK, f"the clock of {of}")
            assert trouble.what == (
                f"says {shown(theirs)}, this machine's {shown(ours)}: one of the two is wrong"
            )
            assert "set the one that is wrong (`timedatectl" in trouble.mend
            machine.pass_time(FRESH_S - 1)
    for machine in (one, other):
        assert machine.clock.is_confirmed
        assert any("cannot tell whose clock is wrong" in text for text in machine.errors())
    assert one.wrong_s == 0


@given(st.lists(st.sampled_from([0.0, 3600.0, -7200.0]), max_size=7))
def test_troubles_name_this_clock_only_where_several_others_differ(offs: list[float]) -> None:
    machine = Machine()
    for number, off in enumerate(offs):
        machine.clock.receive(f"p{number}.edu", machine.true + off)
    differing = [off for off in offs if off]
    things = [each.thing for each in machine.clock.troubles()]
    if 2 * len(differing) <= len(offs):
        assert things == []
    elif len(differing) == 1:
        assert things == ["the clock of p0.edu"]
    else:
        assert things == ["this machine's clock"]
    assert machine.clock.is_contradicted is bool(things)
    machine.pass_time(1)
    assert bool(machine.errors()) >= bool(things)


def test_one_liar_of_two_is_not_taken_for_all(machine: Machine) -> None:
    machine.clock.receive("utah.edu", machine.true)
    machine.clock.receive("liar.edu", machine.true + 3000)
    assert not machine.events.recent()
    machine.clock.receive("other.edu", machine.true + 3000)
    (event,) = machine.events.recent()
    assert "+3000 s; 2 participants" in event.text


def test_small_steps_are_followed_and_many_of_them_are_a_leap(machine: Machine) -> None:
    machine.off = MAX_STEP_S - 1
    machine.pass_time(2 * ANCHOR_S)
    assert machine.wrong_s == MAX_STEP_S - 1
    machine.off = 0.0
    machine.pass_time(2 * ANCHOR_S)
    assert machine.wrong_s == 0
    for _ in range(60):
        machine.off += 5.0
        machine.pass_time(1)
    assert 0 <= machine.wrong_s <= 2 * MAX_STEP_S
    assert len(machine.errors()) >= 1


def test_an_invalid_time_is_ignored(machine: Machine) -> None:
    for nonsense in (float("nan"), float("inf"), float("-inf")):
        machine.clock.receive("liar.edu", nonsense)
    machine.clock.receive("wild.edu", 1e300)
    machine.pass_time(5)
    assert machine.wrong_s == 0


def test_a_clock_is_confirmed_by_others_or_by_standing_for_a_while(machine: Machine) -> None:
    assert not machine.clock.is_confirmed
    machine.pass_time(TIMING.clock_hold_s)
    assert machine.clock.is_confirmed
    machine.off = 3600.0
    machine.pass_time(1)
    assert not machine.clock.is_confirmed
    machine.clock.receive("utah.edu", machine.true)
    assert machine.clock.is_confirmed, "its own count is"
    machine.off = 0.0
    machine.clock.receive("utah.edu", machine.true + 3600)
    assert not machine.clock.is_confirmed


@given(st.lists(st.tuples(st.floats(-1e9, 1e9), st.integers(1, 600), st.booleans()), max_size=8))
def test_whatever_happens_the_peer_goes_by_its_count_or_by_its_machine(
    steps: list[tuple[float, int, bool]],
) -> None:
    machine = Machine()
    for off, seconds, right in steps:
        before = machine.wrong_s
        machine.off = off
        if right:
            machine.clock.receive("utah.edu", machine.true)
        assert abs(machine.wrong_s - before) <= MAX_STEP_S or machine.wrong_s == off
        machine.pass_time(seconds)
        near = (abs(machine.wrong_s - each) <= 3 * MAX_STEP_S for each in (before, off))
        assert any(near)


def test_a_clock_is_contradicted_by_most_others_and_for_a_while_after_it_was_set(
    machine: Machine,
) -> None:
    def others(*wrong_s: float) -> None:
        for number, off in enumerate(wrong_s):
            machine.clock.receive(f"p{number}", machine.true + off)

    assert not machine.clock.is_contradicted  # the peer received no other time
    others(0.0, 3600.0)
    assert not machine.clock.is_contradicted, "one of two is not most"
    assert machine.errors() == []
    others(0.0, 3600.0, 3600.0)
    assert machine.clock.is_contradicted
    assert len(machine.errors()) == 1
    machine.off = 3600.0
    machine.pass_time(1)
    assert machine.followed == 1
    assert machine.clock.is_contradicted, "it has not met the others again"
    machine.pass_time(MEETING_S)
    assert not machine.clock.is_contradicted
