"""A subscriber takes every epoch once over any number of calls, and says what to keep for it."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from medusa.engine.objects.schema import BEGINNING, END
from medusa.engine.streams.messages import Acknowledge, Subscribe, Tuples
from medusa.engine.streams.reading.subscriber import Subscriber

SCHEMA = pa.schema([("stime", pa.int64()), ("seq", pa.int64())])


def rows(*stimes: int) -> pa.Table:
    return pa.table({"stime": stimes, "seq": stimes}, schema=SCHEMA)


@given(
    st.lists(st.integers(1, 5), max_size=8), st.lists(st.integers(0, 3), max_size=6), st.booleans()
)
def test_every_epoch_comes_once_over_any_calls(
    sizes: list[int], breaks: list[int], acknowledges: bool
) -> None:
    """The other side sends each epoch in two parts, from the boundary that the call asks for; call
    number n breaks after `breaks[n]` parts."""
    upto = [10 * number for number in range(1, len(sizes) + 1)]
    reader = Subscriber("s", SCHEMA, 0, name="me")
    taken: list[tuple[int, int]] = []
    for parts in (*breaks, 2 * len(sizes) + 2):
        request = reader.ask()
        assert request.after == reader.boundary
        kept = request.after if request.keep is None else request.keep
        assert kept == reader.acknowledged <= request.after
        left = parts
        for end, size in zip(upto, sizes, strict=True):
            if end <= request.after:
                continue
            first = rows(*range(end - 9, end - 9 + size))
            for table, boundary in ((first, None), (rows(end), end)):
                if left:
                    left -= 1
                    message = Tuples(end - 10, boundary, table.num_rows)
                    epoch = reader.take(message, table)
                    if epoch is not None:
                        taken.append((epoch.upto, epoch.table.num_rows))
        if acknowledges:
            said = reader.acknowledge(reader.boundary)
            assert said in {None, Acknowledge(reader.boundary)}
            assert reader.acknowledge(reader.boundary) is None
    assert taken == [(end, size + 1) for end, size in zip(upto, sizes, strict=True)]
    assert not reader.held


def test_a_subscriber_of_tentative_tuples_says_how_far_it_has_them() -> None:
    reader = Subscriber("s", SCHEMA, 0, seen=30, acknowledged=-5, name="me")
    assert reader.ask(7) == Subscribe("s", 0, "me", 7, keep=-5, tentative=30)
    assert reader.take(Tuples(30, 40, 1, tentative=True), rows(35)) is not None
    assert reader.ask().tentative == 40
    assert reader.take(Tuples(0, END, 1), rows(20)) is not None
    assert reader.is_over
    assert reader.acknowledge(END) == Acknowledge(END)


def test_a_reader_from_the_beginning_leaves_to_the_producer_where_that_is() -> None:
    """A view begins later than the log behind it, which drops what the view does not show."""
    assert Subscriber("s", SCHEMA, BEGINNING).ask().keep is None
