"""Documents of Borealis are read with our meaning, or refused with the reason."""

from __future__ import annotations

import contextlib
import random
import re
from pathlib import Path
from xml.sax.saxutils import escape

import pytest
from borealis_boxes import BUFFERS, HEAD, ORDERED, TABLE, TIMED, document, read, table_box, whole
from borealis_documents import INTRUSION, MONITORING_DEPLOYED, TOLLS
from computed_documents import BASE, Row, by_interpreter
from hypothesis import given, settings
from hypothesis import strategies as st

from examples import examples
from medusa.engine.borealis.boxes import KINDS
from medusa.engine.language.document import Document
from medusa.engine.objects.definitions import Idle, StreamDefinition
from medusa.engine.objects.query import Aggregate, Join, JoinKind, Map, Top, Union
from medusa.engine.reading import read_document
from medusa.overlay.errors import InvalidInputError

COUNTED = {"aggregate-function.0": "count()", **ORDERED}
WINDOWS = {**COUNTED, "window-size": "20"}
BOXED = "<box name='b' type='filter'><in stream='s'/><out stream='out'/>{}</box>"


def selecting(sql: str) -> str:
    return whole(table_box("select", "s", sql, "<out stream='out'/>"), TABLE)


def updating(*updates: str) -> str:
    """Return a document whose boxes insert and update rows."""
    boxes = [table_box("insert", "u", "insert into fleet values (input.seen, input.k, input.z)")]
    for number, sql in enumerate(updates):
        box = table_box("update", "s", sql)
        boxes.append(box.replace('name="update"', f'name="update{number}"'))
    return whole("".join(boxes), TABLE)


NO_UPDATES = [
    ("update fleet set z = 1", "sql is `update TABLE set FIELD = VALUE, ... where KEY"),
    ("update s set z = 1 where k = input.k", "its sql is about s"),
    ("update fleet set z = 1 where z = input.x", "rows are updated by their key: where k = "),
    ("update fleet set z = 1 where k = left.q", "there is no field 'left.q'"),
    ("update fleet set z = 1, q = 2 where k = input.k", "'q = 2' sets no field of the table"),
    ("update fleet set z = 1, s.z = 2 where k = input.k", "'s.z = 2' sets no field"),
    ("update fleet set z = 1, fleet.z = 2 where k = input.k", "z is set twice"),
    ("update fleet set z == 1 where k = input.k", "'z == 1' sets no field of the table"),
    ("update fleet set z = 1, k = 'a' where k = input.k", "k is of the table's key"),
    ("update fleet set z = z + 1 where k = input.k", "made of the old z, which an update sets"),
    ("update fleet set z = right.z where k = input.k", "a total: keep it by a latch"),
    ("update fleet set since = 1, z = fleet.since where k = input.k", "of the old since"),
    ("update fleet set z = input.q where k = input.k", "there is no field input.q"),
    (
        "update fleet set z = 1 where k = input.k; update fleet set since = 1 where k = input.k",
        "update0 sets z; update1 sets since. A field that only one of them sets would",
    ),
]
"""Updates, and the reason for which each is refused."""


REFUSED = [
    (document("filter_array", {}), "no filter_array here: a field has one value"),
    (document("sunion", {}), "use a union"),
    (document("soutput", {}), "every output is corrected"),
    (document("scontrol", {}), "<modify>"),
    (document("joinstatic", {}), "join with a <table>"),
    (document("combine", {}), "user code"),
    (document("delay_sel", {}), "delay and random_drop"),
    (document("lock", {"key": "k"}), "boxes never wait for each other: leave the box out"),
    (document("unlock", {"key": "k"}), "a table reads it as of a tuple's time"),
    (document("pump", {}), "unknown box type 'pump'; there are aggregate, "),
    (document("filter", {"expression.0": "x > 1", "update_queue": "1"}), "update queue drops"),
    (document("filter", {"expression.0": "x > 1", "queue_type": "3"}), "newest tuple of each"),
    (document("bsort", {"order-on": "x"}), "ordered by arrival: order on stime, or declare"),
    (document("bsort", {"order-on": "time", "slack": "3"}), 'made of slack="S"'),
    (document("bsort", {}), "order-on is missing"),
    (document("aggregate", {**WINDOWS, "slack": "2"}), "2 tuples of slack"),
    (document("aggregate", {**WINDOWS, "slack": "0.5"}), "not a number of tuples"),
    (document("aggregate", {**WINDOWS, "timeout": "soon"}), "timeout 'soon' is not a number"),
    (document("aggregate", {**WINDOWS, "timeout": "nan"}), "timeout 'nan' is not a number"),
    (document("aggregate", {**WINDOWS, "drop-mode": "1"}), "load shedding"),
    (document("aggregate", {**WINDOWS, "drop-empty-outputs": "0"}), "a group exists by its"),
    (document("aggregate", {**WINDOWS, "independent-window-alignment": "0"}), "aligned to the"),
    (document("aggregate", COUNTED), "window-size is missing"),
    (document("aggregate", {**WINDOWS, "order-on-field": "x"}), "s is ordered by arrival"),
    (document("aggregate", WINDOWS, inputs="s u"), "type aggregate has 1 input, not 2"),
    (document("tumble", {**WINDOWS, "window-size-by": "TUPLES"}), "a tumble are by VALUES"),
    (document("aggregate", {**WINDOWS, "window-size-by": "x"}), "by VALUES or TUPLES"),
    (document("aggregate", {**WINDOWS, "order-by": "TUPLENUM"}), "order-by FIELD"),
    (document("tumble", {**WINDOWS, "advance": "5"}), "advance is window-size, 20"),
    (document("latch", {**WINDOWS, "advance": "5"}), "others are an aggregate's"),
    (document("xsection", WINDOWS), "with a window-size it is an aggregate"),
    (document("random_drop", {"drop_rate": "1.5"}), "from 0 to 1"),
    (document("random_drop", {}), "from 0 to 1"),
    (document("random_drop", {"drop_rate": "1", "max_batch_size": "0"}), "at least 1"),
    (
        document("window_drop", {"drop_rate": "0.5", "window-size": "9", "window-slide": "3"}),
        "window-slide must be window-size",
    ),
    (document("waitfor", {"predicate": "left.k = right.k"}, inputs="s u"), "and a timeout"),
    (document("delay", {}), "delay is missing"),
    (document("join", {"predicate": "left.k = right.k"}, inputs="s u"), "VALUES or TUPLES"),
    *(
        (document("join", {**BUFFERS, "left-order-by": "TUPLES", **more}, inputs="s u"), reason)
        for more, reason in (
            ({"left-buffer-size": "0"}, "left-buffer-size is 0 tuples; 1 to 1,000 are allowed"),
            ({"left-buffer-size": "1001"}, "left-buffer-size is 1,001 tuples"),
            ({"left-buffer-size": "2.5"}, "is a number of tuples, not '2.5'"),
            ({"left-order-on-field": "x"}, "s is ordered by arrival"),
            ({}, "both inputs have a field k: say"),
            ({"timeout": "3"}, "buffers' sizes by VALUES"),
            ({"out-field.0": "left.", "out-field-name.0": "x"}, "expression 'left.'"),
        )
    ),
    (document("join", {**BUFFERS, "timeout": "3"}, inputs="s u"), "buffers' sizes by VALUES"),
    (document("join", BUFFERS, inputs="s u"), "both inputs have a field k: say"),
    (
        document("revisionfilter", {"expression.0": "x > 1", "anchor": "k"}),
        'give the schema of medusa://mit.edu/s key="k"',
    ),
    (whole(BOXED.format("<access table='fleet'/>"), TABLE), "filter reads no table"),
    *((updating(*sql.split(";")), reason) for sql, reason in NO_UPDATES),
    (
        whole(table_box("update", "s", "update fleet set z = 1 where k = input.k"), TABLE),
        "an update makes no row",
    ),
    (
        updating("update fleet set z = 1 where k = input.k").replace('"since"', '"updated"'),
        "updated",
    ),
    (selecting("drop fleet"), "sql is `select FIELDS from TABLE where"),
    (selecting("select z from s where z = 1"), "its sql is about s, its <access> is fleet"),
    (selecting("select input.q from fleet where z = 1"), "there is no field input.q"),
    (selecting("").replace(TABLE, ""), "there is no <table> medusa://mit.edu/fleet"),
    (whole(table_box("insert", "s", "insert into fleet values (1)"), TABLE), "1 values for 3"),
    (whole(table_box("delete", "s", "delete from fleet where z = 1"), TABLE), "where k = "),
    (whole("", TABLE.replace('<key field="k"/>', "")), 'needs a <key field="..."/>'),
    (whole("", TABLE.replace('field="k"/>', 'field="q"/>')), "'q'"),
    (whole("", TABLE.replace('schema="fleet_tuple"', 'schema="x"')), "there is no schema 'x'"),
]  # fmt: skip
"""Documents, and the reason for which each is refused."""


@pytest.mark.parametrize(("text", "reason"), REFUSED)
def test_a_document_without_our_meaning_is_refused_with_its_line(text: str, reason: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        read_document(text, BASE)
    assert str(caught.value).startswith("line ")
    assert reason in str(caught.value)


# -- windows --------------------------------------------------------------------------------------


def test_windows_have_the_form_of_borealis_if_they_say_their_order() -> None:
    aggregate, form = read(document("aggregate", WINDOWS)).queries[0].boxes[-2:]
    assert isinstance(aggregate, Aggregate)
    assert isinstance(form, Map)
    assert form.expressions == (
        ("time", "cast(unix_seconds(window_start) as int)"),
        ("agg_0", "cast(agg_0 as int)"),
    )
    ours = {key: value for key, value in WINDOWS.items() if key != "order-by"}
    assert isinstance(read(document("aggregate", ours)).queries[0].boxes[-1], Aggregate)


@pytest.mark.parametrize(
    ("type_", "start", "total"),
    [
        ("double", "unix_micros(window_start) / 1000000.0", "cast(t as double)"),
        ("single", "cast(unix_micros(window_start) / 1000000.0 as single)", "cast(t as single)"),
        ("int", "cast(unix_seconds(window_start) as int)", "cast(t as int)"),
        ("timestamp", "window_start", ""),
    ],
)
def test_the_start_of_a_window_and_a_sum_have_the_types_of_the_input(
    type_: str, start: str, total: str
) -> None:
    functions = {"aggregate-function.0": "count()"}
    if total:
        functions = {"aggregate-function.0": "sum(time)", "aggregate-function-output-name.0": "t"}
    text = document("aggregate", {**functions, **ORDERED, "window-size": "20"})
    text = text.replace('<field name="time" type="int"/>', f'<field name="time" type="{type_}"/>')
    form = read(text).queries[0].boxes[-1]
    assert isinstance(form, Map)
    assert form.expressions[0] == ("time", start)
    assert not total or form.expressions[1] == ("t", total)


SECOND = """<box name="again" type="aggregate"><in stream="out"/><out stream="twice"/>
  <parameter name="aggregate-function.0" value="sum(agg_0)"/>
  <parameter name="order-by" value="FIELD"/> <parameter name="window-size-by" value="VALUES"/>
  <parameter name="order-on-field" value="time"/>
  <parameter name="window-size" value="{}"/> <parameter name="advance" value="{}"/></box></query>"""


def test_windows_of_windows_are_multiples_of_them() -> None:
    def twice(size: int, advance: int) -> str:
        text = document("aggregate", WINDOWS)
        return text.replace("</query>", SECOND.format(size, advance))

    assert len(read(twice(60, 20)).queries[0].boxes) == 6
    for size, advance in ((30, 30), (60, 10)):
        with pytest.raises(InvalidInputError, match=r"start of a window of 20 s.*multiples"):
            read_document(twice(size, advance), BASE)


def test_a_slack_is_the_source_s() -> None:
    text = document("aggregate", {**WINDOWS, "slack": "4"})
    slack = text.replace('schema="s_tuple"/>', 'schema="s_tuple" slack="2.5" idle="clock"/>')
    stream = read(slack).streams[0]
    assert (stream.slack_us, stream.idle) == (2_500_000, Idle.CLOCK)


def test_a_remark_says_that_a_timeout_has_no_effect() -> None:
    assert read(document("aggregate", {**WINDOWS, "timeout": "-1"})).remarks == ()
    (remark,) = read(document("aggregate", {**WINDOWS, "timeout": "12.5"})).remarks
    assert "close, whole, once the boundary" in remark
    assert "12.5 s" in remark


def test_gaps_between_windows_get_a_remark() -> None:
    """Documents of Borealis get the same warning as others."""
    (remark,) = read(document("aggregate", {**WINDOWS, "advance": "90"})).remarks
    assert "are 20 s long, and one begins each 90 s: rows between two of them" in remark


def test_the_time_of_an_input_is_what_the_boxes_are_ordered_on() -> None:
    schemas = {each.name.rpartition("/")[2]: each.time for each in read(whole("")).schemas}
    assert schemas == {"s_tuple": "time", "u_tuple": "seen"}
    text = whole("").replace(TIMED, BOXED.format("<parameter name='predicate' value='x = 1'/>"))
    assert [each.time for each in read(text).schemas] == [None, None]
    named = HEAD.replace('name="s_tuple"', 'name="s_tuple" time="y"')
    with pytest.raises(InvalidInputError, match=r"ordered on 'time', but .* is ordered by y"):
        read_document(whole("").replace(HEAD, named), BASE)


# -- joins ----------------------------------------------------------------------------------------


def test_the_buffers_of_a_join_are_its_bounds() -> None:
    """The left buffer keeps a tuple for later tuples of the right side."""
    fields = {"out-field.0": "left.x", "out-field-name.0": "x"}
    join = read(document("join", {**BUFFERS, **fields}, inputs="s u")).queries[0].boxes[-1]
    assert isinstance(join, Join)
    assert (join.after_us, join.before_us) == (3_000_000, 8_000_000)
    ours = {"before": "8", "after": "3", **fields, "predicate": "true"}
    assert read(document("join", ours, inputs="s u")).queries[0].boxes[-1] == join


# -- load shedding --------------------------------------------------------------------------------


def rows(count: int) -> list[Row]:
    rng = random.Random(2)
    return [
        {"time": number // 3, "k": rng.choice("abcdef"), "x": rng.randrange(10**6), "y": 0.5}
        for number in range(count)
    ]


def kept(kind: str, **parameters: str) -> list[Row]:
    text = document(kind, {name.replace("window_", "window-"): v for name, v in parameters.items()})
    made = by_interpreter(read(text), {"s": rows(3000), "u": []})["out"]
    return [dict(zip(("time", "k", "x", "y"), row[1:], strict=True)) for row in made]


def test_a_random_drop_keeps_the_same_share_of_tuples_each_time() -> None:
    half, quarter = kept("random_drop", drop_rate="0.5"), kept("random_drop", drop_rate="0.75")
    assert 1350 < len(half) < 1650
    assert 600 < len(quarter) < 900
    assert all(row in half for row in quarter)
    assert len(kept("random_drop", drop_rate="0", max_batch_size="5")) == 3000
    assert kept("random_drop", drop_rate="1") == []


def test_a_window_drop_keeps_whole_windows() -> None:
    found = kept("window_drop", drop_rate="0.4", window_size="10")
    windows = {row["time"] // 10 for row in found}
    assert len(found) == 30 * len(windows)
    assert 45 < len(windows) < 75
    text = document("window_drop", {"drop_rate": "0.4", "window-size": "10", "group-by": "k"})
    made = by_interpreter(read(text), {"s": rows(3000), "u": []})["out"]
    groups = {(row[1] // 10, row[2]) for row in made}
    assert len(made) == sum((row["time"] // 10, row["k"]) in groups for row in rows(3000))
    assert 300 < len(groups) < 420


# -- tables ---------------------------------------------------------------------------------------


def test_a_table_that_no_box_changes_takes_posts() -> None:
    found = read(whole("", TABLE))
    assert found.streams[-1] == StreamDefinition(
        f"{BASE}/fleet", f"{BASE}/fleet/schema", table=True
    )
    assert {each.name: each.key for each in found.schemas}[f"{BASE}/fleet/schema"] == ("k",)


def test_a_table_that_boxes_change_is_made_of_their_changes() -> None:
    insert = table_box("insert", "u", "insert into fleet values (input.seen, input.k, input.z)")
    passed = '<out stream="passed"/>'
    delete = table_box("delete", "s", "delete from fleet where k = input.k", passed)
    (query,) = read(whole(insert + delete, TABLE)).queries
    assert [type(box) for box in query.boxes[2:]] == [Map, Map, Union, Union, Top]
    assert query.boxes[-1].name == "fleet/rows"
    assert f"{BASE}/fleet" in query.outputs
    assert isinstance(query.boxes[3], Map)
    assert dict(query.boxes[3].expressions) == {
        "since": "cast(null as int)",
        "k": "cast(k as string)",
        "z": "cast(null as int)",
        "deleted": "true",
        "changed": "stime",
    }


def test_a_lookup_without_a_row_may_pass() -> None:
    text = whole(
        '<box name="b" type="select"><in stream="s"/><out stream="out"/><access table="fleet"/>'
        '<parameter name="sql" value="select * from fleet where k = input.k"/>'
        '<parameter name="pass-on-no-results" value="1"/></box>',
        TABLE,
    )
    join = read(text).queries[0].boxes[-1]
    assert isinstance(join, Join)
    assert (join.kind, join.table, join.predicate) == (JoinKind.LEFT, True, "right.k = left.k")
    assert [name for name, _ in join.expressions] == ["since", "k", "z"]


# -- the document ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ('query="forward"/>', 'query="backward"/>', "no query medusa://mit.edu/backward"),
        ('<node endpoint="127.0.0.1:18000"/>', "", "it has 1 nodes: a query has a primary and one"),
        ('gap="0"', 'gap="some"', "gap 'some' is not a number of tuples"),
        ("<client ", '<move box="count" node="127.0.0.1:1"/><client ', "`medusa move TASK --to"),
        ("<client ", '<unsubscribe stream="Busy"/><client ', "end `medusa subscribe`"),
        ("<client ", "<server/><client ", "not expected within <deploy>; there are <publish>"),
        ('<client endpoint="127.0.0.1:25000"/>', '<client at="x"/>', 'endpoint="..." is missing'),
    ],
)  # fmt: skip
def test_a_deployment_is_checked(old: str, new: str, reason: str) -> None:
    assert old in INTRUSION
    with pytest.raises(InvalidInputError) as caught:
        read_document(INTRUSION.replace(old, new, 1), BASE)
    assert reason in str(caught.value)


def test_the_availability_of_a_query_overrides_its_replica_set() -> None:
    text = INTRUSION.replace('<query name="A">', '<query name="A" ha="passive" bound="2">')
    assert read_document(text, BASE).queries[1].availability.mode == "passive_standby"


def test_a_deployment_of_its_own_has_no_replica_sets() -> None:
    sets = """<region name="here"><node endpoint="127.0.0.1:15000"/></region>
      <replica_set name="r" query="Query1">
      <node endpoint="127.0.0.1:15000"/><node endpoint="127.0.0.1:17000"/></replica_set></deploy>"""
    with pytest.raises(InvalidInputError, match="`--ha active_standby`"):
        read_document(MONITORING_DEPLOYED.replace("</deploy>", sets), BASE)


@pytest.mark.parametrize(
    "type_",
    [
        '<!DOCTYPE borealis SYSTEM "x" [<!ENTITY a "b">]>',
        '<!DOCTYPE borealis SYSTEM "x" [<!ENTITY a SYSTEM "file:///etc/passwd">]>',
        '<!DOCTYPE borealis PUBLIC "a" "b">',
        '<!DOCTYPE medusa SYSTEM "borealis.dtd">',
        '<!DOCTYPE borealis SYSTEM "a"><!DOCTYPE borealis SYSTEM "b">',
        "<!DOCTYPE borealis>",
    ],
)
def test_only_the_document_type_of_borealis_is_passed_over(type_: str) -> None:
    assert read_document(f'<!DOCTYPE borealis SYSTEM "x">\n{whole("")}', BASE).queries
    with pytest.raises(InvalidInputError):
        read_document(f"{type_}\n{whole('')}", BASE)


def test_lines_are_counted_behind_a_document_type() -> None:
    text = f'<?xml version="1.0"?>\n<!DOCTYPE\n borealis SYSTEM\n "x">\n{whole("<bix/>")}'
    line = text[: text.index("<bix/>")].count("\n") + 1
    with pytest.raises(InvalidInputError, match=f"^line {line}: "):
        read_document(text, BASE)


# -- the page, and hostile documents --------------------------------------------------------------

PAGE = (Path(__file__).parents[3] / "docs" / "borealis.md").read_text()


def cells(line: str) -> list[str]:
    """Return the words in code of the cells of a table's row."""
    return re.split(r"(?<!\\)\|", line)[1:-1]


def words(cell: str) -> list[str]:
    return re.findall(r"`([\w.-]+)`", cell)


PARAMETERS = {
    kind: {name.replace(".N", ".0") for name in words(row[1])}
    for line in PAGE.partition("## Boxes")[2].splitlines()
    if line.startswith("| `") and len(row := cells(line)) == 3
    for kind in words(row[0])
} | {
    section: {
        name.replace(".N", ".0")
        for line in PAGE.partition(section)[2].partition("\n#")[0].splitlines()
        if line.startswith("| `")
        for name in words(cells(line)[0])
    }
    for section in ("### Parameters of aggregates", "### Parameters of joins")
}
"""The parameters that the page names, by the box."""


def test_the_page_has_every_box() -> None:
    assert PARAMETERS.keys() >= KINDS


PIECES = [
    *re.findall(r'[^>"]*[>"]', INTRUSION),
    *re.findall(r'[^>"]*[>"]', whole(selecting("select z from fleet where k = input.k"), TABLE)),
    *(f'"{kind}"' for kind in sorted(KINDS)),
    "TUPLES",
    "-1",
    "nan",
]


@settings(max_examples=examples(300, soak=3000))
@given(st.data())
def test_damaged_documents_are_read_or_refused(data: st.DataObject) -> None:
    text = data.draw(st.sampled_from([text for text, _ in REFUSED] + [INTRUSION, TOLLS]))
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(text)))
        end = start + data.draw(st.integers(0, 30))
        text = text[:start] + data.draw(st.sampled_from(PIECES) | st.text(max_size=3)) + text[end:]
    with contextlib.suppress(InvalidInputError):
        assert isinstance(read_document(text, BASE), Document)


@settings(max_examples=examples(300, soak=3000))
@given(
    st.sampled_from(sorted(KINDS)),
    st.dictionaries(
        st.sampled_from(sorted({name for names in PARAMETERS.values() for name in names})),
        st.sampled_from(
            ["0", "1", "20", "-3", "", "k", "x > 1", "count()", "TUPLES", "VALUES", "é"]
        ),
    ),
    st.sampled_from(["s", "s u", "u", ""]),
    st.sampled_from(["out", "out rest", ""]),
)
def test_any_parameters_are_read_or_refused(
    kind: str, parameters: dict[str, str], inputs: str, outputs: str
) -> None:
    text = document(kind, {name: escape(v) for name, v in parameters.items()}, inputs, outputs)
    with contextlib.suppress(InvalidInputError):
        assert isinstance(read_document(text, BASE), Document)


def test_sql_of_a_hostile_length_is_refused_at_once() -> None:
    for sql in (
        "select " + " " * 100_000,
        "select " + "from " * 1_600,
        "delete from fleet where " * 9,
    ):
        with pytest.raises(InvalidInputError, match="sql"):
            read_document(selecting(sql), BASE)


def test_no_query_has_more_boxes_than_others() -> None:
    box = '<box name="{}" type="union"><in stream="s"/><out stream="o{}"/></box>'
    boxes = "".join(box.format(number, number) for number in range(300))
    with pytest.raises(InvalidInputError, match="302 boxes; at most 256"):
        read_document(whole(boxes), BASE)
