"""Streams with keys whose tuples are revised: their posts, and the expected results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

import msgspec
import pyarrow as pa
import trio
from engine_peers import DEADLINE_S, Place, rows, schema_of

from medusa.engine.objects.definitions import ANY, StreamDefinition
from medusa.engine.objects.query import Aggregate, AggregateCall
from medusa.engine.objects.schema import BEGINNING, REVISED_STIME, REVISION_KIND
from medusa.engine.streams.revisions.corrections import Kind
from medusa.tools.client.async_client import AsyncMedusaClient, Change, CorrectedSubscription


async def keyed_stream(
    client: AsyncMedusaClient, place: Place, path: str = "s", **options: object
) -> str:
    """Create a stream of `schema_of` whose key is its time. Every member may read it, unless
    `readers` names others."""
    schema = msgspec.structs.replace(schema_of(place.participant, "keyed"), key=("t",))
    await client.create_schema(schema)
    name = place.name(path)
    await client.create_stream(
        StreamDefinition(name, schema.name, **{"readers": (ANY,), **options})  # type: ignore[arg-type]
    )
    return name


def deletions(times: Iterable[int]) -> pa.Table:
    times = list(times)
    return pa.table({REVISION_KIND: ["DELETION"] * len(times), "t": times})


def replacements(pairs: Iterable[tuple[int, int]]) -> pa.Table:
    table = rows(pairs)
    return table.append_column(REVISION_KIND, pa.array(["REPLACEMENT"] * table.num_rows))


def changes_of(table: pa.Table) -> list[tuple[int, str, int, int]]:
    """Return (position, kind, stime of the tuple, its value) of each change."""
    names = ("stime", REVISION_KIND, REVISED_STIME, "value")
    return list(zip(*(table.column(name).to_pylist() for name in names), strict=True))


def counted(name: str, source: str, out: str, size_us: int = 100) -> Aggregate:
    """Return the number of tuples, and the sum of their values, per window."""
    return Aggregate(
        name,
        source,
        out,
        size_us,
        size_us,
        (),
        (AggregateCall("count", None, "n"), AggregateCall("sum", "value", "total")),
    )


def logged(place: Place, path: str, variant: str = "") -> pa.Table:
    log = place.state(path, variant).log
    epochs = []
    after = log.start
    while (epoch := log.reader.read(after)) is not None:
        epochs.append(epoch.table)
        after = epoch.upto
    return pa.concat_tables([log.schema.empty_table(), *epochs])


class ClientCopy:
    """A stream as it appears to a client that applies every change."""

    def __init__(self) -> None:
        self.tuples: Counter[tuple[object, ...]] = Counter()
        self.kinds: list[Kind] = []
        self.boundary = BEGINNING

    def apply(self, change: Change) -> None:
        found = Counter(zip(*(c.to_pylist() for c in change.table.columns), strict=True))
        self.boundary = change.boundary
        if change.kind is not Kind.INSERTION or found:
            self.kinds.append(change.kind)
        match change.kind:
            case Kind.INSERTION | Kind.TENTATIVE:
                self.tuples += found
            case Kind.DELETION:
                assert found <= self.tuples
                self.tuples -= found
            case Kind.REPLACEMENT:
                for row in found:
                    (before,) = [each for each in self.tuples if each[:2] == row[:2]]
                    del self.tuples[before]
                self.tuples += found
            case Kind.UNDO:
                state = {t: n for t, n in self.tuples.items() if not self._within(t, change)}
                self.tuples = Counter(state)
            case Kind.REC_DONE:
                pass

    @staticmethod
    def _within(row: tuple[object, ...], change: Change) -> bool:
        assert isinstance(row[0], int)
        return change.after < row[0] <= change.upto

    async def follow(self, subscription: CorrectedSubscription, upto: int) -> None:
        with trio.fail_after(DEADLINE_S):
            while self.boundary < upto:
                self.apply(await anext(subscription))


def window_of(start: int, n: int, total: int, size_us: int = 100) -> tuple[object, ...]:
    begins = datetime.fromtimestamp(0, UTC) + timedelta(microseconds=start)
    return (start + size_us - 1, begins, n, total)
