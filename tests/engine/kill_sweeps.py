"""Sweeps of kills: a peer is killed at each step of an operation in turn."""

from __future__ import annotations

from typing import Final, Literal

from crashing_peer import Order, both

from medusa.overlay.killpoints import KillPoint

At = Literal["owner", "worker"]
Role = Literal["primary", "secondary"]

MOVES: Final[dict[tuple[At, At], list[Order]]] = {
    ("owner", "worker"): [
        *both(KillPoint.MOVE_PREPARE),
        *both(KillPoint.MOVE_READ_INPUT),
        *both(KillPoint.QUERY_PLACE),
        *both(KillPoint.MOVE_SEND_SUBSCRIBERS),
        *both(KillPoint.MOVE_TELL_PRODUCER),
        *both(KillPoint.LOG_COMMIT, call=3),
    ],
    ("owner", "owner"): [
        *both(KillPoint.QUERY_PLACE),
        *both(KillPoint.MOVE_TELL_PRODUCER),
    ],
    ("worker", "worker"): [
        *both(KillPoint.MOVE_ASSIGN),
        *both(KillPoint.ASSIGNMENT_SAVE),
        *both(KillPoint.ASSIGNMENT_FOLLOW_INPUTS),
        *both(KillPoint.TASK_RUN_EPOCH),
        *both(KillPoint.LOG_COMMIT, call=3),
        *both(KillPoint.MOVE_ACTIVATE),
    ],
    ("worker", "owner"): [
        *both(KillPoint.MOVE_RELEASE),
        *both(KillPoint.ASSIGNMENT_DROP),
    ],
}
"""Who is killed, and where the task is being moved: from its owner to the worker, or back."""

FORGETTING: Final = both(KillPoint.LOG_FORGET)
"""The owner of a task, while it drops rows that it needs no more: they are where the task is."""

MODIFYING: Final[list[tuple[Role, Order]]] = [
    *(("primary", order) for order in both(KillPoint.MODIFICATION_DECIDE)),
    *(("primary", order) for order in both(KillPoint.QUERY_WRITE)),
    *(("primary", order) for order in both(KillPoint.PRIMARY_TELL)),
    *(("secondary", order) for order in both(KillPoint.STANDBY_TAKE_VERSION)),
    *(("secondary", order) for order in both(KillPoint.STANDBY_ADOPT)),
    *(("primary", order) for order in both(KillPoint.CATALOG_PUBLISH_QUERY)),
]

ALTERING_STREAMS: Final = [
    *both(KillPoint.SOURCE_ALTER),
    Order(KillPoint.CATALOG_ANNOUNCE_ALTERED, "after"),
    Order(KillPoint.STREAM_DEFINE, "after"),
]
DELETING_STREAMS: Final = [
    Order(KillPoint.SOURCE_RETIRE, "after"),
    Order(KillPoint.STREAM_DROP),
    Order(KillPoint.STREAM_REMOVE_FILES),
    Order(KillPoint.STREAM_DROP, "after"),
    Order(KillPoint.CATALOG_WITHDRAW, "after"),
]
REOPENING_STREAMS: Final = [
    *both(KillPoint.SOURCE_REOPEN),
    Order(KillPoint.LOG_REOPEN, "after"),
    Order(KillPoint.STREAM_FORGET_END, "after"),
]

REOPENING_LEADERS: Final = [
    Order(KillPoint.LEADER_REOPEN, "after"),
    Order(KillPoint.LOG_REOPEN, "after"),
    Order(KillPoint.LOG_REOPEN, "after", 2),
    *both(KillPoint.SOURCE_LEAD),
    *both(KillPoint.VOTER_SERVE),
]
DELETING_LEADERS: Final = [
    Order(KillPoint.LEADER_DELETE, "after"),
    *both(KillPoint.BALLOT_SAVE),
    Order(KillPoint.VOTER_DROP),
    Order(KillPoint.VOTER_ERASE),
    Order(KillPoint.STREAM_REMOVE_FILES),
    Order(KillPoint.VOTER_ERASE, "after"),
    Order(KillPoint.CATALOG_WITHDRAW, "after"),
    Order(KillPoint.LEADER_WITHDRAW, "after"),
]

MAKING_VIEWS: Final = [
    Order(KillPoint.VIEW_OPEN),
    Order(KillPoint.LOG_BEGIN),
    Order(KillPoint.FOLLOWER_FOLLOW_HISTORY),
    Order(KillPoint.VIEW_PUBLISH),
    Order(KillPoint.CATALOG_NAME_PRODUCER, "after"),
    Order(KillPoint.VIEW_PUBLISH, "after"),
    *both(KillPoint.LOG_COMMIT),
]
DELETING_VIEWS: Final = [
    Order(KillPoint.VIEW_REMOVE),
    Order(KillPoint.FOLLOWER_PART_WITH),
    Order(KillPoint.STREAM_DROP, "after"),
    Order(KillPoint.CATALOG_WITHDRAW, "after"),
    Order(KillPoint.VIEW_REMOVE, "after"),
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
"""All of them: each order of a sweep kills a peer, or the sweep fails."""
