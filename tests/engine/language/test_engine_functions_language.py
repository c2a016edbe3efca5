"""Queries call functions of users: in SQL, in the checks, in the class, and in the cut into
tasks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from field_texts import fields_of

from medusa.engine.expressions.user_functions import called_by
from medusa.engine.language.check import check_query
from medusa.engine.language.classes import BoxClass, class_of, strongest_recovery, weakest_class
from medusa.engine.language.document import Document
from medusa.engine.language.python.printing import query_as_python
from medusa.engine.language.same_query import is_same
from medusa.engine.language.sql.printing import document_as_sql
from medusa.engine.language.xml.writing import query_as_xml
from medusa.engine.objects.availability import Mode, Recovery
from medusa.engine.objects.definitions import StreamDefinition, StreamEntry
from medusa.engine.objects.functions import UserFunction
from medusa.engine.objects.query import Aggregate, AggregateCall, Filter, Join, JoinKind, Map, Query
from medusa.engine.objects.schema import Field, FieldType, Schema
from medusa.engine.reading import read_document, read_draft
from medusa.engine.tasks.calls import stages_of
from medusa.engine.tasks.explaining import explain
from medusa.engine.tasks.network import Network
from medusa.engine.tasks.plan import plan
from medusa.overlay.errors import InvalidInputError

F = FieldType
BASE = "medusa://mit.edu/"
POINTS = Schema(
    f"{BASE}points",
    fields_of("at timestamp, n int, x double?, y double"),
    time="at",
    key=("at", "n"),
)
DISTANCE = UserFunction("distance", (F.DOUBLE, F.DOUBLE), F.DOUBLE, "geo.py:distance", True)
SCORE = UserFunction("score", (F.LONG, F.STRING), F.BOOL, "entry:score")
KNOWN = {"distance": DISTANCE, "score": SCORE}

DECLARED = """
CREATE FUNCTION distance(x DOUBLE, y DOUBLE) RETURNS DOUBLE DETERMINISTIC
  LANGUAGE PYTHON AS 'geo.py:distance';
CREATE FUNCTION Score(n BIGINT, name VARCHAR) RETURNS BOOLEAN LANGUAGE PYTHON AS 'entry:score';
"""


def read(text: str) -> Document:
    return read_draft(DECLARED + text, BASE).complete({POINTS.name: POINTS}, {})


def query(*boxes: Any, outputs: tuple[str, ...] = ()) -> Query:
    return Query(f"{BASE}q", boxes, outputs, functions=(DISTANCE, SCORE))


def checked(*boxes: Any) -> Mapping[str, Schema]:
    return check_query(query(*boxes), {POINTS.name: POINTS})


def test_sql_names_the_functions_that_a_query_calls() -> None:
    document = read(
        "CREATE STREAM far AS SELECT n, DISTANCE(x, y) AS d FROM points WHERE score(n, 'a');"
        "CREATE STREAM plain AS SELECT n FROM points"
    )
    far, plain = document.queries
    assert set(far.functions) == {DISTANCE, SCORE}
    assert plain.functions == ()
    *_, made = far.boxes
    assert isinstance(made, Map)
    assert made.expressions == (("n", "n"), ("d", "distance(x, y)"))
    schema = check_query(far, {POINTS.name: POINTS})[f"{BASE}far"]
    assert schema.fields[1] == Field("d", F.DOUBLE, nullable=True)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT window_start, sum(distance(x, y)) AS total FROM TUMBLE(TABLE points, "
        "DESCRIPTOR(at), INTERVAL '1' MINUTE) GROUP BY window_start",
        "SELECT window_start, count(*) FILTER (WHERE score(n, 'a')) AS c FROM TUMBLE(TABLE points, "
        "DESCRIPTOR(at), INTERVAL '1' MINUTE) GROUP BY window_start",
        "SELECT window_start, max(x) AS m FROM TUMBLE(TABLE points, DESCRIPTOR(at), "
        "INTERVAL '1' MINUTE) GROUP BY window_start HAVING distance(max(x), 1.0) > 2.0",
        "SELECT distance(a.x, b.y) AS d FROM points a JOIN points b ON a.n = b.n AND "
        "b.at BETWEEN a.at - INTERVAL '1' SECOND AND a.at",
        "SELECT n, distance(distance(x, y), 2.0) BETWEEN 1.0 AND 2.0 AS near FROM points",
        "SELECT CASE WHEN score(n, NULL) THEN n END AS n FROM points",
    ],
)
def test_sql_calls_functions_wherever_an_expression_may_stand(text: str) -> None:
    """The printed script is read as the same query, and so is the XML."""
    (made,) = read(f"CREATE STREAM out AS {text}").queries
    assert made.functions
    inputs = {POINTS.name: POINTS}
    document = Document(queries=(made,))
    printed = document_as_sql(document, inputs)
    assert "LANGUAGE PYTHON AS" in printed
    (again,) = read_draft(printed, None).complete(inputs, {}).queries
    assert is_same(made, again, inputs)
    from_xml = read_document(query_as_xml(made)).queries[0]
    assert is_same(made, msgspec.structs.replace(from_xml, functions=made.functions), inputs)
    assert "distance(" in query_as_python(made) or "score(" in query_as_python(made)


def test_a_printed_query_has_no_fingerprint() -> None:
    (made,) = read("CREATE STREAM out AS SELECT distance(x, y) AS d FROM points").queries
    pinned = msgspec.structs.replace(DISTANCE, fingerprint="ab" * 32)
    at_a_peer = msgspec.structs.replace(made, functions=(pinned,))
    inputs = {POINTS.name: POINTS}
    assert "abab" not in document_as_sql(Document(queries=(at_a_peer,)), inputs)
    assert is_same(made, at_a_peer, inputs)
    other = msgspec.structs.replace(DISTANCE, source="other.py:distance")
    assert not is_same(made, msgspec.structs.replace(made, functions=(other,)), inputs)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("SELECT far(x) AS d FROM points", "there is no function 'far'"),
        ("SELECT distanc(x, y) AS d FROM points", "alike are distance"),
        ("SELECT distance(x) AS d FROM points", "is distance(double, double) double, not of"),
        ("SELECT distance(x, 'y') AS d FROM points", "not of (double, string)"),
        ("SELECT n FROM points WHERE distance(x, y)", "a condition must be true or false"),
        ("CREATE FUNCTION lower(s STRING) RETURNS INT LANGUAGE PYTHON AS 'a.py:l'", "part of the"),
        ("CREATE FUNCTION f(s STRING) RETURNS INT LANGUAGE JAVA AS 'a'", "LANGUAGE PYTHON"),
        ("CREATE FUNCTION f(s STRING) RETURNS INT LANGUAGE PYTHON", "AS 'FILE.py:NAME'"),
        ("CREATE FUNCTION f(s STRING) LANGUAGE PYTHON AS 'a.py:f'", "RETURNS a type"),
        ("CREATE FUNCTION f(s STRING) RETURNS MAP LANGUAGE PYTHON AS 'a'", "'MAP' is not a type"),
        ("CREATE FUNCTION f(STRING) RETURNS INT LANGUAGE PYTHON AS 'a'", "')' is not a type"),
        ("CREATE FUNCTION f RETURNS INT LANGUAGE PYTHON AS 'a'", "a function is CREATE FUNCTION"),
        ("CREATE FUNCTION f(s INT) IMMUTABLE RETURNS INT LANGUAGE PYTHON AS 'a'", "come RETURNS"),
        ("CREATE FUNCTION f() RETURNS INT LANGUAGE PYTHON AS 'a'", ""),
        (
            "CREATE FUNCTION score(s INT) RETURNS INT LANGUAGE PYTHON AS 'a.py:f'",
            "function score is another one already",
        ),
    ],
)
def test_sql_refusals(text: str, reason: str) -> None:
    with pytest.raises(InvalidInputError, match=r"at line \d+, column \d+") as raised:
        read(text)
    assert reason in str(raised.value)


@pytest.mark.parametrize(
    ("box", "reason"),
    [
        (
            Aggregate(
                "a",
                POINTS.name,
                f"{BASE}t",
                1000,
                1000,
                (),
                (AggregateCall("sum", "distance(x, y)", "s"),),
            ),
            "sum cannot call distance: call it in a map before it",
        ),
        (
            Join(
                "j",
                POINTS.name,
                POINTS.name,
                f"{BASE}t",
                JoinKind.INNER,
                0,
                0,
                "score(left.n, 'a')",
                (("n", "left.n"),),
            ),
            "the predicate of a join cannot call score",
        ),
        (
            Filter("f", POINTS.name, (f"{BASE}t", f"{BASE}u"), ("score(n, 'a')",), True),
            "a filter with several outputs cannot call score",
        ),
    ],
)
def test_boxes_that_cannot_call_functions(box: Any, reason: str) -> None:
    with pytest.raises(InvalidInputError) as raised:
        checked(box)
    assert reason in str(raised.value)


def test_a_filter_with_several_outputs_may_call_one_that_is_deterministic() -> None:
    outputs = (f"{BASE}t", f"{BASE}u")
    assert set(outputs) < set(
        checked(Filter("f", POINTS.name, outputs, ("distance(x, y) > 1.0",), True))
    )


def test_too_many_and_twice() -> None:
    box = Map("m", POINTS.name, f"{BASE}t", (("d", "x"),))
    many = tuple(msgspec.structs.replace(DISTANCE, name=f"f{n}") for n in range(65))
    for functions, reason in (
        (many, "65 functions"),
        ((DISTANCE, DISTANCE), "declared 2 times"),
        ((msgspec.structs.replace(DISTANCE, fingerprint="x"),), "no SHA-256"),
        ((msgspec.structs.replace(DISTANCE, source="a\nb"),), "its code is named like"),
        ((msgspec.structs.replace(DISTANCE, name="sum"),), "part of the language"),
    ):
        asked = Query(f"{BASE}q", (box,), functions=functions)
        with pytest.raises(InvalidInputError, match=reason):
            check_query(asked, {POINTS.name: POINTS})


# -- class and tasks -------------------------------------------------------------------------------


def test_the_class() -> None:
    sure = Map("m", POINTS.name, f"{BASE}t", (("d", "distance(x, y)"),))
    unsure = Map("u", f"{BASE}t", f"{BASE}v", (("d", "score(1, 'distance(')"),))
    functions = (DISTANCE, SCORE)
    assert called_by(unsure, KNOWN) == (SCORE,)
    assert class_of(sure, functions) is BoxClass.REPEATABLE
    assert class_of(unsure, functions) is BoxClass.ARBITRARY
    assert weakest_class(query(sure)) is BoxClass.REPEATABLE
    assert weakest_class(query(sure, unsure)) is BoxClass.ARBITRARY
    reach = {mode: strongest_recovery(mode, BoxClass.ARBITRARY) for mode in Mode}
    assert reach[Mode.PASSIVE_STANDBY] is Recovery.PRECISE
    assert reach[Mode.UPSTREAM_BACKUP] is reach[Mode.ACTIVE_STANDBY] is Recovery.GAP


def test_a_box_that_calls_one_ends_its_task() -> None:
    """The log keeps the results, so later tasks neither call the function again nor stay at this
    peer."""
    boxes = (
        Filter("few", POINTS.name, (f"{BASE}few",), ("x > 1.0",)),
        Map("call", f"{BASE}few", f"{BASE}called", (("n", "n"), ("d", "distance(x, y)"))),
        Filter("near", f"{BASE}called", (f"{BASE}near",), ("d < 5.0",)),
        Map("last", f"{BASE}near", f"{BASE}last", (("n", "n + 1"),)),
    )
    asked = query(*boxes)
    tasks = plan(asked, check_query(asked, {POINTS.name: POINTS}))
    assert [(task.name.removeprefix(BASE), task.functions) for task in tasks] == [
        ("called", (DISTANCE,)),
        ("last", ()),
    ]
    first, last = tasks
    stages = stages_of(first)
    assert stages is not None
    assert [len(stage.calls) for stage in stages.stages] == [1]
    assert stages_of(last) is None
    without = query(
        boxes[0], Map("call", f"{BASE}few", f"{BASE}called", (("n", "n"), ("d", "x"))), *boxes[2:]
    )
    assert len(plan(without, check_query(without, {POINTS.name: POINTS}))) == 1


def test_a_call_within_a_call_takes_two_stages_and_equal_calls_one() -> None:
    texts = (
        ("a", "distance(distance(x, y), 1.0) + distance(x, y)"),
        ("b", "case when distance(x, y) > 1.0 then score(n, 'a') end"),
    )
    asked = query(Map("m", POINTS.name, f"{BASE}t", texts))
    (task,) = plan(asked, check_query(asked, {POINTS.name: POINTS}))
    stages = stages_of(task)
    assert stages is not None
    assert [[call.function.name for call in stage.calls] for stage in stages.stages] == [
        ["distance", "score"],
        ["distance"],
    ]


def network(*functions: UserFunction, revised: bool = False) -> Network:
    stream = StreamDefinition(POINTS.name, "schema")
    points = POINTS if revised else msgspec.structs.replace(POINTS, key=())
    text = "distance(x, y)"
    asked = Query(
        f"{BASE}q",
        (Map("m", POINTS.name, f"{BASE}t", (("at", "at"), ("n", "n"), ("d", text))),),
        functions=functions,
    )
    return Network(asked, {POINTS.name: StreamEntry(stream, points)})


def test_the_plan_says_what_is_called_and_where_it_may_run() -> None:
    pinned = msgspec.structs.replace(DISTANCE, fingerprint="ab" * 32)
    (task,) = explain(network(pinned)).tasks
    (call,) = task.calls
    assert call.function == "distance(double, double) double"
    assert (call.source, call.deterministic) == ("geo.py:distance", True)
    assert call.runs == "peers of mit.edu that allow the same code abababababab"


def test_over_revised_tuples_a_function_is_deterministic() -> None:
    tasks = network(DISTANCE, revised=True).tasks()
    assert [task.of is not None for task in tasks] == [False, True]
    assert [task.functions for task in tasks] == [(DISTANCE,)] * 2
    unsure = msgspec.structs.replace(DISTANCE, deterministic=False)
    with pytest.raises(InvalidInputError, match="calls distance of tuples that may be revised"):
        network(unsure, revised=True).tasks()
