"""The attributes of a `<query>` for its high availability, in both dialects.

    <query name="..." ha="passive_standby" recovery="precise" bound="2" checkpoint="0.5"
           secondary="0123456789abcdef0123456789abcdef01234567">

`ha` also takes Borealis' words (amnesia, upstream, passive, active). Times are seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from engine.language.xml.boxes import seconds_to_us
from engine.objects.availability_request import AvailabilityRequest, parse_mode, parse_recovery
from overlay.errors import InvalidInputError

ATTRIBUTES: Final = ("ha", "recovery", "bound", "checkpoint", "secondary")


def read_request(given: Mapping[str, str]) -> AvailabilityRequest:
    """The requested availability in the attributes of a query.

    Args:
        given: attributes of a query, checked to be among those known.

    Raises:
        InvalidInputError: names the attribute and the reason.
    """
    mode, recovery = given.get("ha"), given.get("recovery")
    return AvailabilityRequest(
        None if mode is None else parse_mode(mode),
        None if recovery is None else parse_recovery(recovery),
        _seconds(given, "bound"),
        _seconds(given, "checkpoint"),
        given.get("secondary"),
    )


def _seconds(given: Mapping[str, str], name: str) -> float | None:
    if name not in given:
        return None
    try:
        return seconds_to_us(given[name]) / 1e6
    except InvalidInputError as error:
        raise InvalidInputError(f"{name}: {error}") from None
