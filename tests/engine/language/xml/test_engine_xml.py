from __future__ import annotations

import contextlib
import re
from pathlib import Path

import msgspec
import pytest
from drawn_availabilities import PEER, availabilities
from field_texts import fields_of
from hypothesis import given, settings
from hypothesis import strategies as st
from reference_networks import queries

from medusa.engine.language.check import check_query
from medusa.engine.language.document import Document
from medusa.engine.language.xml.writing import query_as_xml
from medusa.engine.objects.availability import Availability, Mode, Recovery
from medusa.engine.objects.definitions import Idle, StreamDefinition
from medusa.engine.objects.query import (
    Aggregate,
    AggregateCall,
    Filter,
    Map,
    Query,
    TupleWindows,
    Union,
)
from medusa.engine.objects.schema import Field, FieldType, Schema
from medusa.engine.reading import read_document
from medusa.engine.tasks.plan import plan
from medusa.engine.xml.tree import parse_xml
from medusa.overlay.errors import InvalidInputError

F = FieldType
LOCATOR = "medusa://nms.lcs.mit.edu/locator"

PAPER_SCHEMA = f"""<schema name="{LOCATOR}/person">
 <field name="person_name" type="string" size="32"/>
 <field name="person_id" type="int"/>
</schema>
"""

PAPER_QUERY = f"""<query name="{LOCATOR}/FindMrX">
 <box name="foo" type="filter">
 <input port="1" stream="{LOCATOR}/people"/>
 <output port="1" stream="{LOCATOR}/MrX"/>
 <param name="nexpression.0" value="person_id = 2"/>
 <param name="pass-on-false-port" value="0"/>
 </box>
</query>
"""


def test_a_stream_names_its_leader() -> None:
    text = f'<stream name="{LOCATOR}/s" schema="{LOCATOR}/person" leader="{"ab" * 32}"/>'
    assert read_document(text).streams[0].leader == "ab" * 32


@pytest.mark.parametrize(
    ("text", "line", "mend"),
    [
        ('<medusa>\n<schema name="a < b"/></medusa>', 2, "`<` is written &lt;"),
        ('<medusa>\n\n<schema name="a && b"/></medusa>', 3, "`&` is written &amp;"),
        ('<medusa><schema name="a &b; c"/></medusa>', 1, "`&` is written &amp;"),
    ],
)
def test_characters_that_xml_writes_otherwise_are_explained(
    text: str, line: int, mend: str
) -> None:
    with pytest.raises(InvalidInputError) as caught:
        parse_xml(text)
    assert str(caught.value).startswith(f"line {line}: ")
    assert str(caught.value).endswith(f": within a value, {mend}")


def test_the_paper_s_own_documents() -> None:
    (schema,) = read_document(PAPER_SCHEMA).schemas
    fields = (Field("person_name", F.STRING, 32), Field("person_id", F.INT))
    assert schema == Schema(f"{LOCATOR}/person", fields)
    (query,) = read_document(PAPER_QUERY).queries
    box = Filter("foo", f"{LOCATOR}/people", (f"{LOCATOR}/MrX",), ("person_id = 2",))
    assert query == Query(f"{LOCATOR}/FindMrX", (box,))
    assert f"{LOCATOR}/MrX" in check_query(query, {f"{LOCATOR}/people": schema})


def test_a_whole_medusa_document() -> None:
    text = f"""<?xml version="1.0" encoding="UTF-8"?>
    <!-- everything at once -->
    <medusa>{PAPER_SCHEMA}
      <stream name="{LOCATOR}/people" schema="{LOCATOR}/person" slack="2.5" history="60"
              idle="clock" readers="utah.edu, mit.edu" writers="*"/>
      {PAPER_QUERY}
    </medusa>"""
    document = read_document(text)
    assert document.streams == (
        StreamDefinition(
            f"{LOCATOR}/people",
            f"{LOCATOR}/person",
            slack_us=2_500_000,
            history_us=60_000_000,
            idle=Idle.CLOCK,
            readers=("utah.edu", "mit.edu"),
            writers=("*",),
        ),
    )
    assert len(document.schemas) == len(document.queries) == 1


def test_readers_of_inputs_and_outputs_in_both_dialects() -> None:
    """A written `*` is a declaration; a missing attribute is none."""
    medusa = f"""<medusa><schema name="{LOCATOR}/s"><field name="v" type="int"/></schema>
      <stream name="{LOCATOR}/in" schema="{LOCATOR}/s" readers="utah.edu contract"
              declassify="utah.edu brown.edu"/>
      <query name="{LOCATOR}/q"><box name="a" type="filter">
        <input port="1" stream="{LOCATOR}/in"/><output port="1" stream="{LOCATOR}/out"/>
        <output port="2" stream="{LOCATOR}/rest"/>
        <param name="expression.0" value="v = 1"/><param name="pass-on-false-port" value="1"/>
      </box>
      <output stream="{LOCATOR}/out" readers="utah.edu, brown.edu"/>
      <output stream="{LOCATOR}/rest" readers="*"/></query></medusa>"""
    borealis = """<borealis><schema name="s"><field name="v" type="int"/></schema>
      <input stream="in" schema="s" readers="utah.edu contract" declassify="utah.edu brown.edu"/>
      <output stream="out" schema="s" readers="utah.edu, brown.edu"/>
      <output stream="rest" schema="s" readers="*"/>
      <query name="q"><box name="a" type="filter">
        <in stream="in"/><out stream="out"/><out stream="rest"/>
        <parameter name="expression.0" value="v = 1"/>
        <parameter name="pass-on-false-port" value="1"/>
      </box></query></borealis>"""
    for text in (medusa, borealis):
        document = read_document(text, base=f"{LOCATOR}/")
        (stream,), (query,) = document.streams, document.queries
        assert stream.readers == ("utah.edu", "contract")
        assert stream.declassify == ("utah.edu", "brown.edu")
        assert dict(query.readers) == {
            f"{LOCATOR}/out": ("utah.edu", "brown.edu"),
            f"{LOCATOR}/rest": ("*",),
        }
    plain = read_document(borealis.replace(' readers="*"', ""), base=f"{LOCATOR}/").queries[0]
    assert dict(plain.readers) == {f"{LOCATOR}/out": ("utah.edu", "brown.edu")}


IDS = """<borealis>
  <input stream="connection" schema="conn"/>
  <output stream="busy" schema="busy"/>
  <output stream="probing" schema="probing"/>
  <schema name="conn" time="start_time_sec">
    <field name="start_time_sec" type="double" size="8"/>
    <field name="protocol" type="string" size="8"/>
    <field name="addr1" type="int"/><field name="addr2" type="int"/>
    <field name="addr3" type="int"/><field name="addr4" type="int"/>
  </schema>
  <schema name="busy">
    <field name="addr1" type="int"/><field name="addr2" type="int"/>
    <field name="addr3" type="int"/><field name="addr4" type="int"/>
    <field name="start_time_sec" type="double"/>
    <field name="agg_0" type="int"/>
  </schema>
  <schema name="probing">
    <field name="addr1" type="int"/><field name="addr2" type="int"/>
    <field name="addr3" type="int"/><field name="addr4" type="int"/>
    <field name="start_time_sec" type="double"/>
    <field name="agg_0" type="int"/>
  </schema>
  <query name="forward">
    <box name="forwarder" type="filter">
      <in stream="connection"/><out stream="all"/>
      <parameter name="expression.0" value="start_time_sec > -1"/>
    </box>
  </query>
  <query name="ids">
    <box name="count" type="aggregate">
      <in stream="all"/><out stream="counted"/>
      <parameter name="aggregate-function.0" value="count()"/>
      <parameter name="window-size-by" value="VALUES"/>
      <parameter name="window-size" value="60"/>
      <parameter name="advance" value="60"/>
      <parameter name="order-by" value="FIELD"/>
      <parameter name="order-on-field" value="start_time_sec"/>
      <parameter name="group-by" value="addr1, addr2, addr3, addr4"/>
      <parameter name="timeout" value="0"/>
      <parameter name="independent-window-alignment" value="1"/>
    </box>
    <box name="many" type="filter">
      <in stream="counted"/><out stream="busy"/>
      <parameter name="expression.0" value="agg_0 > 100"/>
    </box>
    <box name="distinct" type="aggregate">
      <in stream="all"/><out stream="protocols"/>
      <parameter name="aggregate-function.0" value="count_distinct(protocol)"/>
      <parameter name="window-size-by" value="VALUES"/>
      <parameter name="window-size" value="60"/>
      <parameter name="advance" value="60"/>
      <parameter name="order-by" value="FIELD"/>
      <parameter name="order-on-field" value="start_time_sec"/>
      <parameter name="group-by" value="addr1,addr2,addr3,addr4"/>
    </box>
    <box name="probe" type="filter">
      <in stream="protocols"/><out stream="probing"/>
      <parameter name="expression.0" value="agg_0 > 10"/>
    </box>
  </query>
</borealis>
"""


def test_the_intrusion_demo_of_borealis() -> None:
    document = read_document(IDS, base="medusa://mit.edu/")
    assert [query.name for query in document.queries] == [
        "medusa://mit.edu/forward",
        "medusa://mit.edu/ids",
    ]
    assert [stream.name for stream in document.streams] == ["medusa://mit.edu/connection"]
    count = document.queries[1].boxes[0]
    assert isinstance(count, Aggregate)
    assert (count.size_us, count.advance_us) == (60_000_000, 60_000_000)
    assert count.group_by == ("addr1", "addr2", "addr3", "addr4")
    assert count.functions == (AggregateCall("count", None, "agg_0"),)
    form = document.queries[1].boxes[1]
    assert isinstance(form, Map)
    assert [name for name, _ in form.expressions] == [
        "addr1", "addr2", "addr3", "addr4", "start_time_sec", "agg_0"
    ]  # fmt: skip
    assert document.queries[1].outputs == ("medusa://mit.edu/busy", "medusa://mit.edu/probing")


def test_a_borealis_output_that_is_read_within_is_still_written_down() -> None:
    text = """<borealis><input stream="a" schema="s"/><output stream="b" schema="s"/>
      <schema name="s"><field name="x" type="int"/></schema>
      <query name="q">
        <box name="f" type="filter"><in stream="a"/><out stream="b"/>
          <parameter name="expression.0" value="x > 1"/></box>
        <box name="g" type="filter"><in stream="b"/><out stream="c"/>
          <parameter name="expression.0" value="x > 2"/></box>
      </query></borealis>"""
    document = read_document(text, base="medusa://mit.edu")
    (query,) = document.queries
    tasks = plan(query, check_query(query, {"medusa://mit.edu/a": document.schemas[0]}))
    assert [task.name for task in tasks] == ["medusa://mit.edu/b", "medusa://mit.edu/c"]


BOX = """<query name="medusa://mit.edu/q">
<box name="b" type="{kind}">
<input port="1" stream="medusa://mit.edu/in"/>
<output port="1" stream="medusa://mit.edu/out"/>
{params}
</box>
</query>"""


def boxed(kind: str, *params: tuple[str, str]) -> str:
    lines = [f'<param name="{name}" value="{value}"/>' for name, value in params]
    return BOX.format(kind=kind, params="\n".join(lines))


STREAM = '<stream name="medusa://a/b" schema="medusa://a/c" {}/>'
PORT = '<{} port="1" stream="medusa://a/b"/>'


def calling(call: str) -> str:
    return boxed("aggregate", ("aggregate-function.0", call), ("window-size", "60"))


UNION = boxed("union")
COUNTING = (("aggregate-function.0", "count()"), ("window-size", "60"))


def by_tuples(*more: tuple[str, str]) -> str:
    function = ("aggregate-function.0", "avg(x)")
    return boxed("aggregate", function, ("window-size-by", "TUPLES"), *more)


def test_windows_of_so_many_tuples() -> None:
    window = TupleWindows(
        "b",
        "medusa://mit.edu/in",
        "medusa://mit.edu/out",
        10,
        10,
        (),
        (AggregateCall("avg", "x", "agg_0"),),
    )
    (query,) = read_document(by_tuples(("window-size", "10"))).queries
    assert query.boxes == (window,)
    more = (("advance", "1"), ("partial-windows", "1"), ("group-by", "x,y"), ("number-field", "n"))
    (query,) = read_document(by_tuples(("window-size", "10"), *more)).queries
    changes = {"advance": 1, "partial": True, "group_by": ("x", "y"), "number": "n"}
    assert query.boxes == (msgspec.structs.replace(window, **changes),)  # type: ignore[arg-type]
    written = query_as_xml(query)
    assert read_document(written).queries == (query,)


def test_defaults_of_windows() -> None:
    (query,) = read_document(boxed("aggregate", *COUNTING)).queries
    assert query.boxes[0] == Aggregate(
        "b",
        "medusa://mit.edu/in",
        "medusa://mit.edu/out",
        60_000_000,
        60_000_000,
        (),
        (AggregateCall("count", None, "agg_0"),),
    )


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ("", 1, "not well-formed"),
        ("nonsense", 1, "not well-formed"),
        ("<query>\n<box>\n</query>", 3, "mismatched tag"),
        ("<a/>\n<b/>", 2, "not well-formed"),
        ("\n<html/>", 2, "expected <schema>, <stream>, <query>"),
        ("<medusa>\n<deploy/></medusa>", 2, "expected <schema>"),
        ("<medusa>\ntext</medusa>", 2, "text 'text' between elements"),
        ("<medusa>\n<?php x?></medusa>", 2, "processing instructions"),
        ("<borealis>\n<deployed/></borealis>", 2, "only <input>, <output>"),
        ("<query/>", 1, 'attribute name="..." is missing'),
        ('<query name="q"/>', 1, "must look like medusa://"),
        ('<query name="medusa://mit.edu/q"/>', 1, "0 boxes"),
        ('<query name="medusa://mit.edu/q" x="1"/>', 1, "unknown attribute 'x'"),
        ('<query name="medusa://mit.edu/q" name="y"/>', 1, "duplicate attribute"),
        ('<schema name="medusa://mit.edu/s"/>', 1, "0 fields"),
        (PAPER_SCHEMA.replace('"int"', '"number"'), 3, "unknown type 'number'"),
        (PAPER_SCHEMA.replace('"32"', '"x"'), 2, "size 'x' is not a number"),
        (PAPER_SCHEMA.replace("person_id", "person_name"), 1, "occurs 2 times"),
        (PAPER_SCHEMA.replace("person_id", "stime"), 1, "reserved"),
        (PAPER_SCHEMA.replace("<schema ", '<schema time="when" '), 1, "'when' is not among"),
        (STREAM.format('idle="never"'), 1, "idle is explicit or"),
        (STREAM.format('slack="-1"'), 1, "number of seconds"),
        (STREAM.format('readers="A B"'), 1, "lower-case"),
        (STREAM.format('slack="999999999"'), 1, "out of range"),
        (boxed("resample"), 2, "unknown box type 'resample'; there are aggregate, cumulate"),
        (boxed("filter"), 2, "at least one expression"),
        (boxed("filter", ("expression.1", "x")), 2, "expression.0 is missing"),
        (boxed("filter", ("expression.0", "x"), ("nexpression.0", "x")), 6, "occurs twice"),
        (boxed("filter", ("expression.0", "x"), ("drop", "1")), 6, "unknown parameter 'drop'"),
        (boxed("filter", ("expression.0", "x"), ("expression.0", "y")), 6, "occurs twice"),
        (boxed("filter", ("expression.0", "x"), ("pass-on-false-port", "2")), 6, "must be 0 or 1"),
        (boxed("filter", ("expression.0", "x"), ("pass-on-false-port", "1")), 2, "2 are needed"),
        (boxed("map", ("expression.0", "x")), 2, "1 expressions and 0 output field names"),
        (boxed("union", ("x", "1")), 5, "unknown parameter 'x' of this box; there are none"),
        (boxed("aggregate"), 2, "window-size is missing"),
        (boxed("aggregate", ("window-size", "60")), 2, "at least one function"),
        (boxed("aggregate", ("window-size", "1e3")), 5, "'1e3' is not a number of seconds"),
        (calling("count"), 2, "not an aggregate"),
        (calling("rand()"), 2, "no aggregate 'rand'"),
        (calling("sum()"), 2, "sum needs an argument"),
        (boxed("aggregate", *COUNTING, ("advance", "31622401")), 2, "up to 366 days"),
        (boxed("aggregate", *COUNTING, ("window-size-by", "ROWS")), 7, "VALUES or TUPLES, not"),
        (by_tuples(("window-size", "2.5")), 7, "window-size is a number of tuples, not '2.5'"),
        (by_tuples(("window-size", "1001")), 2, "1,001 tuples; 1 to 1,000"),
        (by_tuples(("window-size", "9"), ("advance", "0")), 2, "advance by 0 tuples"),
        (by_tuples(("window-size", "101"), ("advance", "1")), 2, "in 101 of its windows"),
        (by_tuples(("advance", "1")), 2, "window-size is missing: the tuples"),
        (by_tuples(("window-size", "9"), ("timeout", "1")), 8, "boundary passes them"),
        (boxed("aggregate", *COUNTING, ("order-by", "TUPLENUM")), 7, "can only be FIELD"),
        (boxed("aggregate", *COUNTING, ("timeout", "12")), 7, "boundary passes them"),
        (boxed("aggregate", *COUNTING, ("timeout", "12")), 7, "would make it an arbitrary box"),
        (boxed("aggregate", *COUNTING, ("slack", "1")), 7, "declared slack"),
        (boxed("aggregate", *COUNTING, ("drop-empty-outputs", "0")), 7, "emits nothing"),
        (boxed("aggregate", *COUNTING, ("independent-window-alignment", "0")), 7, "aligned"),
        (boxed("aggregate", *COUNTING, ("drop-mode", "x")), 7, "unknown parameter 'drop-mode'"),
        (boxed("union").replace('port="1"', 'port="2"', 1), 2, "input ports are not 1 to 1"),
        (boxed("union").replace('port="1"', 'port="x"', 1), 3, "port 'x' is not a number"),
        (boxed("union").replace("</box>", PORT.format("input") + "</box>"), 6, "twice"),
        (boxed("union").replace("</box>", "<input port='1'><a/></input></box>"), 6, "not expected"),
        (boxed("union").replace("</box>", "<table/></box>"), 6, "a box has only"),
        (boxed("union").replace("mit.edu/in", "mit.edu/../in"), 3, "not a path segment"),
        (boxed("union").replace("mit.edu/in", "mit.edu/out"), 2, "occurs 2 times"),
        (UNION.replace("</query>", '<output stream="medusa://a/b"/></query>'), 1, "no box"),
        (IDS, 25, "must look like medusa://"),
        ("<a>" * 20, 1, "more than 8 elements"),
        ("<medusa>" + "\n" * 2**20, 1, "at most 1048576"),
        ("<medusa a='\ud800'/>", 1, "surrogate"),
        ("<medusa>\x00</medusa>", 1, "not well-formed"),
        (f"<medusa>{PAPER_SCHEMA}{PAPER_SCHEMA}</medusa>", 1, "defined twice"),
    ],
)  # fmt: skip
def test_documents_that_do_not_hold_are_refused(text: str, line: int, reason: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        read_document(text)
    assert str(caught.value).startswith(f"line {line}: ")
    assert reason in str(caught.value)
    assert len(str(caught.value)) < 700


@pytest.mark.parametrize(
    ("old", "new", "line", "reason"),
    [
        ("agg_0 > 100", "agg_1 > 100", 42, "box 'many': expression 0: .*no field 'agg_1'"),
        ('order-on-field" value="start', 'order-on-field" value="end', 30, "'end_time_sec'"),
        ('time="start_time_sec"', 'time="addr1"', 30, "ordered by addr1.*declare time"),
        ('<out stream="all"/>', '<out stream="lost"/>', 30, "there is no stream .*/all"),
        ('"busy" schema="busy"', '"busy" schema="conn"', 3, "other fields"),
        ('<output stream="busy"', '<output stream="idle"', 3, "no query in the document makes"),
        ('"busy" schema="busy"', '"busy" schema="x"', 3, "no schema 'x'"),
        ('"connection" schema="conn"', '"connection" schema="x"', 2, "no schema"),
        ('<out stream="busy"/>', "", 42, "at least one input and one output"),
        ('<in stream="counted"/>', "<in stream='counted'/><in stream='a'/>", 42, "one input"),
    ],
)  # fmt: skip
def test_borealis_documents_are_checked_as_a_whole(
    old: str, new: str, line: int, reason: str
) -> None:
    assert old in IDS
    with pytest.raises(InvalidInputError, match=f"(?s)^line {line}: .*{reason}"):
        read_document(IDS.replace(old, new, 1), base="medusa://mit.edu/")


def with_attributes(text: str, attributes: str) -> str:
    """Add the attributes to the document's last query."""
    before, _, after = text.rpartition("<query ")
    return f"{before}<query {attributes} {after}"


@pytest.mark.parametrize("text", [PAPER_QUERY, IDS], ids=["medusa", "borealis"])
@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        ("", Availability()),
        ('ha="none"', Availability()),
        ('ha="none" recovery="gap"', Availability()),
        ('ha="amnesia"', Availability(Mode.AMNESIA)),
        ('ha="active"', Availability(Mode.ACTIVE_STANDBY, Recovery.PRECISE)),
        ('ha="upstream" bound="2"', Availability(Mode.UPSTREAM_BACKUP, Recovery.PRECISE, 2.0)),
        (
            'ha="passive" recovery="rollback" bound="0.5"',
            Availability(Mode.PASSIVE_STANDBY, Recovery.ROLLBACK, 0.5, 0.25),
        ),
        (
            f'ha="passive_standby" recovery="precise" bound="2" checkpoint="1" secondary="{PEER}"',
            Availability(Mode.PASSIVE_STANDBY, Recovery.PRECISE, 2.0, 1.0, PEER),
        ),
    ],
)
def test_queries_say_what_becomes_of_them_when_their_peer_dies(
    text: str, attributes: str, expected: Availability
) -> None:
    query = read_document(with_attributes(text, attributes), "medusa://mit.edu/").queries[-1]
    assert query.availability == expected
    assert read_document(query_as_xml(query)).queries == (query,)


@pytest.mark.parametrize(
    ("text", "line"), [(PAPER_QUERY, 1), (IDS, 29)], ids=["medusa", "borealis"]
)
@pytest.mark.parametrize(
    ("attributes", "reason"),
    [
        ('ha="hot"', "ha is none, amnesia, upstream_backup, passive_standby, active_standby, not"),
        ('ha=""', "not ''"),
        ('ha="active" recovery="exact"', "recovery is gap, rollback, precise, not 'exact'"),
        ('recovery="precise"', "more than ha none gives a query whose weakest box, "),
        ('ha="amnesia" recovery="rollback"', "ask for gap, or for ha upstream_backup, passive"),
        ('ha="active" bound="soon"', "bound: 'soon' is not a number of seconds"),
        ('ha="active" bound="-1"', "bound: '-1' is not a number of seconds"),
        ('ha="active" bound="90000"', "bound of 90000 s is not between 0.1 and 86,400 s"),
        ('ha="active" checkpoint="2"', "only ha passive_standby has checkpoints"),
        ('ha="passive" bound="2" checkpoint="3"', "every 3 s cannot keep results within a bound"),
        ('ha="passive" checkpoint="1e3"', "checkpoint: '1e3' is not a number of seconds"),
        ('ha="active" secondary="mit"', "peer id 'mit': must be 40"),
        ('bound="2" checkpoint="2"', "for a query with a standby"),
        ('backup="passive"', "unknown attribute 'backup'; there are name, ha, recovery, bound, "),
    ],
)
def test_availability_that_does_not_hold_is_refused(
    text: str, line: int, attributes: str, reason: str
) -> None:
    with pytest.raises(InvalidInputError) as caught:
        read_document(with_attributes(text, attributes), "medusa://mit.edu/")
    assert str(caught.value).startswith(f"line {line}: <query>: ")
    assert reason in str(caught.value)


BOMB = """<!DOCTYPE lolz [
 <!ENTITY lol "lol">
 <!ENTITY lol2 "&lol;&lol;&lol;&lol;&lol;&lol;&lol;&lol;&lol;&lol;">
 <!ENTITY lol3 "&lol2;&lol2;&lol2;&lol2;&lol2;&lol2;&lol2;&lol2;&lol2;&lol2;">
]>
<query name="&lol3;"/>"""


@pytest.mark.parametrize(
    "text",
    [
        BOMB,
        '<!DOCTYPE query SYSTEM "http://example.org/x.dtd"><query name="q"/>',
        '<!DOCTYPE q [<!ENTITY x SYSTEM "file:///etc/passwd">]><query name="&x;"/>',
        '<!DOCTYPE q [<!ENTITY % x SYSTEM "file:///etc/passwd"> %x;]><query/>',
        "<!DOCTYPE query><query/>",
    ],
)
def test_document_types_and_entities_are_refused(text: str) -> None:
    with pytest.raises(InvalidInputError, match=r"line \d+: document types and entities"):
        read_document(text)


def test_unknown_entities_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="line 1: not well-formed XML: undefined entity"):
        read_document('<query name="&nbsp;"/>')


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "ascii", "latin-1"])
def test_the_declared_encoding_does_not_matter_for_text(encoding: str) -> None:
    text = f'<?xml version="1.0" encoding="{encoding}"?>\n' + boxed(
        "filter", ("expression.0", "s = 'ü'")
    )
    assert read_document(text).queries[0].boxes[0].predicates == ("s = 'ü'",)  # type: ignore[union-attr]


def full(query: Query) -> Query:
    """Return the query with object names."""
    prefix = "medusa://mit.edu/"

    boxes = tuple(box.renamed(lambda name: prefix + name) for box in query.boxes)
    return Query(prefix + query.name, boxes)


@given(queries(), st.data())
def test_queries_survive_being_written_and_read(query: Query, data: st.DataObject) -> None:
    query = full(query)
    made = [name for box in query.boxes for name in box.outputs]
    outputs = data.draw(st.lists(st.sampled_from(made), unique=True, max_size=2))
    availability = data.draw(availabilities())
    query = msgspec.structs.replace(query, outputs=tuple(outputs), availability=availability)
    text = query_as_xml(query)
    assert read_document(text) == Document(queries=(query,))
    assert query_as_xml(read_document(text).queries[0]) == text


@given(st.text(), st.text(), st.integers(1, 10**12), st.integers(1, 1000))
def test_any_text_in_a_query_is_written_or_refused(
    predicate: str, name: str, advance: int, times: int
) -> None:
    a, b, c, d = (f"medusa://mit.edu/{each}" for each in "abcd")
    total = AggregateCall("sum", predicate, "x")
    query = Query(
        "medusa://mit.edu/q",
        (
            Filter(name, a, (b,), (predicate,)),
            Map("m", b, c, ((name, predicate),)),
            Union("u", (c,), d),
            Aggregate("w", d, d + "e", advance * times, advance, (), (total,)),
        ),
    )
    with contextlib.suppress(InvalidInputError):
        assert read_document(query_as_xml(query)).queries == (query,)


def test_texts_that_xml_would_change_are_kept() -> None:
    predicate = "s = '<&>\"\t\n\r é' or\n n > 1"
    (query,) = read_document(boxed("filter", ("expression.0", "x"))).queries
    box = msgspec.structs.replace(query.boxes[0], predicates=(predicate,))
    query = msgspec.structs.replace(query, boxes=(box,))
    assert read_document(query_as_xml(query)).queries == (query,)


def test_seconds_that_a_document_cannot_carry_are_refused() -> None:
    (query,) = read_document(PAPER_QUERY).queries
    odd = Availability(Mode.ACTIVE_STANDBY, bound_s=0.1234567)
    with pytest.raises(InvalidInputError, match="cannot be written as XML"):
        query_as_xml(msgspec.structs.replace(query, availability=odd))


ODD = (' ha="active"', ' bound="2"', "<", ">", '"', "&lt;", "&#0;", "<!DOCTYPE x>", "<![CDATA[x]]>")
PIECES = st.sampled_from([*re.findall(r'[^>"]*[>"]', IDS), *ODD])


@settings(max_examples=400)
@given(
    st.text(max_size=80) | st.lists(PIECES, max_size=12).map("".join),
    st.none() | st.just("medusa://mit.edu/"),
)
def test_any_text_is_a_document_or_refused(text: str, base: str | None) -> None:
    with contextlib.suppress(InvalidInputError):
        assert isinstance(read_document(text, base), Document)


@settings(max_examples=400)
@given(st.data())
def test_damaged_documents_are_read_or_refused(data: st.DataObject) -> None:
    text = IDS
    for _ in range(data.draw(st.integers(1, 3))):
        start = data.draw(st.integers(0, len(text)))
        end = start + data.draw(st.integers(0, 30))
        text = text[:start] + data.draw(PIECES | st.text(max_size=3)) + text[end:]
    with contextlib.suppress(InvalidInputError):
        assert isinstance(read_document(text, "medusa://mit.edu/"), Document)


def test_the_intrusion_query_s_own_document() -> None:
    """The query has five tasks; the second window reads tuples at the first one's last
    microsecond."""
    template = Path(__file__).parents[4] / "testnet" / "connections" / "intrusion.xml"
    inputs = [f'<input port="{n}" stream="medusa://p{n}.org/conns"/>' for n in (1, 2, 3)]
    text = template.read_text().replace("{participant}", "mit.edu")
    (query,) = read_document(text.replace("{inputs}", "".join(inputs))).queries
    conn = Schema(
        "medusa://p1.org/conn",
        fields_of(
            "ts double, src_ip string, src_port int?, dst_ip string, dst_port int?, "
            "proto string?, bytes_out long?, bytes_in long?, duration double?"
        ),
        "ts",
    )
    schemas = check_query(query, {f"medusa://p{n}.org/conns": conn for n in (1, 2, 3)})
    tasks = plan(query, schemas)
    assert [task.name.rpartition("/")[2] for task in tasks] == [
        "all",
        "per_source",
        "busy",
        "scan",
        "cluster",
    ]
    assert [(f.name, f.type) for f in schemas["medusa://mit.edu/cluster"].fields] == [
        ("window_start", F.TIMESTAMP),
        ("prefix", F.STRING),
        ("conns", F.LONG),
    ]
