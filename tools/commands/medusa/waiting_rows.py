"""The words of commands for a stream's rows that are stored, and not visible yet."""

from __future__ import annotations

from medusa.engine.objects.definitions import Idle, StreamDefinition
from medusa.tools.client.times import show_duration


def lets_out(stream: StreamDefinition) -> str:
    """Say how the rows that wait for the stream's boundary become visible."""
    later = (
        f"more than {show_duration(stream.slack_us / 1e6)} later" if stream.slack_us else "later"
    )
    clock = ", the clock," if stream.idle is Idle.CLOCK else ""
    return f"a row {later}{clock} or the stream's end"
