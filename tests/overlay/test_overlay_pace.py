"""Time that one participant's messages may take: a share in the long run, and a burst."""

from hypothesis import given
from hypothesis import strategies as st

from overlay.pace import BURST_S, SHARE, Pace


@given(st.lists(st.tuples(st.floats(0, 0.5), st.floats(0, 2)), max_size=50))
def test_whoever_waits_as_told_takes_no_more_than_its_share(
    steps: list[tuple[float, float]],
) -> None:
    """Each step spends something and then does nothing for a while."""
    pace, now, spent, largest = Pace(), 100.0, 0.0, 0.0
    for cost_s, idle_s in steps:
        now += pace.pause_s(now)
        assert pace.pause_s(now) < 1e-6
        assert spent <= (now - 100.0 + BURST_S) * SHARE + largest + 1e-6
        pace.spend(cost_s, now)
        spent += cost_s
        largest = max(largest, cost_s)
        now += idle_s


def test_whoever_sends_little_never_waits() -> None:
    pace = Pace()
    for step in range(1000):
        assert pace.pause_s(step / 10) == 0
        pace.spend(0.04, step / 10)
