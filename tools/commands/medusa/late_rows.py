"""What a command says that has posted late rows only."""

from __future__ import annotations

from overlay.errors import InvalidInputError
from tools.client.posting import Poster
from tools.client.times import show_time


def all_late(poster: Poster, rows: int) -> InvalidInputError:
    """The error, with the mend, where none of so many rows came into the stream."""
    stream = poster.stream
    told = f"{stream}: not one of {rows:,} rows is in time; they are in {stream}/late"
    if poster.was_ended:
        return InvalidInputError(
            f"{told}: the stream has ended; `medusa stream reopen {stream}` lets it go on, and "
            "--again posts them once more"
        )
    return InvalidInputError(
        f"{told}: the stream's time has come to {show_time(poster.boundary)}, and takes no earlier "
        "row. Rows that are as old as these go to a stream of their own; if a wrong time took it "
        f"there, `medusa stream delete {stream}`, define it again, and post everything to it"
    )
