"""Medusa for Python programs: define, post and subscribe, through a peer of your own.

    from medusa import MedusaClient

    with MedusaClient() as medusa:
        medusa.post_event("medusa://mit.edu/conns", rows)

`MedusaClient` is for programs without an event loop, `open_medusa` for those on asyncio or trio.
`docs/python.md` has examples. Names that are not in `__all__` may change without notice.
"""

from __future__ import annotations

from importlib import metadata

from engine.api.messages import ObjectDescription, Objects
from engine.language.modification import BoxChange, Modified
from engine.language.python.building import Groups, Stream, Windows, WindowsOfTuples, stream
from engine.language.python.network import query
from engine.objects.alteration import Alteration
from engine.objects.availability import Availability, AvailabilityRequest, Mode, Recovery
from engine.objects.definitions import Idle, StreamDefinition, StreamEntry
from engine.objects.query import (
    Aggregate,
    AggregateFunction,
    Contiguity,
    Cumulate,
    Filter,
    Function,
    Join,
    JoinKind,
    Map,
    Match,
    Measure,
    OrderBy,
    PatternStep,
    Query,
    QueryStatus,
    Rank,
    Sessions,
    Top,
    Totals,
    TupleWindows,
    Union,
    order_by,
)
from engine.objects.schema import BEGINNING, END, Field, FieldType, Schema
from engine.objects.view import Last, Range, Recent, View
from engine.replication.moves.messages import MoveRecord
from engine.replication.status import EventRecord, PeerStatus, Snapshot
from engine.streams.corrections import Kind
from engine.streams.messages import StreamStatus
from engine.tasks.status import TaskStatus
from overlay.errors import (
    BrokenError,
    BusyError,
    ClosedError,
    ConflictError,
    DamagedError,
    DeadlineError,
    DecodeError,
    InternalError,
    InvalidInputError,
    MedusaError,
    NotAuthorisedError,
    NotFoundError,
    NotRetainedError,
    RefusedError,
    SequenceGapError,
    StoppedError,
    StorageError,
    StorageFullError,
    UnavailableError,
    UntrustedError,
    WithdrawnError,
)
from overlay.troubles import Reason, Trouble
from tools.client.async_client import (
    AsyncMedusaClient,
    Change,
    CorrectedSubscription,
    Corrections,
    Endpoint,
    Epoch,
    Subscription,
    open_medusa,
)
from tools.client.blocking import BlockingFollowing, BlockingSubscription, MedusaClient
from tools.rows.given_rows import Rows

__version__ = metadata.version("medusa-federation")

__all__ = [
    "BEGINNING",
    "END",
    "Aggregate",
    "AggregateFunction",
    "Alteration",
    "AsyncMedusaClient",
    "Availability",
    "AvailabilityRequest",
    "BlockingFollowing",
    "BlockingSubscription",
    "BoxChange",
    "BrokenError",
    "BusyError",
    "Change",
    "ClosedError",
    "ConflictError",
    "Contiguity",
    "CorrectedSubscription",
    "Corrections",
    "Cumulate",
    "DamagedError",
    "DeadlineError",
    "DecodeError",
    "Endpoint",
    "Epoch",
    "EventRecord",
    "Field",
    "FieldType",
    "Filter",
    "Function",
    "Groups",
    "Idle",
    "InternalError",
    "InvalidInputError",
    "Join",
    "JoinKind",
    "Kind",
    "Last",
    "Map",
    "Match",
    "Measure",
    "MedusaClient",
    "MedusaError",
    "Mode",
    "Modified",
    "MoveRecord",
    "NotAuthorisedError",
    "NotFoundError",
    "NotRetainedError",
    "ObjectDescription",
    "Objects",
    "OrderBy",
    "PatternStep",
    "PeerStatus",
    "Query",
    "QueryStatus",
    "Range",
    "Rank",
    "Reason",
    "Recent",
    "Recovery",
    "RefusedError",
    "Rows",
    "Schema",
    "SequenceGapError",
    "Sessions",
    "Snapshot",
    "StoppedError",
    "StorageError",
    "StorageFullError",
    "Stream",
    "StreamDefinition",
    "StreamEntry",
    "StreamStatus",
    "Subscription",
    "TaskStatus",
    "Top",
    "Totals",
    "Trouble",
    "TupleWindows",
    "UnavailableError",
    "Union",
    "UntrustedError",
    "View",
    "Windows",
    "WindowsOfTuples",
    "WithdrawnError",
    "__version__",
    "open_medusa",
    "order_by",
    "query",
    "stream",
]

for _public in list(globals().values()):
    if isinstance(_public, type) and issubclass(_public, MedusaError):
        _public.__module__ = __name__  # as tracebacks show them: `medusa.NotFoundError`
