"""The rules of a modification, without a peer: parameters, documents, boundaries."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Sequence
from typing import TypeVar
from xml.etree import ElementTree

import msgspec
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from modified_queries import chains
from reference_networks import SOURCES, queries

from medusa.engine.language.check import MAX_BOXES, check_query
from medusa.engine.language.modification import (
    MAX_PARAMETERS,
    BoxChange,
    Modification,
    modified_query,
    read_modification,
)
from medusa.engine.objects.query import Aggregate, AggregateCall, Box, Filter, Query, Union
from medusa.engine.objects.schema import BEGINNING, END
from medusa.engine.operators.registry import operator_of
from medusa.engine.operators.shared.step import Windows
from medusa.engine.tasks.plan import Task, plan
from medusa.engine.tasks.query_editions import Footing, earliest
from medusa.engine.xml.tree import MAX_TEXT
from medusa.overlay.errors import ConflictError, InvalidInputError

T = TypeVar("T")

COUNT = (AggregateCall("count", None, "n"),)


def one(*boxes: Box) -> Query:
    return Query("q", boxes)


def ask(query: Query, box: str, *parameters: tuple[str, str]) -> Query:
    return modified_query(query, [BoxChange(box, parameters)])


def outcome(call: Callable[[], T]) -> tuple[T | None, str]:
    """Return the result, or the message of the refusal."""
    try:
        return call(), ""
    except InvalidInputError as error:
        return None, str(error)


# -- parameters ------------------------------------------------------------------------------------


@given(queries() | chains(), st.data())
def test_a_box_that_is_given_its_own_parameters_is_itself(
    query: Query, data: st.DataObject
) -> None:
    changes = []
    for box in query.boxes:
        own = operator_of(box).parameters()
        if own and data.draw(st.booleans()):
            some = data.draw(st.lists(st.sampled_from(own), min_size=1, unique=True))
            changes.append(BoxChange(box.name, tuple(some)))
    if changes:
        assert modified_query(query, data.draw(st.permutations(changes))) == query


@settings(max_examples=300)
@given(queries(), st.data())
def test_any_text_is_a_parameter_or_refused_with_its_box_and_without_a_line(
    query: Query, data: st.DataObject
) -> None:
    box = data.draw(st.sampled_from(query.boxes))
    known = st.sampled_from([name for name, _ in operator_of(box).parameters()] or ["x"])
    pair = st.tuples(known | st.text(), st.text())
    parameters = data.draw(st.lists(pair, min_size=1, max_size=3))
    found, refusal = outcome(lambda: ask(query, box.name, *parameters))
    if found is None:
        assert refusal.startswith(f"box {box.name!a}: ")
        assert "line 0" not in refusal
        event("refused")
        return
    assert [each.name for each in found.boxes] == [each.name for each in query.boxes]
    pairs = zip(found.boxes, query.boxes, strict=True)
    assert all(now == before for now, before in pairs if now.name != box.name)
    event("the same" if found == query else "other")


SORTS = one(Filter("f", "s", ("x", "y"), ("a > 1", "b > 1")))


def test_the_papers_other_word_for_a_predicate() -> None:
    wanted = one(Filter("f", "s", ("x", "y"), ("a > 1", "b > 7")))
    assert ask(SORTS, "f", ("nexpression.1", "b > 7")) == wanted
    with pytest.raises(InvalidInputError, match=r"box 'f': parameter 'nexpression.1' occurs twice"):
        ask(SORTS, "f", ("expression.1", "b > 7"), ("nexpression.1", "b > 7"))


@pytest.mark.parametrize(
    ("size", "advance", "parameters", "wanted"),
    [
        (60, 60, {"window-size": "20"}, (20, 20)),  # the windows still do not overlap
        (60, 60, {"window-size": "60", "advance": "15"}, (60, 15)),
        (60, 60, {"advance": "20"}, (60, 20)),
        (60, 20, {"window-size": "90"}, (90, 20)),
        (60, 20, {"window-size": "20"}, (20, 20)),
        (60, 20, {"advance": "60"}, (60, 60)),
    ],
)
def test_windows_that_do_not_overlap_stay_so_unless_a_parameter_changes_that(
    size: int, advance: int, parameters: dict[str, str], wanted: tuple[int, int]
) -> None:
    before = Aggregate("w", "s", "x", size * 10**6, advance * 10**6, (), COUNT)
    (box,) = ask(one(before), "w", *parameters.items()).boxes
    size, advance = wanted
    assert box == msgspec.structs.replace(before, size_us=size * 10**6, advance_us=advance * 10**6)


def test_windows_may_not_come_to_leave_gaps() -> None:
    query = one(Aggregate("w", "s", "x", 60, 20, (), COUNT))
    with pytest.raises(InvalidInputError, match=r"box 'w'.*would leave gaps"):
        ask(query, "w", ("window-size", "0.00001"))
    (box,) = ask(query, "w", ("window-size", "0.00001"), ("advance", "0.00002")).boxes
    assert isinstance(box, Aggregate)
    assert (box.size_us, box.advance_us) == (10, 20), "but where it is said"


@pytest.mark.parametrize(
    ("parameters", "wanted"),
    [
        ([("group-by", "")], {"group_by": ()}),
        ([("order-on-field", "")], {"order_on": ""}),
        ([("group-by", "b , a")], {"group_by": ("b", "a")}),
        ([("timeout", "0"), ("drop-empty-outputs", "1")], {}),  # the parameter states the default
    ],
)
def test_an_empty_parameter_resets_the_value(
    parameters: list[tuple[str, str]], wanted: dict[str, object]
) -> None:
    before = Aggregate("w", "s", "x", 60, 60, ("a",), COUNT, "stime")
    (box,) = ask(one(before), "w", *parameters).boxes
    assert box == msgspec.structs.replace(before, **wanted)


def test_a_box_without_parameters_is_refused() -> None:
    query = one(Union("u", ("s", "r"), "x"))
    with pytest.raises(InvalidInputError, match=r"box 'u': parameter 'a': unknown .*are none"):
        ask(query, "u", ("a", "1"))


def test_a_modification_has_limits_of_parameters_and_boxes() -> None:
    for number, reason in [
        (MAX_PARAMETERS, "unknown parameter 'p0'"),
        (MAX_PARAMETERS + 1, f"box 'f': say 1 to {MAX_PARAMETERS} parameters"),
    ]:
        with pytest.raises(InvalidInputError, match=reason):
            ask(SORTS, "f", *((f"p{n}", "1") for n in range(number)))
    many = one(*(Filter(f"f{n}", "s", (f"x{n}",), ("a > 1",)) for n in range(MAX_BOXES + 1)))
    changes = [BoxChange(box.name, (("expression.0", "a > 2"),)) for box in many.boxes]
    assert ask(many, "f0", ("expression.0", "a > 1")) == many
    made = modified_query(many, changes[:MAX_BOXES])
    assert sum(now != before for now, before in zip(made.boxes, many.boxes, strict=True)) == 256
    with pytest.raises(InvalidInputError, match="which box is to be modified"):
        modified_query(many, changes)


# -- documents -------------------------------------------------------------------------------------

texts = st.text(st.characters(exclude_categories=("Cs", "Cc"), exclude_characters="\ufffe\uffff"))
texts |= st.sampled_from(["conns > 7 and s <> '\"&\t\n\r'", "0.25", ""])
box_changes = st.builds(
    BoxChange, texts, st.lists(st.tuples(texts, texts), min_size=1, max_size=3).map(tuple)
)


@given(
    st.lists(box_changes, min_size=1, max_size=3),
    st.none() | st.integers(BEGINNING, END),
    st.sampled_from(["borealis", "medusa"]),
    st.data(),
)
def test_a_document_says_what_was_written(
    changes: list[BoxChange], at: int | None, root: str, data: st.DataObject
) -> None:
    tree = ElementTree.Element(root)
    with_time = data.draw(st.sampled_from(range(len(changes))))
    for number, change in enumerate(changes):
        node = ElementTree.SubElement(tree, "modify", box=change.box)
        if at is not None and (number == with_time or data.draw(st.booleans())):
            node.set("at", str(at))
        for name, value in change.parameters:
            word = data.draw(st.sampled_from(["parameter", "param"]))
            ElementTree.SubElement(node, word, name=name, value=value)
    whole = tree[0] if len(changes) == 1 and data.draw(st.booleans()) else tree
    text = ElementTree.tostring(whole, "unicode")
    assert read_modification(text, int) == Modification(tuple(changes), at)


def test_a_time_may_be_written_in_several_ways() -> None:
    modify = '<modify box="f" at="{}"><param name="a" value="1"/></modify>'
    text = f"<medusa>{modify.format('7')}{modify.format('0x7')}</medusa>"
    assert read_modification(text, lambda said: int(said, 0)).at == 7


SOME = '<param name="a" value="1"/>'


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (f"<query>{SOME}</query>", "line 1: <query>: expected <modify>, or several"),
        ("<medusa name='x'/>", "line 1: <medusa>: unknown attribute 'name'"),
        (f"<modify box='f' when='1'>{SOME}</modify>", "line 1: <modify>: unknown attribute 'when'"),
        (
            f"<medusa>\n<modify box='f'>\n<modify box='g'>{SOME}</modify></modify></medusa>",
            "line 3: <modify>: a <modify> has only <parameter>",
        ),
        (
            f"<modify box='f'>\n<param name='a' value='1'>\n{SOME}</param></modify>",
            "line 3: <param>: not expected within <param>",
        ),
        (
            "<modify box='f'><param name='a' value='1' unit='s'/></modify>",
            "line 1: <param>: unknown attribute 'unit'",
        ),
        (f"<modify box='f'>{SOME}or so</modify>", "line 1: text 'or so' between elements"),
        (f"<modify box='f'>{SOME}</modify>{' ' * MAX_TEXT}", "line 1: the document has"),
    ],
)
def test_other_documents_are_refused_with_their_line(text: str, reason: str) -> None:
    with pytest.raises(InvalidInputError) as raised:
        read_modification(text, int)
    assert str(raised.value).startswith(reason)


@settings(max_examples=300)
@given(st.data())
def test_a_damaged_document_is_read_or_refused_with_a_line(data: st.DataObject) -> None:
    text = f'<borealis>\n<modify box="f" at="12">{SOME}</modify>\n<modify box="g">{SOME}</modify>'
    text += "\n</borealis>"
    start = data.draw(st.integers(0, len(text)))
    odd = st.sampled_from(["<", "/>", '"', "&#0;", "<modify>", ' at="13"', "<!DOCTYPE x>"])
    text = text[:start] + data.draw(odd | st.text(max_size=3)) + text[start:]

    def parse(said: str) -> int:
        with contextlib.suppress(ValueError):
            return int(said)
        raise InvalidInputError("no time")

    found, refusal = outcome(lambda: read_modification(text, parse))
    assert refusal.startswith("line ") if found is None else len(found.changes) == 2
    event("refused" if found is None else "read")


# -- boundaries ------------------------------------------------------------------------------------


def reached(tasks: Sequence[Task], names: Collection[str]) -> set[str]:
    """Return these boxes and all boxes that read their results, directly or not."""
    found = set(names)
    for _ in tasks:
        found |= {task.output for task in tasks if found & set(task.inputs)}
    return found


def holds(tasks: Sequence[Task], names: Collection[str], footing: Footing, at: int) -> bool:
    """Check the promises about a boundary, window by window, around it."""
    changes = reached(tasks, names)
    for task in tasks:
        window, near = task.windows, task.near
        if near is not None:
            # the oldest tuple of which the first new result may be made
            oldest = at + 1 - near.horizon_us()
            if changes & set(task.inputs) and oldest <= at:
                return False  # the window would mix tuples of both editions
            known = max(footing.usable.get(name, BEFORE) for name in task.inputs)
            if task.name in names and oldest <= known:
                return False  # the window would lack a tuple
        if window is None:
            continue
        if changes & set(task.inputs):
            if any(first <= at < last for first, last in windows(window, at, at)):
                return False  # the window would hold tuples of both editions
        elif task.name in names:
            known = max(footing.usable.get(name, BEFORE) for name in task.inputs)
            if any(last > at and first <= known for first, last in windows(window, known, at)):
                return False  # the window would not be whole
    return True


def windows(window: Windows, one: int, other: int) -> list[tuple[int, int]]:
    """Return the first and last microsecond of the windows around both times, and between them."""
    span, advance = 2 * window.size_us, window.advance_us
    numbers = range((min(one, other) - span) // advance, (max(one, other) + span) // advance)
    begins = [number * advance for number in numbers]
    return [(begin, begin + window.size_us - 1) for begin in begins]


times = st.integers(-60, 60)
BEFORE = -1000
"""A time before all tuples."""


@st.composite
def stacks(draw: st.DrawFn) -> Query:
    """Draw windows over windows over a filter, over both sources, or beside each other."""
    streams, boxes = ["kept"], list[Box]([Filter("f", "s0", ("kept",), ("a > 1",))])
    boxes.append(Union("u", ("s0", "s1"), "both"))
    for number in range(draw(st.integers(1, 3))):
        size = draw(st.sampled_from([1, 4, 6, 10, 30]))
        advance = draw(st.sampled_from([size, size, size, (size + 1) // 2]))
        source = draw(st.sampled_from(["both", *streams]))
        streams.append(f"x{number}")
        boxes.append(Aggregate(f"w{number}", source, streams[-1], size, advance, (), COUNT))
    return Query("q", tuple(boxes), tuple(streams))


@settings(max_examples=300)
@given(stacks() | queries(), st.data())
def test_the_earliest_boundary_is_the_first_that_keeps_every_promise(
    query: Query, data: st.DataObject
) -> None:
    tasks = plan(query, check_query(query, SOURCES))
    outputs = [task.name for task in tasks]
    names = frozenset(data.draw(st.lists(st.sampled_from(outputs), min_size=1, max_size=2)))
    some = st.dictionaries(st.sampled_from([*SOURCES, *outputs]), times)
    given, usable = data.draw(some), data.draw(some)
    footing, least = Footing(given, usable), data.draw(times | st.just(BEGINNING))
    lower = max([least, *(given[name] for name in names if name in given)])
    if lower == BEGINNING:
        assert earliest(tasks, names, footing, least) == BEGINNING
        event("nothing is made yet")
        return
    span = range(
        lower, max(lower, 60 + 2 * 30) + 210 + 1
    )  # windows of 1, 7, 10 and 30 end together then
    found = next((at for at in span if holds(tasks, names, footing, at)), None)
    if found is None:
        with pytest.raises(InvalidInputError, match=r"overlapping windows|would mix"):
            earliest(tasks, names, footing, least)
        event("there is none")
        return
    assert earliest(tasks, names, footing, least) == found
    event("put off" if found > lower else "at once")


def chain(*sizes_us: int) -> tuple[Task, ...]:
    """Return a filter whose output is stored, and windows of these sizes over it."""
    boxes = [
        Aggregate(f"w{n}", "kept", f"x{n}", size, size, (), COUNT)
        for n, size in enumerate(sizes_us)
    ]
    query = Query("q", (Filter("f", "s0", ("kept",), ("a > 1",)), *boxes), ("kept",))
    return plan(query, check_query(query, SOURCES))


KEPT = frozenset({"kept"})


def test_several_windows_are_waited_for_until_they_end_together() -> None:
    tasks = chain(60, 70)
    assert earliest(tasks, KEPT, Footing({}, {}), -1) == -1
    assert earliest(tasks, KEPT, Footing({}, {}), 0) == 419
    assert earliest(tasks, KEPT, Footing({"kept": 420}, {}), 0) == 839
    assert earliest(tasks, KEPT, Footing({"x0": 420}, {}), 0) == 419, "who reads is not ahead"


def test_no_boundary_is_beyond_all_time() -> None:
    year = 366 * 86_400 * 1_000_000
    with pytest.raises(ConflictError, match="beyond all time"):
        earliest(chain(year, year - 1), KEPT, Footing({}, {}), 0)
    last = END - 1  # a window of one microsecond is no restriction
    assert earliest(chain(1), KEPT, Footing({"kept": last}, {}), 0) == last
    with pytest.raises(ConflictError, match="kept has ended"):
        earliest(chain(1), KEPT, Footing({"kept": END, "x0": 3}, {}), 0)


def test_a_stream_is_usable_from_the_later_of_two_boundaries_on() -> None:
    footing = Footing({"x": 1}, {"a": 5, "b": 7}).joined({"b": 6, "c": -3})
    assert footing == Footing({"x": 1}, {"a": 5, "b": 7, "c": -3})
    assert footing.joined({"b": 8}).usable == {"a": 5, "b": 8, "c": -3}
