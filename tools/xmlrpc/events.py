"""Events: structs of a tuple's fields, as clients of the first paper receive them."""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterator
from typing import Final

import pyarrow as pa

from medusa.engine.objects.schema import BEGINNING, END, STIME, Field, FieldType, Schema
from medusa.engine.streams.log.recent import Epoch
from medusa.overlay.errors import InvalidInputError
from medusa.tools.rows.columns import to_payload
from medusa.tools.rows.given_rows import to_table
from medusa.tools.rows.row_output import readable
from medusa.tools.xmlrpc.values import Value

BATCH_VALUES: Final = 50_000
"""Fields of tuples in one batch: a few megabytes of XML, unless texts are long."""

WHOLE: Final = frozenset({FieldType.BYTE, FieldType.SHORT, FieldType.INT, FieldType.LONG})
"""Types whose values a client may write as the text of a number."""

_DIGITS: Final = re.compile(r"[+-]?[0-9]{1,19}")

EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


def table_of(events: list[dict[str, Value]], schema: Schema) -> pa.Table:
    """The events as the tuples of a post.

    Raises:
        InvalidInputError: an event does not fit the schema; names its row, from 1, and the field.
    """
    rows = [
        {name: _given(value, schema.field(name)) for name, value in event.items()}
        for event in events
    ]
    return to_payload(to_table(rows, schema), schema, 1, ignore_extra=None)


def _given(value: Value, field: Field | None) -> Value:
    """The value in one form for all events of a post. Clients write one type in several forms,
    because XML-RPC has only 32 bits, no fractions of seconds, and not every text."""
    match value:
        case bytes():
            try:
                return value.decode()
            except UnicodeDecodeError:
                text = "base64 that is no UTF-8: fields are texts, not bytes"
                raise InvalidInputError(text) from None
        case datetime.datetime():
            return value.strftime("%Y-%m-%dT%H:%M:%SZ")
        case str() if field is not None and field.type in WHOLE and _DIGITS.fullmatch(value):
            return int(value)
        case _:
            return value


def batches(stream: str, epoch: Epoch, *, most: int = BATCH_VALUES) -> Iterator[dict[str, Value]]:
    """Split an epoch into structs of `receive_events`: each has all tuples up to its own boundary
    `upto`, and at most `most` values.

    Raises:
        InvalidInputError: tuples of one stime have more.
    """
    table = epoch.table
    rows = max(1, most // table.num_columns)
    stimes = table.column(STIME)
    after, start = epoch.after, 0
    while table.num_rows - start > rows:
        end = start + rows
        while end > start and stimes[end - 1] == stimes[end]:
            end -= 1
        if end == start:
            raise InvalidInputError(
                f"{stream}: more than {rows:,} tuples of one stime: XML-RPC carries no more at a "
                "time; subscribe with `import medusa`"
            )
        upto = int(stimes[end - 1].as_py())
        yield _batch(stream, after, upto, table.slice(start, end - start))
        after, start = upto, end
    yield _batch(stream, after, epoch.upto, table.slice(start))


def _batch(stream: str, after: int, upto: int, table: pa.Table) -> dict[str, Value]:
    events: list[Value] = list(readable(table).to_pylist())
    return {"stream": stream, "after": after, "upto": upto, "events": events}


def no_events(stream: str, after: int) -> dict[str, Value]:
    """The answer of `receive_events` if there is no later boundary yet."""
    return {"stream": stream, "after": after, "upto": after, "events": []}


def boundary_of(value: Value, default: int) -> int:
    """A boundary: microseconds as a whole number or as the text of one, or a moment.

    Raises:
        InvalidInputError: it is none of them.
    """
    match value:
        case None:
            return default
        case bool():
            pass
        case int():
            return value
        case datetime.datetime():
            return (value - EPOCH) // datetime.timedelta(microseconds=1)
        case str() if _DIGITS.fullmatch(value) and BEGINNING <= int(value) <= END:
            return int(value)
        case _:
            pass
    raise InvalidInputError(
        "a boundary is microseconds since 1970, as i8 or as text, or a dateTime.iso8601 in UTC"
    )
