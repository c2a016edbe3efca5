"""Views, and queries over the past, in both dialects of XML."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from medusa.engine.language.xml.writing import query_as_xml
from medusa.engine.objects.query import Filter, Query
from medusa.engine.objects.schema import BEGINNING, END
from medusa.engine.objects.view import Last, Range, Recent, View
from medusa.engine.reading import read_document
from medusa.overlay.errors import InvalidInputError

BASE = "medusa://mit.edu/"


def view(inner: str, attributes: str = "") -> str:
    """Return a document of one view; its content begins on line 2."""
    head = f'<connection_point_view name="v" stream="s"{attributes}>'
    return f"{head}\n{inner}\n</connection_point_view>"


@pytest.mark.parametrize(
    ("text", "shows", "frozen", "order_on"),
    [
        (view('<size value="100"/>'), Last(100), False, ""),
        (view('<size value="100"/>', ' frozen="1"'), Last(100), True, ""),
        (view('<order field="ts"/><size value="1.5"/>'), Recent(1_500_000), False, "ts"),
        (view('<size value="60"/><order field="ts"/>'), Recent(60_000_000), False, "ts"),
        (view('<range start="10" end="20.5"/>'), Range(10_000_000, 20_500_000), True, ""),
        (
            view('<order field="ts"/><range start="1" end="2"/>'),
            Range(10**6, 2 * 10**6),
            True,
            "ts",
        ),
    ],
)
@pytest.mark.parametrize("root", ["", "medusa", "borealis"])
def test_views_are_read_as_borealis_wrote_them(
    text: str, shows: object, frozen: bool, order_on: str, root: str
) -> None:
    document = read_document(f"<{root}>{text}</{root}>" if root else text, BASE)
    assert document.views == (
        View(f"{BASE}v", f"{BASE}s", shows, frozen, order_on),  # type: ignore[arg-type]
    )


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (view(""), "line 1: .*it shows nothing yet"),
        (view('<order field="ts"/>'), "line 1: .*it shows nothing yet"),
        (view('<size value="1"/>\n<range start="1" end="2"/>'), "line 3: <range>: .*not both"),
        (view('<size value="1"/>\n<size value="2"/>'), "line 3: <size>: it occurs twice"),
        (view('<order field=""/>\n<size value="2"/>'), "line 2: <order>: the field has no name"),
        (view('<size value="ten"/>'), "line 2: <size>: 'ten' is not a number of tuples"),
        (view('<size value="-1"/>'), "line 2: <size>: '-1' is not a number of tuples"),
        (view('<size value="0"/>'), "line 1: .*the last 0 tuples: 1 to"),
        (view('<size value="9999999999"/>'), "line 1: .*1 to 100000000 are allowed"),
        (view('<order field="t"/><size value="0"/>'), "line 1: .*the last 0 s"),
        (view('<order field="t"/><size value="1e3"/>'), "line 2: <size>: '1e3' is not a number"),
        (view('<range start="2" end="1"/>'), "line 1: .*end later than it begins"),
        (view('<range start="2018-03-24" end="1"/>'), "line 2: <range>: .*not a number of seconds"),
        (view('<range start="1"/>'), 'line 2: <range>: attribute end="..." is missing'),
        (view('<range start="0" end="999999999"/>'), "line 1: .*at most ten years"),
        (view('<radius value="1"/>'), "line 2: <radius>: a view has only"),
        (view('<size value="1"><size value="1"/></size>'), "line 2: <size>: not expected within"),
        (view('<size value="1" unit="s"/>'), "line 2: <size>: unknown attribute 'unit'"),
        (view('<size value="1"/>', ' frozen="maybe"'), "line 1: .*frozen must be 0 or 1"),
        (view('<size value="1"/>', ' node="here"'), "line 1: .*unknown attribute 'node'"),
        (view('<size value="1"/>').replace('"s"', '"v"'), "line 1: .*cannot show itself"),
        (
            "<medusa>" + 2 * view('<size value="1"/>') + "</medusa>",
            "medusa://mit.edu/v is defined twice",
        ),
    ],
)
def test_unknown_or_ambiguous_parts_are_refused_with_their_line(text: str, reason: str) -> None:
    with pytest.raises(InvalidInputError, match=reason):
        read_document(text, BASE)


BOREALIS = """<borealis>
  <input stream="packet" schema="conn"/>
  <output stream="busy" schema="conn"/>
  <schema name="conn"><field name="x" type="int"/></schema>
  <connection_point_view name="before" stream="packet"><size value="10"/></connection_point_view>
  <connection_point_view name="after" stream="busy"><size value="10"/></connection_point_view>
  <query name="q"><box name="f" type="filter">
    <in stream="before"/><out stream="busy"/><parameter name="expression.0" value="x > 1"/>
  </box></query>
  <query name="r"><box name="f" type="filter">
    <in stream="after"/><out stream="again"/><parameter name="expression.0" value="x > 2"/>
  </box></query>
</borealis>"""


def test_queries_of_a_document_read_its_views() -> None:
    document = read_document(BOREALIS, BASE)
    read, made = document.views_by_streams()
    assert [each.name for each in read] == [f"{BASE}before"]
    assert [each.name for each in made] == [f"{BASE}after"]
    with pytest.raises(InvalidInputError, match=r"there is no stream medusa://mit\.edu/none"):
        read_document(BOREALIS.replace('<in stream="before"', '<in stream="none"'), BASE)


def over(attributes: str) -> str:
    return f"""<query name="q"
  {attributes}><box name="f" type="filter">
    <input port="1" stream="s"/><output port="1" stream="o"/>
    <param name="expression.0" value="x > 1"/>
  </box></query>"""


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        ("", (BEGINNING, END, 0)),
        ('from="10.5"', (10_500_000, END, 0)),
        ('until="20" version="3"', (BEGINNING, 20_000_000, 3)),
        ('from="0" until="0.000001"', (0, 1, 0)),
    ],
)
def test_queries_over_the_past(attributes: str, expected: tuple[int, int, int]) -> None:
    (query,) = read_document(over(attributes), BASE).queries
    assert (query.after, query.until, query.version) == expected
    assert read_document(query_as_xml(query)).queries == (query,)


@pytest.mark.parametrize(
    ("attributes", "reason"),
    [
        ('from="10" until="10"', "line 1: <query>: .*the end must be later"),
        ('from="noon"', "line 1: <query>: from: 'noon' is not a number of seconds.*since 1970"),
        ('until="-5"', "line 1: <query>: until: '-5' is not a number of seconds"),
        ('version="v2"', "line 1: <query>: version 'v2' is not a number"),
        ('until="9" bound="2"', "line 1: <query>: .*one that ends has no bound"),
    ],
)
def test_a_time_that_is_none_is_refused_with_its_line(attributes: str, reason: str) -> None:
    with pytest.raises(InvalidInputError, match=reason):
        read_document(over(attributes), BASE)


@given(
    st.integers(BEGINNING, END),
    st.integers(BEGINNING, END),
    st.one_of(st.just(0), st.integers(-1, 10**12)),
)
def test_any_time_is_written_or_refused(after: int, until: int, version: int) -> None:
    box = Filter("f", f"{BASE}s", (f"{BASE}o",), ("x > 1",))
    query = Query(f"{BASE}q", (box,), after=after, until=until, version=version)
    try:
        text = query_as_xml(query)
    except InvalidInputError:
        return
    assert read_document(text).queries == (query,)
