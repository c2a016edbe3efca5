"""Dogpile: how long a suspicion lasts by how many confirm it independently (Lifeguard, 4.2)."""

from __future__ import annotations

import math


def suspicion_timeout(shortest: float, longest: float, wanted: int, confirmed: int) -> float:
    """Seconds from its start until a suspicion counts as proven.

    It falls with the logarithm, so that the first confirmations count most:
    max - ln(c + 1) / ln(k + 1) * (max - min).

    Args:
        wanted: the confirmations k that shorten it to `shortest`; 0: no others can be expected.
        confirmed: the confirmations c so far, the first accuser not counted.
    """
    if wanted < 1:
        return shortest
    share = math.log(confirmed + 1) / math.log(wanted + 1)
    return max(shortest, longest - share * (longest - shortest))
