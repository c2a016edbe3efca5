"""What must hold of the figures: the command fails where it does not."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from testnet.detection.figures import Result

PLAIN_FACTOR: Final = 1.5
"""Times the prediction, where nothing is lost and nobody slow: the papers leave out that a round of
probes has an order and that a period is cut into steps."""
TROUBLED_FACTOR: Final = 2.5
"""Times the prediction, with loss and slow peers: who is slow confirms and hears late."""
BYTES_FACTOR: Final = 1.5
"""Times the least bytes per peer and second that another size of federation may cost."""
FALSE_SHARE: Final = 0.001
"""Of all peers, victims of a false alarm with loss alone, neither of them slow."""


class Check(Struct, frozen=True):
    """holds: whether `value` is at most `limit`."""

    name: str
    value: float
    limit: float

    @property
    def holds(self) -> bool:
        return self.value <= self.limit


def checks_of(result: Result) -> list[Check]:
    """Those of one run."""
    plain = not result.loss and not result.slow
    factor = PLAIN_FACTOR if plain else TROUBLED_FACTOR
    expected = result.predicted
    checks = [Check("crashes not known to everybody", result.unknown, 0)]
    for name, value, prediction in (
        ("median time to detection", result.detect_median_s, expected.detect_median_s),
        ("p99 time to detection", result.detect_p99_s, expected.detect_p99_s),
        # Who runs a tenth of the time learns it when he gets to it.
        (
            "p99 time to dissemination",
            result.disseminate_healthy_p99_s,
            expected.disseminate_p99_s,
        ),
    ):
        if value is not None:
            checks.append(Check(f"{name}, s", value, round(factor * prediction, 3)))
    # A slow peer may be taken for dead; that one peer is slow must cost nobody else his good name.
    limit = 0 if plain else round(FALSE_SHARE * result.nodes * result.worlds, 3)
    return [*checks, Check("healthy peers taken for dead", result.false_positives_healthy, limit)]


def bytes_check(results: list[Result]) -> list[Check]:
    """That traffic is the same at all sizes; nothing to say of one size."""
    rates = [result.bytes_per_peer_per_s for result in results]
    if len(rates) < 2 or not min(rates):
        return []
    name = "most bytes per peer and second, of the least"
    return [Check(name, round(max(rates) / min(rates), 3), BYTES_FACTOR)]
