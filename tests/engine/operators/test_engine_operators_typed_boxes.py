"""A script's box is handed on as it was typed, unless its inputs or its functions have changed."""

from __future__ import annotations

import msgspec

from medusa.engine.language.sql.script import Script
from medusa.engine.objects.functions import UserFunction
from medusa.engine.objects.schema import Field, FieldType, Schema

BASE = "medusa://t.edu"
S, OUT = f"{BASE}/s", f"{BASE}/out"
GIVEN = Schema(f"{S}/schema", (Field("n", FieldType.INT),))
WIDER = msgspec.structs.replace(GIVEN, fields=(Field("n", FieldType.LONG),))

CALLING = """CREATE FUNCTION half(n INT) RETURNS DOUBLE LANGUAGE PYTHON AS 'numbers.py:half';
CREATE STREAM out AS SELECT half(n) AS h FROM s"""


def test_a_box_is_typed_anew_over_an_input_that_has_other_fields_by_now() -> None:
    document = Script("CREATE STREAM out AS SELECT n + 1 AS m FROM s", BASE).complete(
        {S: GIVEN}, {}
    )
    ((box,),) = (query.boxes for query in document.queries)
    made = document.typed.typed(box, {S: GIVEN}, {})
    assert document.typed.typed(box, {S: GIVEN}, {}) is made
    (narrow,) = made.schemas[OUT].fields
    (wide,) = document.typed.typed(box, {S: WIDER}, {}).schemas[OUT].fields
    assert (narrow.type, wide.type) == (FieldType.INT, FieldType.LONG)


def test_a_box_is_typed_anew_with_the_code_of_a_function_that_its_peer_has() -> None:
    document = Script(CALLING, BASE).complete({S: GIVEN}, {})
    ((box,),) = (query.boxes for query in document.queries)
    declared = UserFunction("half", (FieldType.INT,), FieldType.DOUBLE, "numbers.py:half")
    pinned = msgspec.structs.replace(declared, fingerprint="ab" * 32)
    for function in (declared, pinned):
        (call,) = document.typed.typed(box, {S: GIVEN}, {"half": function}).steps[OUT].calls
        assert call.function == function
