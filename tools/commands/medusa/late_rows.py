"""The error of a command that has posted late rows only."""

from __future__ import annotations

from medusa.overlay.errors import InvalidInputError
from medusa.tools.client.posting import Poster
from medusa.tools.client.times import show_time


def all_late(poster: Poster, rows: int, *, by_clock: bool = False) -> InvalidInputError:
    """The error that none of the rows was accepted in time; it says what to do.

    Args:
        by_clock: the clock moves the stream's boundary while no producer is present.
    """
    stream = poster.stream
    told = f"{stream}: not one of {rows:,} rows is in time; they are in {stream}/late"
    if poster.was_ended:
        return InvalidInputError(
            f"{told}: the stream has ended; `medusa stream reopen {stream}` lets it go on, and "
            "--again posts them once more"
        )
    if by_clock:
        return InvalidInputError(
            f"{told}: its clock has come to {show_time(poster.boundary)} while no producer was "
            "present (idle='clock'). A producer that was away is waited for during the idle "
            f"timeout: `medusa stream alter {stream} --idle-timeout SECONDS`; older rows go to a "
            "stream of their own, at idle='explicit'"
        )
    return InvalidInputError(
        f"{told}: the stream's time has come to {show_time(poster.boundary)}, and takes no earlier "
        "row. Rows that are as old as these go to a stream of their own; if a wrong time took it "
        f"there, `medusa stream delete {stream}`, define it again, and post everything to it"
    )
