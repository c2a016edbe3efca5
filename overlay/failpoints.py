"""Failpoints: the steps of a peer at which a test may kill it with -9, under stable names.

* `Failpoint` lists all of them; tests know no others.
* `@failpoint(Failpoint.LOG_COMMIT)` marks the one function that is the step. The function may be
  renamed and moved: tests know only the point.
* Only a program of the tests calls `arm`, before it imports the rest of the peer. Without it the
  decorator returns the function unchanged: in production a failpoint costs nothing and no setting,
  variable or call can reach it.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable
from enum import StrEnum
from typing import Literal, ParamSpec, TypeVar, cast


class Failpoint(StrEnum):
    """A step of a peer: the peer can die before it and after it."""

    ASSIGNMENT_DROP = "assignment.drop"
    ASSIGNMENT_FOLLOW_INPUTS = "assignment.follow_inputs"
    ASSIGNMENT_SAVE = "assignment.save"
    BALLOT_SAVE = "ballot.save"
    CATALOG_ANNOUNCE_ALTERED = "catalog.announce_altered"
    CATALOG_NAME_PRODUCER = "catalog.name_producer"
    CATALOG_PUBLISH_QUERY = "catalog.publish_query"
    CATALOG_WITHDRAW = "catalog.withdraw"
    FOLLOWER_FOLLOW_HISTORY = "follower.follow_history"
    FOLLOWER_PART_WITH = "follower.part_with"
    LEADER_DELETE = "leader.delete"
    LEADER_REOPEN = "leader.reopen"
    LEADER_WITHDRAW = "leader.withdraw"
    LOG_BEGIN = "log.begin"
    LOG_COMMIT = "log.commit"
    LOG_FORGET = "log.forget"
    LOG_REOPEN = "log.reopen"
    MODIFICATION_DECIDE = "modification.decide"
    MOVE_ACTIVATE = "move.activate"
    MOVE_ASSIGN = "move.assign"
    MOVE_PREPARE = "move.prepare"
    MOVE_READ_INPUT = "move.read_input"
    MOVE_RELEASE = "move.release"
    MOVE_SEND_SUBSCRIBERS = "move.send_subscribers"
    MOVE_NOTIFY_PRODUCER = "move.notify_producer"
    PRIMARY_NOTIFY = "primary.notify"
    QUERY_PLACE = "query.place"
    QUERY_WRITE = "query.write"
    SOURCE_ALTER = "source.alter"
    SOURCE_LEAD = "source.lead"
    SOURCE_REOPEN = "source.reopen"
    SOURCE_RETIRE = "source.retire"
    STANDBY_ADOPT = "standby.adopt"
    STANDBY_TAKE_VERSION = "standby.take_version"
    STREAM_DEFINE = "stream.define"
    STREAM_DROP = "stream.drop"
    STREAM_FORGET_END = "stream.forget_end"
    STREAM_REMOVE_FILES = "stream.remove_files"
    TASK_RUN_EPOCH = "task.run_epoch"
    VIEW_OPEN = "view.open"
    VIEW_PUBLISH = "view.publish"
    VIEW_REMOVE = "view.remove"
    VOTER_DROP = "voter.drop"
    VOTER_ERASE = "voter.erase"
    VOTER_SERVE = "voter.serve"


When = Literal["before", "after"]
Reached = Callable[[Failpoint, When], None]
"""Called before the body of a step runs, and after it has returned (not if it failed)."""

P = ParamSpec("P")
R = TypeVar("R")

_places: dict[Failpoint, str] = {}
_reached: list[Reached] = []


def arm(reached: Reached) -> None:
    """Have `reached` called at each failpoint of the modules that are imported from now on.

    Raises:
        RuntimeError: modules with failpoints are imported already, or another call came first.
    """
    if _places or _reached:
        raise RuntimeError("failpoints are armed once, before the modules that have them")
    _reached.append(reached)


def placed() -> dict[Failpoint, str]:
    """The failpoints of all modules imported so far, each with its place: module:qualname."""
    return dict(_places)


def failpoint(point: Failpoint) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Mark a function, or a coroutine function, as the step `point`.

    Raises:
        RuntimeError: the point stands at another function already.
        TypeError: the marked object is neither a function nor a coroutine function.
    """

    def mark(function: Callable[P, R]) -> Callable[P, R]:
        if not inspect.isfunction(function) or inspect.isasyncgenfunction(function):
            raise TypeError(f"{function!r} is no plain function")
        place = f"{function.__module__}:{function.__qualname__}"
        if _places.setdefault(point, place) != place:
            raise RuntimeError(f"{point} stands at {_places[point]} and at {place}")
        return watched(point, function, _reached[0]) if _reached else function

    return mark


def watched(point: Failpoint, function: Callable[P, R], reached: Reached) -> Callable[P, R]:
    """The function, with `reached` called before and after it."""
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def run(*args: P.args, **kwargs: P.kwargs) -> object:
            reached(point, "before")
            result = await cast("Awaitable[object]", function(*args, **kwargs))
            reached(point, "after")
            return result

        return cast("Callable[P, R]", run)

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        reached(point, "before")
        result = function(*args, **kwargs)
        reached(point, "after")
        return result

    return call
