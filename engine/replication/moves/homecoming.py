"""Decides which tasks an owner takes home because their workers fail. Sans IO.

If tasks feed one another, only the first appears to stop: the next ones are not behind their
inputs. So a worker that is gone loses all of its tasks together.

* The owner does not wait for a worker that the failure detector calls dead, if it cannot dial the
  worker either: the detector has waited, and has asked others. (On a busy machine the detector may
  be wrong.)
* A worker that said that it leaves may come back at once, since a restart says so too. The owner
  waits for it as long as for its first task that is behind.
* A worker that lives loses only the task that has stopped: its others continue.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from medusa.overlay.gossip.events import Health
from medusa.overlay.names import PeerId


class Away(NamedTuple):
    """A task that another peer runs.

    Attributes:
        behind_s: how long its output has stood still, although its inputs allow more, seconds.
        patience_s: how long it may stand still, by the contract or else by the owner's setting.
            spared: whether only the worker can have its inputs: at the owner the task could not
            continue.
    """

    task: str
    worker: PeerId
    behind_s: float
    patience_s: float
    spared: bool = False

    @property
    def is_late(self) -> bool:
        return self.behind_s > self.patience_s


class Home(NamedTuple):
    """The tasks to take back: some at once; others, by worker, only if the worker cannot be
    dialled."""

    at_once: list[Away]
    unless_reached: dict[PeerId, list[Away]]


def to_take_home(away: Iterable[Away], health: Callable[[PeerId], Health]) -> Home:
    """The tasks to take back, among the tasks at workers."""
    tasks = list(away)
    late = {each.worker for each in tasks if each.is_late}
    found = Home([], {})
    for each in tasks:
        believed = health(each.worker)
        left = believed is Health.LEFT and each.worker in late
        if each.is_late or (left and not each.spared):
            found.at_once.append(each)
        elif believed is Health.DEAD and not each.spared:
            found.unless_reached.setdefault(each.worker, []).append(each)
    return found
