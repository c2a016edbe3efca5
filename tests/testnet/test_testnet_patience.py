"""Waiting depends on progress, and on the time that the machine gave us."""

from __future__ import annotations

import sys
import time

import psutil
import pytest
import trio
from deadline import DEADLINE_S
from hypothesis import given
from hypothesis import strategies as st

from medusa.overlay.errors import DeadlineError, UnavailableError
from medusa.testnet.kit import patience
from medusa.testnet.kit.patience import MIN_SHARE, MachineTime, Patience, while_moving


@given(st.lists(st.tuples(st.integers(0, 1), st.floats(0, 30)), max_size=40))
def test_patience_ends_after_its_seconds_without_progress(looks: list[tuple[int, float]]) -> None:
    waiting = Patience(20.0)
    stood, before = 0.0, None
    for stands, seconds in looks:
        stood = stood + seconds if stands == before else 0.0
        before = stands
        assert waiting.look(stands, seconds) is (stood < 20.0)


def plain_time(monkeypatch: pytest.MonkeyPatch, share: float = 1.0) -> None:
    monkeypatch.setattr(MachineTime, "share", lambda _: share)


async def test_a_run_may_take_any_time_as_long_as_something_moves(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain_time(monkeypatch)
    peers = 0
    async with while_moving("until all run", lambda: f"{peers} run"):
        for _ in range(100):
            await trio.sleep(100.0)
            peers += 1
    assert trio.current_time() == 10_000.0


async def test_when_nothing_moves_the_error_names_the_awaited_state(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain_time(monkeypatch)
    with pytest.raises(DeadlineError) as caught:
        async with while_moving("until all run", lambda: "3 of 8 run", 60.0):
            await trio.sleep_forever()
    assert str(caught.value) == "until all run: nothing moved for 60 s; 3 of 8 run"
    assert trio.current_time() == pytest.approx(60.0, abs=2.0)


async def test_patience_lasts_longer_on_a_machine_that_others_use(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain_time(monkeypatch, 0.25)
    with pytest.raises(DeadlineError):
        async with while_moving("until all run", still_s=60.0):
            await trio.sleep_forever()
    assert trio.current_time() == pytest.approx(240.0, abs=8.0)


async def test_an_error_of_the_body_comes_out_as_it_is() -> None:
    with pytest.raises(UnavailableError, match="ended"):
        async with while_moving("until it runs"):
            raise UnavailableError("it ended")


async def test_the_body_may_be_cancelled() -> None:
    with trio.move_on_after(0.01) as scope:
        async with while_moving("for ever"):
            await trio.sleep_forever()
    assert scope.cancelled_caught


class OthersTime(MachineTime):
    """Counts our processes as other programs."""

    @staticmethod
    def _our_times() -> dict[int, float]:
        return {}


def test_the_cpu_of_our_own_processes_counts_as_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "MIN_SHARE", 0.0)  # other programs may use almost all time
    burner = psutil.Popen([sys.executable, "-c", "while True: pass"])
    try:
        ours, others = MachineTime(), OthersTime()
        begun, deadline = used_by(burner), time.monotonic() + DEADLINE_S
        while used_by(burner) < begun + BURNT_S:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        share_of_others = others.share()
        assert 0.0 <= share_of_others < ours.share() <= 1.0
    finally:
        burner.kill()
        burner.wait()


BURNT_S = 0.5
"""CPU seconds that the other process uses: ten times as many as this one uses between two looks."""


def used_by(process: psutil.Popen) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def test_a_machine_that_others_use_up_gives_us_the_least_share(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    passed = iter([(100.0, 1_000.0), (100.0, 2_000.0)])
    monkeypatch.setattr(patience, "_core_times", lambda: next(passed))
    assert OthersTime().share() == MIN_SHARE


async def test_times_are_looked_at_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    looks, enough = 0, trio.Event()

    def share(_: MachineTime) -> float:
        nonlocal looks
        looks += 1
        if looks == 3:
            trio.from_thread.run_sync(enough.set)
        return 1.0

    monkeypatch.setattr(MachineTime, "share", share)
    monkeypatch.setattr(patience, "LOOK_S", 0.05)
    async with while_moving("a moment"):
        await enough.wait()
