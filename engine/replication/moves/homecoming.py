"""Which tasks an owner takes home because of the peers that run them. Sans IO.

Of tasks that feed one another only the first is seen to stand still: the next ones have no input
that they are behind. So a worker that is gone loses all of its tasks together.

* A worker that the failure detector calls dead is not waited for: the detector has waited, and has
  asked others.
* A worker that said that it leaves may only be started anew. It has the patience of the task that
  is behind first.
* A worker that lives loses the one task that stands still: others go on there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from overlay.gossip.events import Health
from overlay.names import PeerId


class Away(NamedTuple):
    """A task that another peer runs.

    Attributes:
        behind_s: how long its output has stood still, although its inputs allow more, seconds.
        patience_s: how long it may, by the contract or else by the owner's setting.
        spared: nobody but the worker can have its inputs: at home it could not go on.
    """

    task: str
    worker: PeerId
    behind_s: float
    patience_s: float
    spared: bool = False

    @property
    def is_late(self) -> bool:
        return self.behind_s > self.patience_s


def to_take_home(away: Iterable[Away], health: Callable[[PeerId], Health]) -> dict[Away, str]:
    """The tasks to take home now, each with what is said of it at that worker."""
    tasks = list(away)
    believed = {each.worker: health(each.worker) for each in tasks}
    gone = {
        each.worker
        for each in tasks
        if believed[each.worker] is Health.DEAD or (each.is_late and believed[each.worker].gone)
    }
    late = {each: "stands still" for each in tasks if each.is_late}
    lost = {each: "is not run" for each in tasks if each.worker in gone and not each.spared}
    return lost | late
