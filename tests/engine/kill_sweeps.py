"""Sweeps of kills: a peer is killed at each step of an operation in turn."""

from __future__ import annotations

from typing import Final, Literal

from crashing_peer import Order, both

from medusa.overlay.failpoints import Failpoint

At = Literal["owner", "worker"]
Role = Literal["primary", "secondary"]

MOVES: Final[dict[tuple[At, At], list[Order]]] = {
    ("owner", "worker"): [
        *both(Failpoint.MOVE_PREPARE),
        *both(Failpoint.MOVE_READ_INPUT),
        *both(Failpoint.QUERY_PLACE),
        *both(Failpoint.MOVE_SEND_SUBSCRIBERS),
        *both(Failpoint.MOVE_NOTIFY_PRODUCER),
        *both(Failpoint.LOG_COMMIT, call=3),
    ],
    ("owner", "owner"): [*both(Failpoint.QUERY_PLACE), *both(Failpoint.MOVE_NOTIFY_PRODUCER)],
    ("worker", "worker"): [
        *both(Failpoint.MOVE_ASSIGN),
        *both(Failpoint.ASSIGNMENT_SAVE),
        *both(Failpoint.ASSIGNMENT_FOLLOW_INPUTS),
        *both(Failpoint.TASK_RUN_EPOCH),
        *both(Failpoint.LOG_COMMIT, call=3),
        *both(Failpoint.MOVE_ACTIVATE),
    ],
    ("worker", "owner"): [*both(Failpoint.MOVE_RELEASE), *both(Failpoint.ASSIGNMENT_DROP)],
}
"""The killed peer, and where the task is being moved: from its owner to the worker, or back."""

FORGETTING: Final = both(Failpoint.LOG_FORGET)
"""The owner of a task is killed while it drops rows that it no longer needs, since the task runs
elsewhere."""

MODIFYING: Final[list[tuple[Role, Order]]] = [
    *(("primary", order) for order in both(Failpoint.MODIFICATION_DECIDE)),
    *(("primary", order) for order in both(Failpoint.QUERY_WRITE)),
    *(("primary", order) for order in both(Failpoint.PRIMARY_NOTIFY)),
    *(("secondary", order) for order in both(Failpoint.STANDBY_TAKE_VERSION)),
    *(("secondary", order) for order in both(Failpoint.STANDBY_ADOPT)),
    *(("primary", order) for order in both(Failpoint.CATALOG_PUBLISH_QUERY)),
]

ALTERING_STREAMS: Final = [
    *both(Failpoint.SOURCE_ALTER),
    Order(Failpoint.CATALOG_ANNOUNCE_ALTERED, "after"),
    Order(Failpoint.STREAM_DEFINE, "after"),
]
DELETING_STREAMS: Final = [
    Order(Failpoint.SOURCE_RETIRE, "after"),
    Order(Failpoint.STREAM_DROP),
    Order(Failpoint.STREAM_REMOVE_FILES),
    Order(Failpoint.STREAM_DROP, "after"),
    Order(Failpoint.CATALOG_WITHDRAW, "after"),
]
REOPENING_STREAMS: Final = [
    *both(Failpoint.SOURCE_REOPEN),
    Order(Failpoint.LOG_REOPEN, "after"),
    Order(Failpoint.STREAM_FORGET_END, "after"),
]

REOPENING_LEADERS: Final = [
    Order(Failpoint.LEADER_REOPEN, "after"),
    Order(Failpoint.LOG_REOPEN, "after"),
    Order(Failpoint.LOG_REOPEN, "after", 2),
    *both(Failpoint.SOURCE_LEAD),
    *both(Failpoint.VOTER_SERVE),
]
DELETING_LEADERS: Final = [
    Order(Failpoint.LEADER_DELETE, "after"),
    *both(Failpoint.BALLOT_SAVE),
    Order(Failpoint.VOTER_DROP),
    Order(Failpoint.VOTER_ERASE),
    Order(Failpoint.STREAM_REMOVE_FILES),
    Order(Failpoint.VOTER_ERASE, "after"),
    Order(Failpoint.CATALOG_WITHDRAW, "after"),
    Order(Failpoint.LEADER_WITHDRAW, "after"),
]

MAKING_VIEWS: Final = [
    Order(Failpoint.VIEW_OPEN),
    Order(Failpoint.LOG_BEGIN),
    Order(Failpoint.FOLLOWER_FOLLOW_HISTORY),
    Order(Failpoint.VIEW_PUBLISH),
    Order(Failpoint.CATALOG_NAME_PRODUCER, "after"),
    Order(Failpoint.VIEW_PUBLISH, "after"),
    *both(Failpoint.LOG_COMMIT),
]
DELETING_VIEWS: Final = [
    Order(Failpoint.VIEW_REMOVE),
    Order(Failpoint.FOLLOWER_PART_WITH),
    Order(Failpoint.STREAM_DROP, "after"),
    Order(Failpoint.CATALOG_WITHDRAW, "after"),
    Order(Failpoint.VIEW_REMOVE, "after"),
]

SWEEPS: Final[dict[str, list[Order]]] = {
    **{f"the {victim}, moved to the {to}": orders for (victim, to), orders in MOVES.items()},
    "forgetting": FORGETTING,
    "modifying": [order for _, order in MODIFYING],
    "altering streams": ALTERING_STREAMS,
    "deleting streams": DELETING_STREAMS,
    "reopening streams": REOPENING_STREAMS,
    "reopening with leaders": REOPENING_LEADERS,
    "deleting with leaders": DELETING_LEADERS,
    "making views": MAKING_VIEWS,
    "deleting views": DELETING_VIEWS,
}
"""All sweeps: each order of a sweep kills a peer, or the sweep fails."""
