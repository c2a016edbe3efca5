"""The troubles of peers on screens."""

from __future__ import annotations

from medusa.overlay.troubles import Trouble
from medusa.tools.client.times import show_duration
from medusa.tools.monitor.render_events import with_short_ids


def in_words(trouble: Trouble, at: float) -> str:
    """The trouble, its mend and its age, in one line. at: now, seconds since the epoch."""
    age = show_duration(max(0.0, at - trouble.since))
    return f"{with_short_ids(trouble.sentence)} (for {age})"


def style_of(trouble: Trouble) -> str:
    return "yellow" if trouble.reason.is_warning else "bold red"
