"""How far a source stream's time may be ahead of the clock.

One row in a wrong unit would take the boundary far ahead, and all later rows would be late for
ever, as a boundary is a promise. So a post with such a row, or such a promise, is refused.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from engine.objects.definitions import StreamDefinition
from engine.objects.schema import END, FieldType, Schema
from overlay.errors import InvalidInputError

_UNITS: Final = {1_000: "milliseconds", 1_000_000: "microseconds", 1_000_000_000: "nanoseconds"}
"""Units, by their number in a second."""

_PLAUSIBLE_US: Final = 20 * 366 * 86_400 * 1_000_000
"""Twenty years: a time that is so near to now in another unit was probably meant in that unit."""

_SPANS: Final = (("year", 31_556_952), ("day", 86_400), ("hour", 3_600), ("minute", 60))


def check_ahead(
    times: pa.Array | None,
    promise: int | None,
    schema: Schema,
    stream: StreamDefinition | None,
    now_us: int,
) -> None:
    """Refuse a post with a time that is too far ahead of the clock.

    Args:
        times: of the rows of a post, microseconds; null: of that row, None: of the whole post none.
        promise: its boundary. now_us: the clock's time, microseconds.

    Raises:
        InvalidInputError: it goes too far; names row and field.
    """
    if stream is None or stream.max_ahead_us is None:
        return
    latest = now_us + stream.max_ahead_us
    row = -1 if times is None else pc.index(pc.greater(times, latest), True).as_py()
    if times is not None and row >= 0:
        stime = times[row].as_py()
        raise InvalidInputError(
            f"row {row + 1}: {schema.time} is {_in_words(stime - now_us)} ahead of the clock of "
            f"the stream's leader{_unit_meant(stime, now_us, schema)} {_allowed(stream)}"
        )
    if promise is not None and latest < promise < END:
        raise InvalidInputError(
            f"boundary {promise} is {_in_words(promise - now_us)} ahead of the clock of the "
            f"stream's leader: boundaries are microseconds since 1970; {_allowed(stream)}"
        )


def _allowed(stream: StreamDefinition) -> str:
    assert stream.max_ahead_us is not None, "there is a limit"
    allowed = _in_words(stream.max_ahead_us)
    return (
        f"{stream.name} takes {allowed} at most: mend that time; where such times are right, "
        f"`medusa stream alter {stream.name} --max-ahead SECONDS`, or none if they are generated "
        "or recorded ones"
    )


def _unit_meant(stime: int, now_us: int, schema: Schema) -> str:
    """The unit in which that would be about now, if any, as a question."""
    field = schema.field(schema.time or "")
    number = field is not None and field.type is FieldType.LONG
    per_second = 1_000_000 if number else 1
    for many, unit in _UNITS.items():
        if many > per_second and abs(stime * per_second // many - now_us) < _PLAUSIBLE_US:
            return f": is it in {unit}, and not in {'micro' if number else ''}seconds?"
    return ";"


def _in_words(microseconds: int) -> str:
    seconds = microseconds / 1e6
    for word, span in _SPANS:
        if seconds >= span:
            count = round(seconds / span)
            return f"{count:,} {word}{'s' if count != 1 else ''}"
    return f"{seconds:.3g} s"
