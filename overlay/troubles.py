"""The troubles of a peer: conditions that its people must mend, for as long as they last.

Each part of a peer has a function that returns its present troubles. Status, its `--check`, the
monitor, `stream show` and the terminal of the peer show the same list. Sans IO.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import Final, TypeAlias

from msgspec import Struct
from msgspec.structs import replace


class Reason(StrEnum):
    """The kind of a trouble; the ones that other troubles may follow from come first."""

    NO_ANSWER = "no_answer"
    """The peer does not run, or does not answer. Commands report this trouble in place of the
    peer."""
    REFUSED = "refused"
    """Other members refuse this peer."""
    CLOCK = "clock"
    """The clock of this machine, or of a partner's machine, is wrong."""
    SIBLING_AWAY = "sibling_away"
    """Another peer of our participant is out of reach."""
    DISK_FULL = "disk_full"
    """The disk, or this peer's quota of it, is full: nothing more is stored."""
    ROWS_LOST = "rows_lost"
    """A file is damaged or missing, with rows that were stored."""
    STANDS_STILL = "stands_still"
    """A stream or view does not go on, though there is more for it. Posts wait, in its journal."""
    REFUSES_POSTS = "refuses_posts"
    """Posts to a stream are refused."""
    CANNOT_READ = "cannot_read"
    """The owner of a stream does not let this peer read it."""
    QUERY_REFUSED = "query_refused"
    """A query of the last run does not run any more: this release refuses it."""
    CANNOT_COMPUTE = "cannot_compute"
    """The executor of all tasks does not work."""
    TASK_FAILS = "task_fails"
    """The job of a task fails, and is tried again."""
    CERTIFICATE_ENDS = "certificate_ends"
    """This peer's certificate ends soon."""
    DISK_NEARLY_FULL = "disk_nearly_full"
    """This peer's quota of the disk is nearly used up."""

    @property
    def is_warning(self) -> bool:
        """Whether the peer still does all of its work."""
        return self in _WARNINGS

    @property
    def hides_others(self) -> bool:
        """Whether other peers, or their objects, may look absent while the trouble lasts."""
        return self in _HIDING


_WARNINGS: Final = frozenset({Reason.CERTIFICATE_ENDS, Reason.DISK_NEARLY_FULL})

_HIDING: Final = frozenset(
    {Reason.REFUSED, Reason.CLOCK, Reason.SIBLING_AWAY, Reason.CERTIFICATE_ENDS}
)


class Trouble(Struct, frozen=True):
    """One trouble.

    Attributes:
        thing: what it is about: a stream, task, peer, folder.
        what: the fault, as the rest of a sentence that begins with the thing.
        mend: what to do; "": `what` says it.
        since: when this peer first saw it, seconds since the epoch.
    """

    reason: Reason
    thing: str
    what: str
    mend: str = ""
    since: float = 0.0

    @property
    def sentence(self) -> str:
        """The trouble and its mend."""
        return f"{self.thing} {self.what}{f'; {self.mend}' if self.mend else ''}"

    def stops_posts_to(self, stream: str) -> bool:
        """Whether the source stream of that name, at the peer that has the trouble, takes no
        posts."""
        if self.reason is Reason.DISK_FULL:
            return True
        return self.reason is Reason.REFUSES_POSTS and self.thing == stream


Look: TypeAlias = Callable[[], Iterable[Trouble]]
"""The present troubles of one part of a peer; cheap, as it is called every second."""


class Troubles:
    """The present troubles of one peer.

    Args:
        clock: seconds since the epoch.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._looks: list[Look] = []
        self._since: dict[tuple[Reason, str], float] = {}

    def add(self, look: Look) -> None:
        """Ask a further part from now on."""
        self._looks.append(look)

    def now(self) -> tuple[Trouble, ...]:
        """The present troubles, in the order of their reasons. It must be called again and again:
        a trouble begins with the first call that finds it."""
        found = {(each.reason, each.thing): each for look in self._looks for each in look()}
        at = self._clock()
        self._since = {key: self._since.get(key, at) for key in found}
        return tuple(
            replace(found[key], since=self._since[key]) for key in sorted(found, key=_order)
        )


def _order(key: tuple[Reason, str]) -> int:
    return _ORDER[key[0]]


_ORDER: Final = {reason: number for number, reason in enumerate(Reason)}
