"""Every name that `import medusa` offers; `medusa/__init__.py` imports this module at the first use
of one."""

from __future__ import annotations

from importlib import metadata

from medusa.engine.api.messages import ObjectDescription, Objects
from medusa.engine.language.modification import BoxChange, Modified
from medusa.engine.language.python.building import Groups, Stream, Windows, WindowsOfTuples, stream
from medusa.engine.language.python.network import query
from medusa.engine.objects.alteration import Alteration
from medusa.engine.objects.availability import Availability, AvailabilityRequest, Mode, Recovery
from medusa.engine.objects.definitions import Idle, StreamDefinition, StreamEntry
from medusa.engine.objects.query import (
    Aggregate,
    AggregateCall,
    Contiguity,
    Cumulate,
    Filter,
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
from medusa.engine.objects.schema import BEGINNING, END, Field, FieldType, Schema
from medusa.engine.objects.view import Last, Range, Recent, View
from medusa.engine.replication.moves.messages import MoveRecord
from medusa.engine.replication.records.status import EventRecord, PeerStatus, Snapshot
from medusa.engine.streams.messages import StreamStatus
from medusa.engine.streams.revisions.corrections import Kind
from medusa.engine.tasks.status import TaskStatus
from medusa.overlay.errors import (
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
from medusa.overlay.troubles import Reason, Trouble
from medusa.tools.client.async_client import (
    AsyncMedusaClient,
    Change,
    CorrectedSubscription,
    Corrections,
    Endpoint,
    Epoch,
    Subscription,
    open_medusa,
)
from medusa.tools.client.blocking import BlockingFollowing, BlockingSubscription, MedusaClient
from medusa.tools.rows.given_rows import Rows

__version__ = metadata.version("medusa-federation")

__all__ = [
    "BEGINNING",
    "END",
    "Aggregate",
    "AggregateCall",
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
        _public.__module__ = "medusa"  # tracebacks show the name `medusa.NotFoundError`
