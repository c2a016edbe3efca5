from __future__ import annotations

import contextlib
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from medusa.engine.evaluation.expressions import evaluate
from medusa.engine.expressions.parsing import MAX_NESTING, MAX_TEXT
from medusa.engine.expressions.typed import Constant, Expression, FieldRef, Operation
from medusa.engine.expressions.typer import MAX_DEPTH, parse_expression, parse_predicate
from medusa.engine.objects.schema import STIME, FieldType
from medusa.engine.scalars.casts import CAST
from medusa.engine.scalars.rows import FUNCTIONS, OTHER_NAMES, SCALARS, SHORT_FORMS
from medusa.engine.scalars.type_rules import NUMBERS, common_type
from medusa.overlay.errors import InvalidInputError

F = FieldType

FIELDS = {
    "flag": F.BOOL,
    "tiny": F.BYTE,
    "small": F.SHORT,
    "n": F.INT,
    "big": F.LONG,
    "f": F.SINGLE,
    "d": F.DOUBLE,
    "s": F.STRING,
    "t": F.TIMESTAMP,
    # words that SQL reserves
    "timestamp": F.TIMESTAMP,
    "select": F.INT,
    "show": F.INT,
    "date": F.INT,
    "left": F.STRING,
    "interval": F.INT,
}

ROW = {
    **dict(zip(FIELDS, [True, 3, 4, 5, 6, 1.5, 2.5, "Ab.C", 9, 9, 1, 2, 3, "l", 4], strict=True)),
    STIME: 7,
}


def operations(expression: Expression) -> list[Operation]:
    if not isinstance(expression, Operation):
        return []
    return [expression, *(each for part in expression.operands for each in operations(part))]


@pytest.mark.parametrize(
    ("text", "type_", "value"),
    [
        ("n = 5", F.BOOL, True),
        ("n == 5", F.BOOL, True),
        ("n != 5 or n <> 4", F.BOOL, True),
        ("n + 1", F.INT, 6),
        ("tiny + small", F.SHORT, 7),
        ("n + big", F.LONG, 11),
        ("n * f", F.SINGLE, 7.5),
        ("n / 2", F.DOUBLE, 2.5),
        ("n / 0", F.DOUBLE, None),
        ("n % 3", F.INT, 2),
        ("-n % 3", F.INT, -2),
        ("- 2147483648", F.INT, -(2**31)),
        ("2147483648", F.LONG, 2**31),
        ("-9223372036854775808", F.LONG, -(2**63)),
        ("2147483647 + n", F.INT, None),
        ("1e3", F.DOUBLE, 1000.0),
        (".5 + 1.", F.DOUBLE, 1.5),
        ("1 + 2 * 3 - 4", F.INT, 3),
        ("(1 + 2) * 3", F.INT, 9),
        ("not n > 3 and flag", F.BOOL, False),
        ("not (n > 3 and not flag)", F.BOOL, True),
        ("n is null or s is not null", F.BOOL, True),
        ("n between 5 and 6.5", F.BOOL, True),
        ("n not between 5 and 6", F.BOOL, False),
        ("n in (1, big, 5)", F.BOOL, True),
        ("n not in (1, null)", F.BOOL, None),
        ("s || '.' || left", F.STRING, "Ab.C.l"),
        ("concat(s, 'it''s')", F.STRING, "Ab.Cit's"),
        ("lower(s)", F.STRING, "ab.c"),
        ("LOWER(s) = 'ab.c' AND TRUE", F.BOOL, True),
        ("substring_index(s, '.', 1)", F.STRING, "Ab"),
        ("length(s)", F.INT, 4),
        ("case when n > 9 then 'a' when flag then 'b' end", F.STRING, "b"),
        ("case n when 5 then 1 else 2.5 end", F.DOUBLE, 1.0),
        ("case when null then 1 end", F.INT, None),
        ("coalesce(null, n)", F.INT, 5),
        ("cast(n as long)", F.LONG, 5),
        ("cast(300 as byte)", F.BYTE, None),
        ("cast(null as string)", F.STRING, None),
        ("cast('1970-01-01T00:00:01' as timestamp)", F.TIMESTAMP, 1_000_000),
        ("cast('1970-01-01 01:00:00+01:00' as timestamp)", F.TIMESTAMP, 0),
        ("stime < timestamp", F.BOOL, True),
        ("select + show + date + interval", F.INT, 10),
        ('"select" + "n"', F.INT, 6),
        ("left = 'é'", F.BOOL, False),
        ("+n", F.INT, 5),
        ("flag", F.BOOL, True),
        ("n\n +\t1", F.INT, 6),
        ("t + INTERVAL '5' MINUTE", F.TIMESTAMP, 300_000_009),
        ("interval 10 seconds + t - (interval '1' second)", F.TIMESTAMP, 9_000_009),
        (
            "t + interval '1 second' - interval '1 second' - interval '-1 hours'",
            F.TIMESTAMP,
            3600000009,
        ),
        ("interval + 1 between interval and 9", F.BOOL, True),
        ("extract(hour FROM t) + hour(t)", F.INT, 0),
        ("extract(DAYOFWEEK from t)", F.INT, 5),
        ("TIMESTAMPDIFF(millisecond, t, stime + interval '1' second)", F.LONG, 999),
        ("date_trunc('year', t)", F.TIMESTAMP, 0),
        ("dayofmonth(t)", F.INT, 1),
        ("position('b' in s) + position('.', s)", F.INT, 5),
        ("position('.' in s) in (3, 4)", F.BOOL, True),
        (
            "trim(both ' ' from ' a ') || trim(BOTH from ' b ') || trim(' ' from ' c ')",
            F.STRING,
            "abc",
        ),
        ("trim(leading ' ' from ' a ') || trim(TRAILING FROM ' b ')", F.STRING, "a  b"),
        ("trim(trim(leading from s) || ' ')", F.STRING, "Ab.C"),
        (
            "substring(s from 2 for 2) || substring(s FROM 4) || substring(s for 1)",
            F.STRING,
            "b.CA",
        ),
        ("substring(substring(s from 2) from position('.' in s) - 1 for n)", F.STRING, ".C"),
        (
            "substring(case when s is distinct from left then s else left end from 1 + 1)",
            F.STRING,
            "b.C",
        ),
        ("s rlike '^A' and s not rlike '^b' and rlike(s, 'b')", F.BOOL, True),
        ("'a_c' like 'a!_c' escape '!' and 'abc' not like 'a!_c' escape '!'", F.BOOL, True),
        ("'a\\!c' like 'a\\!!%' escape '!'", F.BOOL, True),
        ("'ab%' like 'ab%%' ESCAPE '%' and not 'abc' like 'ab%%' escape '%'", F.BOOL, True),
        ("n is distinct from 5", F.BOOL, False),
        ("null is not distinct from n", F.BOOL, False),
        ("cast(null as int) is not distinct from null", F.BOOL, True),
        ("n + 1 is not distinct from 6 and flag", F.BOOL, True),
        ("if(flag, 1, null)", F.INT, 1),
        ("if(null, 1, 2.5)", F.DOUBLE, 2.5),
        ("nullif(n, 5)", F.INT, None),
        ("nullif(n, big)", F.INT, 5),
        ("ifnull(null, n)", F.INT, 5),
        ("sign(-d)", F.DOUBLE, -1.0),
        ("sign(-n)", F.INT, -1),
        ("mod(n, 3)", F.INT, 2),
        ("left(s, 2) || left", F.STRING, "Abl"),
        ("right(s, 3)", F.STRING, "b.C"),
        ("substr(s, 2)", F.STRING, "b.C"),
        ("lpad(s, 6) || rpad(left, 2, 'x')", F.STRING, "  Ab.Clx"),
        ("split_index(s, '.', 1)", F.STRING, "C"),
        ("length(s) - length(replace(s, 'b', ''))", F.INT, 1),
        ("bitor(tiny, small)", F.SHORT, 7),
        ("shiftleft(tiny, 2)", F.INT, 12),
        ("sqrt(tiny + 1)", F.DOUBLE, 2.0),
        ("to_timestamp('1970-01-01 00:00:01')", F.TIMESTAMP, 1_000_000),
        ("date_format(t, 'yyyy-MM-dd')", F.STRING, "1970-01-01"),
        ("json_value('{\"a\": [1.50]}', '$.a[0]')", F.STRING, "1.5"),
        ("ip_in_cidr('10.1.2.3', '10.0.0.0/8')", F.BOOL, True),
        ("ip_prefix('10.1.2.3', 24)", F.STRING, "10.1.2.0/24"),
        ("n::long + 10L", F.LONG, 15),
        ("TIMESTAMP '1970-01-01 00:00:01'", F.TIMESTAMP, 1_000_000),
        ("`n`", F.INT, 5),
        ("n <=> n and not flag is false", F.BOOL, True),
        ("extract(hour, t) + extract('hour', t)", F.INT, 0),
        ("t + interval '1.5' second - interval '0.5 second'", F.TIMESTAMP, 1_000_009),
        ("flag is true and flag is not false and cast(null as boolean) is not true", F.BOOL, True),
        ("cast(s as string(2)) || cast(left AS VARCHAR(9))", F.STRING, "Abl"),
    ],
)
def test_texts_become_typed_expressions(text: str, type_: FieldType, value: Any) -> None:
    expression = parse_expression(text, FIELDS)
    assert expression.type is type_
    assert evaluate(expression, ROW) == value


@pytest.mark.parametrize(
    "text",
    [
        *("-0.0", "-0e3", "-(0.0)", "cast('-0' as double)", "cast(' -.0e7' as single)"),
        *("d * 0 * -1", "-(d - d)", "round(-0.4)", "-5.0 % 5", "cast(-1e-46 as single)"),
        *("json_double('{\"a\":-0.0}', '$.a')", "sqrt(-0.0)", "abs(-0.0)", "f * 0 * -1"),
        *("greatest(0.0, -0.0)", "coalesce(null, -0.0)", "case when flag then -0.0 else d end"),
    ],
)
def test_no_value_is_a_negative_zero(text: str) -> None:
    """The value becomes 0.0, also as an argument of a user's function."""
    value = evaluate(parse_expression(text, FIELDS), ROW)
    assert (value, math.copysign(1, value)) == (0.0, 1)


@pytest.mark.parametrize(
    ("text", "operator"),
    [
        ("abs(n)", "abs"),
        ("ceil(d)", "ceil"),
        ("floor(d)", "floor"),
        ("round(d)", "round"),
        ("round(d, 9)", "round"),
        ("least(n, d)", "least"),
        ("greatest(s, 'x', null)", "greatest"),
        ("upper(s)", "upper"),
        ("trim(s)", "trim"),
        ("substring(s, 2)", "substring"),
        ("substring(s, n, tiny)", "substring"),
        ("s like 'a\\%_%'", "like"),
        ("cast(s as double)", "cast"),
        ("cast(flag as string)", "cast"),
        ("cast(t as long)", "cast"),
    ],
)
def test_every_other_operator(text: str, operator: str) -> None:
    assert operations(parse_expression(text, FIELDS))[0].operator == operator


def test_a_parsed_expression_has_typed_nodes() -> None:
    assert parse_expression("n > 2.5", FIELDS) == Operation(
        ">", (Operation("cast", (FieldRef("n", F.INT),), F.DOUBLE), Constant(2.5, F.DOUBLE)), F.BOOL
    )
    assert parse_expression("s not like 'x'", FIELDS) == Operation(
        "not",
        (Operation("like", (FieldRef("s", F.STRING), Constant("x", F.STRING)), F.BOOL),),
        F.BOOL,
    )
    assert parse_expression("flag and flag and flag", FIELDS) == Operation(
        "and", (FieldRef("flag", F.BOOL),) * 3, F.BOOL
    )
    assert parse_expression("big = 1", FIELDS).operands[1] == Constant(1, F.LONG)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("text", "reason", "place"),
    [
        ("java_method('java.lang.Runtime', 'getRuntime')", "no function 'java_method'", 1),
        ("n + reflect('x', 'y')", "no function 'reflect'", 5),
        ("(select 1)", "syntax error at '1'", 9),
        ("n in (select n from x)", "syntax error at 'n'", 14),
        ("exists(select 1)", "syntax error at '1'", 15),
        ("n; drop table x", "';' is not allowed", 2),
        ("n -- x", "comments", 1),
        ("n /* x */ + 1", "comments", 1),
        ("/*+ hint */ n", "hints are not part", 1),
        ("n + /* x", "does not end", 5),
        ("s = 'abc", "does not end", 5),
        ('s = "abc', "does not end", 5),
        ("s = 'a' || 'b", "does not end", 12),
        ("n) + (n", "a parenthesis does not close", 6),
        ("(n", "a parenthesis does not close", 1),
        ("case when flag then 1", "too early", 21),
        ("", "empty", 1),
        ("  ", "empty", 1),
        ("n +", "too early", 3),
        ("and", "too early", 1),
        ("n 1", "'1' is a mistake", 3),
        ("n n", "'n' is a mistake", 3),
        ("'a' 'b'", "not part of the language", 5),
        ("n as x", "syntax error at 'as'", 3),
        ("unknown > 1", "no field 'unknown'", 1),
        ("n + 1 > N", "no field 'N'", 9),
        ("s.n", "qualified name", 1),
        ("s.*", "not part of the language", 1),
        ("count(*)", "no function 'count'", 1),
        ("lower(*)", "lower(*) is not part of the language here: only count takes *", 1),
        ("lower(distinct s)", "syntax error at 's'", 16),
        ("lower(s) over ()", "syntax error at 'over'", 10),
        ("row_number() over ()", "syntax error at 'over'", 14),
        ("lower()", "takes one string", 1),
        ("lower(n)", "takes one string, not (int)", 1),
        ("lower(s, s)", "takes one string, not (string, string)", 1),
        ("lpad(s, 'a')", ", not (string, string)", 1),
        ("n + 's'", "`+` takes two numbers, not (int, string)", 1),
        ("n and flag", "takes booleans", 1),
        ("s > 1", "not (string, int); cast(string AS INT) is one", 1),
        ("t > '2018-01-01'", "not (timestamp, string); to_timestamp(string) is a timestamp", 1),
        ("s || n", "`||` takes strings, not (string, int); cast(int AS STRING) is one", 1),
        ("concat(s, d)", "`concat` takes strings, not (string, double)", 1),
        ("flag < flag", "takes two numbers, strings or timestamps", 1),
        ("case when n then 1 end", "boolean conditions", 1),
        ("case when flag then 1 else 's' end", "values of one type", 1),
        ("case when flag then null end", "null has no type", 1),
        ("null", "null has no type", 1),
        ("null = null", "null has no type", 1),
        ("s like s", "operand 2 of `like` must be a constant", 1),
        ("s like 'a\\'", "backslash", 1),
        ("like(s, 'x')", "no function 'like'", 1),
        ("round(d, n)", "operand 2 of `round` must be a constant", 1),
        ("round(d, 10)", "constant from 0 to 9", 1),
        ("cast(n as decimal(3, 2))", "'decimal' is not a type", 11),
        ("cast(n as int array)", "syntax error at 'array'", 15),
        ("cast(n as void)", "'void' is not a type", 11),
        ("try_cast(n as int)", "TRY_CAST is not part of the language", 10),
        ("cast(d as string)", "double cannot be cast to string", 1),
        ("cast(s as timestamp)", "string cannot be cast to timestamp", 1),
        ("cast('soon' as timestamp)", "not a time", 1),
        ("n is true", "`=` takes two numbers", 1),
        ("n in ()", "list of values", 1),
        ("n in big", "IN takes a list of values in parentheses", 1),
        ("1e", "not a number", 1),
        ("1e999", "does not fit", 1),
        ("9223372036854775808", "does not fit", 1),
        ("9" * 5000, "does not fit", 1),
        ("n -> n", "`->` is not part of the language here: say json_value", 3),
        ("n[1]", "of JSON say json_value(s, '$[0]')", 1),
        ("{'a': 1}", "`:` is not part of the language: say json_value", 5),
        ("{{ n }}", "not part of the language", 1),
        ("$1", "`$` is not part of the language", 1),
        ("?", "`?` is not part of the language", 1),
        (":x", "`:` is not part of the language", 1),
        ("@@version", "`@@version` is not part of the language", 1),
        ("n \x00", "'\\x00' is not allowed", 3),
        ("s = '\x07'", "not allowed", 6),
        ("s = '\ud800'", "not allowed", 6),
        ("größe > 1", "no field 'gr\\xf6\\xdfe'", 1),
        ("n ＋ 1", "syntax error at '\\uff0b'", 3),
        ("interval '1' day", "an interval stands only after the + or - of a timestamp", 1),
        ("n + interval '1' day", "takes a timestamp and an interval, not (int, long)", 1),
        ("t + interval '1' month", "a month has no fixed length: write the interval in days", 5),
        ("t + interval 2 years", "a year has no fixed length", 5),
        ("t + interval '1 day 2'", "an interval is a number and a unit", 5),
        ("t + interval '9' fortnight", "an interval's unit is one of microsecond", 5),
        ("t + interval '99999999999999' week", "longer than any two timestamps are apart", 5),
        ("interval '1' day - t", "a timestamp cannot be taken from an interval", 1),
        ("t - t", "`-` takes two numbers, not (timestamp, timestamp)", 1),
        ("interval(5)", "no function 'interval'", 1),
        ("extract(n from t)", "`extract` takes one of day, dayofweek", 1),
        ("timestampdiff(month, t, t)", "a month has no fixed length", 1),
        ("date_trunc(s, t)", "operand 1 of `date_trunc` must be a constant", 1),
        ("date_trunc('decade', t)", "the unit must be one of day, hour", 1),
        ("date_format(t, 'YYYY-MM')", "the pattern has 'YYYY' at its character 1; there are", 1),
        ("date_format(t, 'yyyy-M')", "the pattern has 'M' at its character 6; there are", 1),
        ("date_format(t, '')", "the pattern has 0 characters", 1),
        ("to_timestamp(s, 'HH:mm')", "the pattern has no yyyy", 1),
        ("to_timestamp(s, 'yyyy-MM-dd mm')", "the pattern has mm without HH", 1),
        ("to_timestamp(s, 'yyyyMMdd dd')", "the pattern has dd twice", 1),
        ("regexp_like(s, s)", "operand 2 of `regexp_like` must be a constant", 1),
        ("regexp_like(s, null)", "the pattern must be a string", 1),
        ("n = 1 and s rlike '(a+)+$'", "the pattern has at its character 5: a group that", 11),
        ("regexp_extract(s, 'a(b)', 2)", "the group must be 0 to 1", 1),
        ("regexp_replace(s, 'a*', '')", "the pattern must not match an empty text", 1),
        ("regexp_replace(s, 'a', '$1')", "a $ of the replacement must be that of a group", 1),
        ("regexp_replace(s, 'a', '\\')", "a backslash is not allowed", 1),
        ("split_index(s, '', 1)", "the delimiter must be a string of 1 to 256 characters", 1),
        (
            "s like 'a!' escape '!'",
            "'!' of `escape` must precede %, _ or itself in the pattern",
            20,
        ),
        ("s like 'a!b' escape '!'", "must precede %, _ or itself", 21),
        ("s like 'a' escape '!!'", "takes one character, not '!!'", 19),
        ("s like left escape '!'", "`escape` stands behind the pattern of `like`, a string", 1),
        ("json_value(s, 'a.b')", "the path does not begin with $", 1),
        ("json_value(s, '$')", "the path names no member, as $.name and", 1),
        ("json_value(s, '$.a[*]')", "has at its character 4: neither .name, ['a name'] nor [0]", 1),
        ("json_value(s, '$..a')", "the path has at its character 2", 1),
        ("ip_in_cidr(s, '10.0.0.1/8')", "10.0.0.1/8 has host bits set", 1),
        ("ip_in_cidr(s, '10.0.0.0')", "the network must be one like '10.0.0.0/8'", 1),
        ("ip_in_cidr(s, 'x')", "the network must be one like '10.0.0.0/8'", 1),
        ("ip_prefix(s, 33)", "the bits must be 0 to 32", 1),
        ("ip_prefix(s, 24, 129)", "the bits must be 0 to 128", 1),
        ("sha2(s, 1)", "the bits must be one of (224, 256, 384, 512)", 1),
        ("mod(n)", "`mod` takes two numbers", 1),
        ("if(n, 1, 2)", "`case` takes boolean conditions", 1),
        ("power(d, 2)", "no function 'power': its last bits differ", 1),
        ("rand() > d", "no function 'rand': a result must be the same", 1),
        ("now() > t", "computed; the time of a tuple is stime", 1),
        ("uper(s) = 'X'", "no function 'uper'; alike are upper; CREATE FUNCTION names", 1),
        ("service(n) = 'x'", "no function 'service'; `medusa function list` names all; CREATE", 1),
        ("n is distinct", "after IS comes NULL, NOT NULL, TRUE or FALSE", 1),
        ("bitand(n, d)", "takes two integers, not (int, double)", 1),
        ("shiftleft(n, big)", "an integer and a number of bits", 1),
        ("trim(both 'x' from s)", "trim takes blanks off", 6),
        ("(n, n)", "`(n, n)` is not part", 1),
        ("n & 1", "`&` is not part of the language here: say bitand(a, b)", 3),
        ("substring(s, big)", "not (string, long)", 1),
        ("x'ff'", "'ff' is a mistake", 2),
        ("sleep(10)", "no function 'sleep'", 1),
        ("current_user", "no field", 1),
        ("seq = 1", "no field 'seq'", 1),
    ],
)
def test_the_rest_is_refused_with_reason_and_place(text: str, reason: str, place: int) -> None:
    with pytest.raises(InvalidInputError) as caught:
        parse_expression(text, FIELDS)
    assert reason in str(caught.value)
    assert str(caught.value).endswith(f"at character {place}")
    assert len(str(caught.value)) < 700


def nested(opening: str, depth: int, closing: str = "") -> str:
    return opening * depth + "n" + closing * depth


@pytest.mark.parametrize(
    "text",
    [
        nested("(", 10_000, ")"),
        nested("(", 2_000, ")"),
        nested("(", MAX_NESTING + 1, ")"),
        "not " * 1_000 + "flag",
        nested("- ", 1_000),
        nested("abs(", 900, ")"),
        nested("cast(", 400, " as int)"),
        "case when " * 200 + "flag" + " then 1 end" * 200,
        "n" + " + n" * (MAX_DEPTH + 1),
        "n" + " + n" * 10_000,
        "n = 1" + " or n = 1" * 900,
        "a" * 2**20,
        "n > 1 and " * 100_000 + "n > 1",
        "(" * 2_000,
        "n in (" + "1, " * 1_050 + "1)",
    ],
)
def test_limits_are_refused(text: str) -> None:
    with pytest.raises(InvalidInputError, match=r"at character \d+$"):
        parse_expression(text, FIELDS)


@pytest.mark.parametrize(
    "text",
    [
        nested("(", MAX_NESTING - 1, ")"),
        nested("abs(", MAX_NESTING - 1, ")"),
        nested("-(", MAX_NESTING // 2 - 1, ")"),
        "n" + " + n" * (MAX_DEPTH - 1),
        "n = 1" + " or n = 1" * 400,
        "s" + " || s" * 400,
        "case when flag then " * 15 + "1" + " end" * 15,
        "n in (" + "1, " * 500 + "1)",
    ],
)
def test_expressions_within_the_limits_are_parsed(text: str) -> None:
    def deep(frames: int) -> Expression:
        return parse_expression(text, FIELDS) if frames == 0 else deep(frames - 1)

    # a daemon's handler already runs at some depth of the stack
    assert deep(150).type in FieldType


def test_conditions_must_be_boolean() -> None:
    assert parse_predicate("n > 1", FIELDS).type is F.BOOL
    with pytest.raises(InvalidInputError, match="it gives int; a condition must be"):
        parse_predicate("n", FIELDS)


def test_the_table_is_complete_and_widens() -> None:
    assert {CAST, *SCALARS, *SHORT_FORMS, *OTHER_NAMES} > FUNCTIONS
    assert not {*SHORT_FORMS, *OTHER_NAMES} & {CAST, *SCALARS}
    assert {*OTHER_NAMES.values()} <= {*SCALARS, *SHORT_FORMS}
    assert common_type([F.BYTE, F.SINGLE, F.LONG]) is F.SINGLE
    assert common_type([F.STRING, F.INT]) is None
    for name, operator in SCALARS.items():
        for type_ in FieldType:
            for count in (1, 2, 3):
                resolution = operator.types([type_] * count)
                if resolution is not None:
                    assert len(resolution.operands) == count, name


@given(st.sampled_from(NUMBERS), st.sampled_from(NUMBERS))
def test_operands_end_up_of_one_type(left: FieldType, right: FieldType) -> None:
    expression = parse_expression("x + y", {"x": left, "y": right})
    assert isinstance(expression, Operation)
    assert {operand.type for operand in expression.operands} == {expression.type}
    assert expression.type is max(left, right, key=NUMBERS.index)


KEYWORDS = """and or not in is null true like between case when then else end cast as int select
from over distinct java_method escape execute values"""
SIGNS = """0 1 2.5 1e5 'x' '%' "n" ( ) ( ) , + - * / % = == <> < >= || . :: : ; [ ] { } {% @ ? $ --
/* */ # \\ ` =>"""
WORDS = st.sampled_from([*FIELDS, STIME, *FUNCTIONS, *KEYWORDS.split(), *SIGNS.split()])


TEXTS = (
    st.text(max_size=60)
    | st.lists(WORDS, max_size=14).map(" ".join)
    | st.lists(WORDS, max_size=9).map("".join)
)


@settings(max_examples=600)
@given(TEXTS)
def test_any_text_is_an_expression_or_refused(text: str) -> None:
    with contextlib.suppress(InvalidInputError):
        expression = parse_expression(text, FIELDS)
        assert all(each.operator in {CAST, *SCALARS} for each in operations(expression))
        assert len(text) <= MAX_TEXT
