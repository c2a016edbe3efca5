"""What each mode promises, and what the papers found; whether it is so here.

Hwang et al. (ICDE 2005): passive standby adds most to the delay, since answers wait for the
checkpoint; active standby costs most and recovers fastest; upstream backup costs least and pays at
recovery, when the secondary does again what was done since.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from engine.objects.availability import Mode, Recovery
from testnet.ha.chain import SERVERS
from testnet.ha.result import Check, ModeResult

ACTIVE_MS: Final = 1_000.0
"""Longest that active standby may take to recover."""

WITHOUT_LOSS: Final = (Mode.UPSTREAM_BACKUP, Mode.PASSIVE_STANDBY, Mode.ACTIVE_STANDBY)


def judge(modes: Sequence[ModeResult]) -> tuple[Check, ...]:
    """The checks that can be made of these runs."""
    checks: list[Check] = []
    for mode in modes:
        checks += promises(mode)
    return (*checks, *comparisons(modes))


def promises(mode: ModeResult) -> list[Check]:
    """What the run of one mode must show, whatever the others do."""
    if not mode.begun:
        return [_certain(f"{mode.label} could be set up", False, mode.failure)]
    if mode.failure:
        return [_certain(f"{mode.label} runs to its end", False, mode.failure)]
    found = f"{mode.lost} lost, {mode.duplicated} duplicated, {mode.wrong} wrong"
    checks = [
        _certain(
            f"{mode.label} goes on after the kill",
            mode.recovery_ms is not None,
            _ms(mode.recovery_ms),
        )
    ]
    if mode.mode == Mode.AMNESIA:
        loses = bool(mode.lost) and not mode.duplicated
        checks.append(_certain("amnesia loses, and repeats nothing", loses, found))
    elif mode.mode == Mode.NONE or mode.recovery == Recovery.PRECISE:
        exact = not mode.lost and not mode.duplicated and not mode.wrong
        checks.append(_certain(f"{mode.label} loses and repeats nothing", exact, found))
    elif mode.recovery == Recovery.ROLLBACK:
        whole = not mode.lost and not mode.wrong
        checks.append(_certain(f"{mode.label} loses nothing", whole, found))
    back = f"{mode.returned} of {len(SERVERS)}"
    checks.append(
        _certain(f"{mode.label}: the killed come back", mode.returned == len(SERVERS), back)
    )
    if mode.mode == Mode.ACTIVE_STANDBY:
        quick = mode.recovery_ms is not None and mode.recovery_ms <= ACTIVE_MS
        claim = f"{mode.label} recovers within {ACTIVE_MS:.0f} ms"
        checks.append(_certain(claim, quick, _ms(mode.recovery_ms)))
    return checks


def comparisons(modes: Sequence[ModeResult]) -> list[Check]:
    """What the papers say of modes beside each other, if each of them was run."""
    runs = [run for run in modes if run.mode in WITHOUT_LOSS and run.recovery_ms is not None]
    if {run.mode for run in runs} != set(WITHOUT_LOSS):
        return []
    return [claim.check(runs) for claim in CLAIMS]


@dataclass(frozen=True, slots=True)
class Claim:
    """That one mode has most, or least, of something among those that lose nothing."""

    text: str
    mode: Mode
    figure: Callable[[ModeResult], float]
    most: bool
    shown: str

    def check(self, runs: Sequence[ModeResult]) -> Check:
        extreme = (max if self.most else min)(runs, key=self.figure)
        found = ", ".join(f"{run.label} {self.shown.format(self.figure(run))}" for run in runs)
        return Check(self.text, extreme.mode == self.mode, False, found)


CLAIMS: Final = (
    Claim(
        "passive standby adds most to the delay",
        Mode.PASSIVE_STANDBY,
        lambda run: run.added_delay_ms or 0.0,
        True,
        "{:+.0f} ms",
    ),
    Claim(
        "active standby costs most CPU",
        Mode.ACTIVE_STANDBY,
        lambda run: run.cpu_overhead or 0.0,
        True,
        "{:+.0%}",
    ),
    Claim(
        "active standby recovers fastest",
        Mode.ACTIVE_STANDBY,
        lambda run: run.recovery_ms or 0.0,
        False,
        "{:.0f} ms",
    ),
    Claim(
        "upstream backup costs least CPU",
        Mode.UPSTREAM_BACKUP,
        lambda run: run.cpu_overhead or 0.0,
        False,
        "{:+.0%}",
    ),
    Claim(
        "upstream backup costs the network least",
        Mode.UPSTREAM_BACKUP,
        lambda run: run.network_overhead or 0.0,
        False,
        "{:+.0%}",
    ),
    Claim(
        "upstream backup recovers slowest",
        Mode.UPSTREAM_BACKUP,
        lambda run: run.recovery_ms or 0.0,
        True,
        "{:.0f} ms",
    ),
)


def _certain(claim: str, good: bool, found: str) -> Check:
    return Check(claim, good, True, found)


def _ms(value: float | None) -> str:
    return "never" if value is None else f"{value:.0f} ms"
