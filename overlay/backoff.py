"""Waits between the tries of a failing operation (sans-IO)."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random  # noqa: TID251 - the type only: the generator is passed in

LEAST_SHARE = 0.5
"""The least part of a wait. The rest is random, so that peers that failed together do not try again
together."""


@dataclass(slots=True)
class Backoff:
    """The waits between the tries of one action: each is longer than the one before.

    Attributes:
        first_s, longest_s: the first wait and the longest, seconds.
        factor: the ratio of a wait to the one before it.
        failures: failed tries in a row.
    """

    first_s: float
    longest_s: float
    factor: float = 2.0
    failures: int = 0

    @property
    def is_longest(self) -> bool:
        """Whether the next wait is the longest."""
        return self._wait_s(self.failures) >= self.longest_s

    def failed(self, rng: Random) -> float:
        """Note one more failure; gives the seconds to wait before the next try."""
        wait_s = self._wait_s(self.failures)
        self.failures += 1
        return wait_s * rng.uniform(LEAST_SHARE, 1.0)

    def succeeded(self) -> None:
        """The next failure is a first one."""
        self.failures = 0

    def _wait_s(self, failures: int) -> float:
        doublings = min(failures, 64)  # a larger exponent would overflow a float
        return float(min(self.longest_s, self.first_s * self.factor**doublings))
