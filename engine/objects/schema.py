"""Schemas: the typed fields of a stream, and their Arrow form.

A tuple is `stime` (int64, microseconds UTC) and the schema's fields. In the log of a source
stream there is also `seq` (int64): the number its leader gave the tuple on arrival; it breaks ties
of stime.
"""

from __future__ import annotations

import re
from collections import Counter
from enum import StrEnum
from functools import cache
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from medusa.overlay.errors import InvalidInputError

if TYPE_CHECKING:
    import pyarrow as pa  # imported late: most commands see no tuples, and start without it

STIME: Final = "stime"
SEQ: Final = "seq"
REVISED_STIME: Final = "revised_stime"
REVISED_SEQ: Final = "revised_seq"
REVISION_KIND: Final = "revision_kind"
SCENARIO: Final = "revision_scenario"
REVISION: Final = frozenset({REVISED_STIME, REVISED_SEQ, REVISION_KIND, SCENARIO})
"""Columns of revisions: see `medusa.engine.streams.revisions.columns`."""
RESERVED: Final = frozenset({STIME, SEQ}) | REVISION

DELETED: Final = "deleted"
"""The field of a table, a boolean, that says that its tuple's key is deleted."""

BEGINNING: Final = -(2**63)
"""The boundary that is before every tuple, microseconds."""
END: Final = 2**63 - 1
"""The boundary of a stream that has ended: no tuple follows."""

MAX_FIELDS: Final = 256
"""Fields in one schema; wider tuples belong in several streams."""

MAX_KEY: Final = 16
"""Fields in a key: each is looked up and compared."""

MAX_STRING: Final = 2**20
"""The largest size that a string may declare, bytes."""


class FieldType(StrEnum):
    """The types of the papers' schemas, and `bool`."""

    BOOL = "bool"
    BYTE = "byte"
    SHORT = "short"
    INT = "int"
    LONG = "long"
    SINGLE = "single"
    DOUBLE = "double"
    STRING = "string"
    TIMESTAMP = "timestamp"

    @property
    def arrow(self) -> pa.DataType:
        return _arrow_types()[self]


@cache
def _arrow_types() -> dict[FieldType, pa.DataType]:
    import pyarrow as pa

    return {
        FieldType.BOOL: pa.bool_(),
        FieldType.BYTE: pa.int8(),
        FieldType.SHORT: pa.int16(),
        FieldType.INT: pa.int32(),
        FieldType.LONG: pa.int64(),
        FieldType.SINGLE: pa.float32(),
        FieldType.DOUBLE: pa.float64(),
        FieldType.STRING: pa.string(),
        FieldType.TIMESTAMP: pa.timestamp("us", tz="UTC"),
    }


class Field(Struct, frozen=True):
    """One field.

    Attributes:
        size: most bytes of UTF-8 in a string; None for no bound.
        nullable: whether a tuple may leave it null.
    """

    name: str
    type: FieldType
    size: int | None = None
    nullable: bool = False


class Schema(Struct, frozen=True):
    """A named list of fields.

    Attributes:
        name: `medusa://participant/path`.
        time: the field that gives a source tuple its stime (timestamp; long of microseconds; int,
            single or double of seconds), or None: the time of arrival.
        key: the fields that tell tuples apart. A source stream with a key can be revised: the
            newest tuple of a key is deleted or replaced. A null equals no other null.
    """

    name: str
    fields: tuple[Field, ...]
    time: str | None = None
    key: tuple[str, ...] = ()

    def field(self, name: str) -> Field | None:
        return next((field for field in self.fields if field.name == name), None)

    @property
    def deletes(self) -> bool:
        """Whether tuples of this schema, if they belong to a table, may say that a key is
        deleted."""
        field = self.field(DELETED)
        return field is not None and field.type is FieldType.BOOL

    @property
    def payload(self) -> pa.Schema:
        """Arrow's schema of the fields alone, as a client posts them."""
        import pyarrow as pa

        return pa.schema([pa.field(f.name, f.type.arrow, f.nullable) for f in self.fields])

    @property
    def derived(self) -> pa.Schema:
        """Arrow's schema of `stime` and the fields: of the log of a task's output."""
        import pyarrow as pa

        return self.payload.insert(0, pa.field(STIME, pa.int64(), nullable=False))

    @property
    def source(self) -> pa.Schema:
        """Arrow's schema of `stime`, `seq` and the fields: of the log of a source stream."""
        import pyarrow as pa

        return self.derived.insert(1, pa.field(SEQ, pa.int64(), nullable=False))


_FIELD_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")

_TIME_TYPES: Final = frozenset(
    {FieldType.TIMESTAMP, FieldType.LONG, FieldType.INT, FieldType.SINGLE, FieldType.DOUBLE}
)


def check_schema(schema: Schema) -> None:
    """Check all but the schema's own name.

    Raises:
        InvalidInputError: names the field and the reason.
    """
    if not 0 < len(schema.fields) <= MAX_FIELDS:
        raise InvalidInputError(
            f"it has {len(schema.fields)} fields; 1 to {MAX_FIELDS} are allowed"
        )
    for field in schema.fields:
        _check_field(field)
    # Spark and others that read the log ignore case
    for name, times in Counter(field.name.lower() for field in schema.fields).items():
        if times > 1:
            raise InvalidInputError(f"field {name} occurs {times} times (case does not count)")
    if schema.time is not None:
        _check_time(schema, schema.time)
    _check_key(schema)


def wrong_name(name: str) -> str:
    """Why a field cannot have that name; "": it can."""
    if _FIELD_NAME.fullmatch(name) is None:
        return "a name has 1 to 64 letters, digits and underscores, and does not begin with a digit"
    return "the name is reserved" if name.lower() in RESERVED else ""


def _check_field(field: Field) -> None:
    if reason := wrong_name(field.name):
        shown = field.name if field.name.lower() in RESERVED else f"{field.name[:80]!a}"
        raise InvalidInputError(f"field {shown}: {reason}")
    if field.size is not None and field.type is not FieldType.STRING:
        raise InvalidInputError(f"field {field.name}: only strings have a size")
    if field.size is not None and not 0 < field.size <= MAX_STRING:
        raise InvalidInputError(f"field {field.name}: size {field.size} is not 1 to {MAX_STRING}")


def _check_time(schema: Schema, time: str) -> None:
    field = schema.field(time)
    if field is None:
        raise InvalidInputError(f"time field {time[:80]!a} is not among the fields")
    if field.type not in _TIME_TYPES or field.nullable:
        raise InvalidInputError(
            f"time field {time} must be a timestamp, a long of microseconds, or an int, a single "
            "or a double of seconds, and not nullable"
        )


def _check_key(schema: Schema) -> None:
    if len(schema.key) > MAX_KEY:
        raise InvalidInputError(f"a key of {len(schema.key)} fields; at most {MAX_KEY} are allowed")
    for name in schema.key:
        if schema.field(name) is None:
            raise InvalidInputError(f"key field {name[:80]!a} is not among the fields")
        if schema.key.count(name) > 1:
            raise InvalidInputError(f"key field {name} occurs twice")
