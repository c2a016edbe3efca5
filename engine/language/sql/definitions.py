"""CREATE SCHEMA, STREAM and TABLE with fields: schemas and source streams."""

from __future__ import annotations

from typing import Final, TypeVar

from msgspec import UNSET
from sqlglot import exp

from medusa.engine.expressions.intervals import interval_us
from medusa.engine.expressions.type_grammar import TypeName, type_of
from medusa.engine.expressions.user_functions import check_names
from medusa.engine.language.sql.dialect import (
    Definition,
    FieldDefinition,
    FunctionDefinition,
    Watermark,
)
from medusa.engine.language.sql.errors import Source
from medusa.engine.language.sql.within import WITHIN, Within
from medusa.engine.objects.definitions import (
    DEFAULT_HISTORY_US,
    DEFAULT_IDLE_TIMEOUT_US,
    DEFAULT_MAX_AHEAD_US,
    MAX_SPAN_US,
    Idle,
    StreamDefinition,
    check_stream,
)
from medusa.engine.objects.functions import UserFunction, check_function
from medusa.engine.objects.schema import DELETED, Field, FieldType, Schema, check_schema
from medusa.overlay.alternatives import alternatives

SCHEMA_OF: Final = "schema"
"""The last segment of the name of a stream's own schema: `CREATE STREAM s (...)`."""


_ONE_KEY: Final = "there is one PRIMARY KEY: say PRIMARY KEY (a, b), behind the fields"

Default = TypeVar("Default")


class Options:
    """The options of a WITH clause; `finish` refuses options that nobody has read."""

    def __init__(self, node: Definition, source: Source) -> None:
        self._source = source
        self._given: dict[str, exp.Expr] = {}
        self._known: list[str] = []
        for each in node.args.get("options") or []:
            name = each.this.name.lower()
            if name in self._given:
                raise source.refusal(f"option {name[:64]} occurs twice", each)
            self._given[name] = each

    def take(self, name: str) -> exp.Expr | None:
        self._known.append(name)
        found = self._given.pop(name, None)
        return None if found is None else found.expression

    def text(self, name: str, default: str) -> str:
        node = self.take(name)
        if node is None:
            return default
        if not isinstance(node, (exp.Literal, exp.Var, exp.Column)):
            raise self._source.refusal(f"{name} takes a 'string'", node)
        return node.name

    def us(self, name: str) -> int | None:
        """A length of time: an INTERVAL, or a number of seconds; microseconds."""
        node = self.take(name)
        if node is None:
            return None
        if isinstance(node, exp.Literal):
            seconds = exp.Interval(this=node, unit=exp.var("SECOND"))
            seconds.meta.update(node.meta)
            node = seconds
        return interval_us(node, self._source)

    def within(self, otherwise: Within) -> Within:
        """Return the bound for joins and sessions without one; `otherwise` if the options have no
        bound."""
        given = self._given.get(WITHIN)
        bound_us = self.us(WITHIN)
        return otherwise if given is None else Within(bound_us, given)

    def flag(self, name: str, *, default: bool) -> bool:
        node = self.take(name)
        if node is None:
            return default
        if not isinstance(node, exp.Boolean):
            raise self._source.refusal(f"{name} is true or false", node)
        return bool(node.this)

    def number(self, name: str, default: int) -> int:
        node = self.take(name)
        if node is None:
            return default
        if not isinstance(node, exp.Literal) or not node.name.isdecimal():
            raise self._source.refusal(f"{name} takes a number", node)
        return int(node.name[:9])

    def members(self, name: str, default: Default) -> tuple[str, ...] | Default:
        """Names of participants in a string, separated by commas or blanks."""
        if name not in self._given:
            self._known.append(name)
            return default
        return tuple(self.text(name, "").replace(",", " ").split())

    def finish(self) -> None:
        for name, node in self._given.items():
            known = alternatives(name, self._known)
            raise self._source.refusal(f"there is no option {name[:64]} here; {known}", node)


def schema_of(node: Definition, name: str, source: Source) -> tuple[Schema, int | None]:
    """The schema in a list of fields, and the slack of its WATERMARK, microseconds."""
    fields: list[Field] = []
    key: list[str] = []
    time: str | None = None
    slack: int | None = None
    for each in node.args["fields"]:
        match each:
            case FieldDefinition():
                fields.append(_field(each, source))
                if "KEY" in each.args["constraints"]:
                    if key:
                        raise source.refusal(_ONE_KEY, each)
                    key.append(each.this.name)
            case Watermark():
                if time is not None:
                    raise source.refusal("a stream has one WATERMARK", each)
                time, slack = _watermark(each, source)
            case _ if key:
                raise source.refusal(_ONE_KEY, each)
            case _:
                key += [field.name for field in each.expressions]  # a Key
    said = {
        each.this.name
        for each in node.args["fields"]
        if isinstance(each, FieldDefinition) and "NULL" in each.args["constraints"]
    }
    never = {time, *key} - said
    fields = [
        Field(each.name, each.type, each.size, each.nullable and each.name not in never)
        for each in fields
    ]
    if node.args["kind"] == "TABLE" and all(each.name != DELETED for each in fields):
        fields.append(Field(DELETED, FieldType.BOOL, nullable=True))
    with source.pointing(node):
        schema = Schema(name, tuple(fields), time, tuple(key))
        check_schema(schema)
    return schema, slack


def stream_of(
    node: Definition, name: str, schema: str, slack_us: int | None, source: Source
) -> StreamDefinition:
    """The source stream of a CREATE STREAM or TABLE."""
    options = Options(node, source)
    table = node.args["kind"] == "TABLE"
    declared = options.us("slack")
    lateness = options.us("lateness")
    history = options.us("history")
    idle_timeout = options.us("idle_timeout")
    ahead = options.take("max_ahead")
    idle = options.text("idle", Idle.EXPLICIT)
    if idle not in set(Idle):
        raise source.refusal(f"idle is {' or '.join(Idle)}, not {idle[:40]!a}", node)
    if declared is not None and slack_us:
        raise source.refusal("the slack is that of WATERMARK, or that of WITH: say one", node)
    slack = declared if declared is not None else slack_us or 0
    with source.pointing(node):
        stream = StreamDefinition(
            name=name,
            schema=schema,
            slack_us=slack,
            history_us=DEFAULT_HISTORY_US if history is None else history,
            idle=Idle(idle),
            readers=options.members("readers", UNSET),
            writers=options.members("writers", ()),
            declassify=options.members("declassify", ()),
            leader=options.text("leader", ""),
            k_safety=options.number("k_safety", 0),
            max_ahead_us=_ahead(ahead, source),
            table=table,
            lateness_us=lateness or 0,
            idle_timeout_us=DEFAULT_IDLE_TIMEOUT_US if idle_timeout is None else idle_timeout,
        )
        check_stream(stream)
    options.finish()
    return stream


def function_of(node: FunctionDefinition, source: Source) -> UserFunction:
    """The function of a CREATE FUNCTION."""
    with source.pointing(node):
        function = UserFunction(
            node.this.name.lower(),
            tuple(_unsized(each, source) for each in node.args["arguments"]),
            _unsized(node.args["result"], source),
            node.args["source"].name,
            bool(node.args.get("deterministic")),
        )
        check_function(function)
        check_names([function])
        return function


def _unsized(node: TypeName, source: Source) -> FieldType:
    """The type of an argument or a result, which must have no size."""
    type_, size = type_of(node, source)
    if size is not None:
        raise source.refusal(f"texts of a function have no size: say {node.name}", node)
    return type_


def _ahead(node: exp.Expr | None, source: Source) -> int | None:
    if node is None:
        return DEFAULT_MAX_AHEAD_US
    if isinstance(node, (exp.Literal, exp.Column, exp.Var)) and node.name.lower() == "none":
        return None
    if isinstance(node, exp.Literal):
        node = exp.Interval(this=node, unit=exp.var("SECOND"))
    return interval_us(node, source)


def _field(node: FieldDefinition, source: Source) -> Field:
    type_, bound = type_of(node.args["kind"], source)
    constraints = node.args["constraints"]
    if len(set(constraints)) < len(constraints) or {"NULL", "NOT NULL"} <= set(constraints):
        raise source.refusal(f"{node.this.name[:40]} is NULL or NOT NULL, and said once", node)
    nullable = "NOT NULL" not in constraints and "KEY" not in constraints
    return Field(node.this.name, type_, bound, nullable)


def _watermark(node: Watermark, source: Source) -> tuple[str, int]:
    """`WATERMARK FOR ts AS ts - INTERVAL '5' SECOND`: the time field and the slack."""
    name, value = node.this.name, node.expression
    if isinstance(value, exp.Sub) and value.this.name == name:
        slack = interval_us(value.expression, source)
        if not 0 <= slack <= MAX_SPAN_US:
            raise source.refusal("a slack is 0 to 10 years", value)
        return name, slack
    if isinstance(value, exp.Column) and value.name == name:
        return name, 0
    raise source.refusal(f"a watermark is {name}, or {name} - INTERVAL '5' SECOND", node)
