"""The options for a query's availability: a standby, its mode, its bound."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

import click

from medusa.engine.objects.availability import MODE_WORDS, AvailabilityRequest, Recovery, parse_mode

Function = TypeVar("Function", bound=Callable[..., object])

_OPTIONS: Final = (
    click.option(
        "--ha",
        type=click.Choice(list(MODE_WORDS)),
        metavar="MODE",
        help="What a second peer keeps, to take over when the first dies: none, amnesia,"
        " upstream_backup, passive_standby or active_standby.",
    ),
    click.option(
        "--recovery",
        type=click.Choice([recovery.value for recovery in Recovery]),
        help="What consumers may notice of that (default: the strongest MODE gives).",
    ),
    click.option(
        "--bound", type=float, metavar="SECONDS", help="How long results may stand still then."
    ),
    click.option(
        "--checkpoint",
        type=float,
        metavar="SECONDS",
        help="Between two checkpoints of a passive standby (default: 1, or half the bound).",
    ),
    click.option(
        "--secondary",
        metavar="PEER",
        help="The peer of ours that takes over: the beginning of its id.",
    ),
)


def availability_options(function: Function) -> Function:
    """Add --ha and its related options; `requested` takes their values."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


def requested(
    ha: str | None,
    recovery: str | None,
    bound: float | None,
    checkpoint: float | None,
    secondary: str | None,
) -> AvailabilityRequest | None:
    """The availability that the options request; None: they request none."""
    request = AvailabilityRequest(
        None if ha is None else parse_mode(ha),
        None if recovery is None else Recovery(recovery),
        bound,
        checkpoint,
        secondary,
    )
    return None if request == AvailabilityRequest() else request
