from __future__ import annotations

from collections.abc import Callable, ItemsView, Iterator, Mapping
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Remembered(Generic[K, V]):
    """Values by participant and key. If they weigh more than `limit` together, the participant
    whose values weigh most forgets its oldest: no participant pushes out another's.

    Equal notes in an equal order forget the same values, and `by_participant` returns that order.
    Args: limit: the greatest sum of weights. weigh: returns a value's weight, at least 1.
    """

    def __init__(self, limit: int, weigh: Callable[[V], int]) -> None:
        self._limit = limit
        self._weigh = weigh
        self._values: dict[str, dict[K, V]] = {}
        self._weights: dict[str, int] = {}
        self._total = 0

    @property
    def by_participant(self) -> Mapping[str, Mapping[K, V]]:
        """All values; participants, and the keys of each, are in the order of their last note, the
        oldest first."""
        return self._values

    def __iter__(self) -> Iterator[tuple[str, K, V]]:
        for participant, values in self._values.items():
            for key, value in values.items():
                yield participant, key, value

    def get(self, participant: str, key: K) -> V | None:
        return self._values.get(participant, {}).get(key)

    def of(self, participant: str) -> ItemsView[K, V]:
        """The values of one participant by their keys, the oldest first."""
        return self._values.get(participant, {}).items()

    def forget(self, participant: str, key: K) -> None:
        """Forget a value, if it is remembered."""
        if key in self._values.get(participant, {}):
            self._forget(participant, key)

    def note(self, participant: str, key: K, value: V) -> None:
        """Remember a value, as the latest, in place of the key's old one."""
        self.forget(participant, key)
        values = self._values.pop(participant, {})
        self._values[participant] = values
        values[key] = value
        self._add(participant, self._weigh(value))
        while self._total > self._limit:
            most = max(self._values, key=self._weights.__getitem__)
            self._forget(most, next(iter(self._values[most])))

    def _forget(self, participant: str, key: K) -> None:
        self._add(participant, -self._weigh(self._values[participant].pop(key)))
        if not self._values[participant]:
            del self._values[participant], self._weights[participant]

    def _add(self, participant: str, weight: int) -> None:
        self._weights[participant] = self._weights.get(participant, 0) + weight
        self._total += weight
