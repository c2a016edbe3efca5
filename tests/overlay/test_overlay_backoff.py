"""The waits between tries: they grow, are bounded, are spread, and begin again after a success."""

from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from medusa.overlay.backoff import LEAST_SHARE, Backoff

SECONDS = st.floats(0.001, 1000.0)


@given(SECONDS, SECONDS, st.floats(1.5, 4.0), st.integers(1, 2000), st.integers())
def test_waits_grow_by_the_factor_up_to_the_longest(
    first_s: float, more_s: float, factor: float, tries: int, seed: int
) -> None:
    longest_s, rng = first_s + more_s, Random(seed)
    backoff = Backoff(first_s, longest_s, factor)
    whole = first_s
    for failures in range(1, min(tries, 40) + 1):
        assert backoff.is_longest == (whole >= longest_s)
        wait_s = backoff.failed(rng)
        assert LEAST_SHARE * whole * (1 - 1e-9) <= wait_s <= whole * (1 + 1e-9)
        assert backoff.failures == failures
        whole = min(longest_s, whole * factor)
    backoff.failures = tries
    assert backoff.failed(rng) <= longest_s
    backoff.succeeded()
    assert backoff.failed(rng) <= first_s


def test_calls_that_failed_together_are_not_retried_together() -> None:
    waits = {Backoff(1.0, 60.0).failed(Random(seed)) for seed in range(100)}
    assert len(waits) > 90
