"""A script: SQL statements to the schemas, streams and queries that they define."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Final

import msgspec
from sqlglot import exp

from medusa.engine.expressions.printing import name_text
from medusa.engine.expressions.unread import read_whole_parts, watch
from medusa.engine.expressions.user_functions import without_unused
from medusa.engine.language.check import completed
from medusa.engine.language.document import Document
from medusa.engine.language.gaps import gaps
from medusa.engine.language.sql.definitions import (
    SCHEMA_OF,
    Options,
    function_of,
    schema_of,
    stream_of,
)
from medusa.engine.language.sql.dialect import Definition, FunctionDefinition, Split
from medusa.engine.language.sql.errors import Source
from medusa.engine.language.sql.network import Boxes
from medusa.engine.language.sql.parsing import parse
from medusa.engine.language.sql.parts import refuse_unread
from medusa.engine.language.sql.ranking import NUMBERED_BY
from medusa.engine.language.sql.relation import HIDDEN, Relation
from medusa.engine.language.sql.select import FROM_TAKES, Resolve, Selecting
from medusa.engine.language.sql.within import Within
from medusa.engine.objects.availability import requested
from medusa.engine.objects.definitions import StreamDefinition
from medusa.engine.objects.functions import UserFunction
from medusa.engine.objects.query import Query
from medusa.engine.objects.schema import BEGINNING, END, Schema
from medusa.engine.operators.typing import TypedBoxes
from medusa.overlay.errors import InvalidInputError
from medusa.overlay.names import SCHEME, ObjectName

MAIN: Final = "answer"
"""The stream of a script's SELECT that has no name."""


class Script:
    """A parsed script.

    Args:
        base: `medusa://participant/`, the prefix for names without a participant; None: every name
            must have one. Raises: InvalidInputError: it has a syntax error; the message names the
            line and the column.
    """

    def __init__(self, text: str, base: str | None) -> None:
        self._source = Source(text)
        self._base = None if base is None else base.rstrip("/")
        self._statements, self._explain = parse(self._source)
        if not self._statements:
            raise self._source.refusal("the script has no statement", 0)

    @property
    def reads(self) -> frozenset[str]:
        """The streams that it reads and does not define."""
        made: set[str] = set()
        read: set[str] = set()
        for statement in self._statements:
            nodes = list(statement.walk())
            hidden = {node.alias for node in nodes if isinstance(node, exp.CTE)}
            for node in nodes:
                if isinstance(node, Definition) and node.args["kind"] != "SCHEMA":
                    made |= {self._name(each) for each in _names(node)}
                if not isinstance(node, exp.Table) or isinstance(node.parent, Definition):
                    continue
                if node.args.get("db") or node.name not in hidden:
                    read.add(self._name(node))
        return frozenset(read - made)

    @property
    def uses(self) -> frozenset[str]:
        """The schemas that its streams have and that it does not define."""
        nodes = [node for each in self._statements for node in each.find_all(Definition)]
        made = {self._name(node.this) for node in nodes if node.args["kind"] == "SCHEMA"}
        used = {self._name(node.args["schema"]) for node in nodes if node.args.get("schema")}
        return frozenset(used - made)

    def complete(
        self,
        streams: Mapping[str, Schema],
        schemas: Mapping[str, Schema],
        tables: Collection[str] = (),
    ) -> Document:
        """The document of the script's definitions: see `medusa.engine.language.document.Draft`.

        Raises:
            InvalidInputError: it does not type-check, or asks for a result that an endless stream
                cannot have; the message names the line and the column.
        """
        named = {
            name: msgspec.structs.replace(schema, name=name) for name, schema in streams.items()
        }
        definer = _Definer(self._source, self._name, named, schemas, tables)
        for statement in self._statements:
            definer.add(statement)
        made = definer.document
        remarks = (*self._source.unsaid.remarks(), *gaps(made.queries))
        return replace(made, explain=self._explain, remarks=remarks)

    def _name(self, node: exp.Table) -> str:
        db = node.args.get("db")
        parts = [str(db), node.name] if isinstance(db, str) else [each.name for each in node.parts]
        if node.this.find(exp.Func) is not None:
            raise self._source.refusal(f"this is a call: {FROM_TAKES}", node)
        # a name of more than three parts is a tree, which is read here
        read_whole_parts(node, ("this",))
        with self._source.pointing(node):
            if parts[-1].startswith(SCHEME):
                return str(ObjectName.parse(parts[-1]))
            base = f"{SCHEME}{'.'.join(parts[:-1])}" if len(parts) > 1 else self._base
            if base is None:
                raise InvalidInputError(
                    f"{parts[-1][:80]} has no participant: say mit.edu.{parts[-1][:80]}"
                )
            return str(ObjectName.parse(f"{base}/{parts[-1]}"))


def _names(node: Definition) -> list[exp.Table]:
    return [node.this, *(node.args.get("more") or [])]


class _Definer:
    """Runs through the statements of a script once."""

    def __init__(
        self,
        source: Source,
        name: Resolve,
        streams: Mapping[str, Schema],
        schemas: Mapping[str, Schema],
        tables: Collection[str],
    ) -> None:
        self._source = source
        self._name = name
        self._tables = set(tables)
        self._known = dict(streams)
        self._named = dict(schemas)
        self._relations: dict[str, Relation] = {}
        self._schemas: list[Schema] = []
        self._streams: list[StreamDefinition] = []
        self._queries: list[Query] = []
        self._functions: dict[str, UserFunction] = {}
        self._typed = TypedBoxes()

    @property
    def document(self) -> Document:
        return Document(
            tuple(self._schemas), tuple(self._streams), tuple(self._queries), typed=self._typed
        )

    def add(self, node: exp.Expr) -> None:
        """Add the definition in a statement.

        Raises:
            PointedError: the statement defines nothing, or a part of it has no meaning here.
        """
        parts = watch(node)
        self._define(node)
        refuse_unread(parts, self._source)

    def _define(self, node: exp.Expr) -> None:
        match node:
            case FunctionDefinition():
                self._function(node)
            case Definition(args={"kind": "SCHEMA"}):
                self._schema(node)
            case Definition() if node.args.get("query") or node.args.get("body"):
                self._query(node)
            case Definition(args={"kind": "QUERY"}):
                raise self._source.refusal("a query is AS BEGIN ... END", node)
            case Definition():
                self._stream(node)
            case exp.Select() | exp.SetOperation() | exp.Subquery():
                table = exp.Table(this=exp.to_identifier(MAIN))
                self._query(Definition(this=table, kind="STREAM", query=node))
            case _:
                raise self._source.refusal("this statement is not part of a script", node)

    def _function(self, node: FunctionDefinition) -> None:
        function = function_of(node, self._source)
        if self._functions.get(function.name, function) != function:
            raise self._source.refusal(f"function {function.name} is another one already", node)
        self._functions[function.name] = function
        self._source.declared.add(function.name.lower())

    def _schema(self, node: Definition) -> None:
        if not node.args.get("fields"):
            raise self._source.refusal(
                "a schema is a list of fields: CREATE SCHEMA s (a INT)", node
            )
        if node.args.get("schema") or node.args.get("query") or node.args.get("more"):
            raise self._source.refusal("a schema is a list of fields, and nothing else", node)
        name = self._name(node.this)
        schema, slack = schema_of(node, name, self._source)
        if slack:
            reason = "a schema has a time and no slack: CREATE STREAM has it, WITH (slack = ...)"
            raise self._source.refusal(reason, node)
        Options(node, self._source).finish()
        self._named[name] = schema
        self._schemas.append(schema)

    def _stream(self, node: Definition) -> None:
        """A source stream."""
        name, given = self._name(node.this), node.args.get("schema")
        if node.args.get("more"):
            raise self._source.refusal("this declares one stream; SPLIT makes several", node)
        if given is not None and node.args.get("fields"):
            raise self._source.refusal("a stream has fields or a schema, not both", given)
        slack = None
        if given is not None:
            schema_name = self._name(given)
            schema = self._named.get(schema_name)
            if schema is None:
                raise self._source.refusal(f"there is no schema {schema_name}", given)
        elif node.args.get("fields"):
            schema_name = f"{name}/{SCHEMA_OF}"
            schema, slack = schema_of(node, schema_name, self._source)
            self._schemas.append(schema)
        else:
            raise self._source.refusal(
                "a stream has fields, (a INT, ...), or a schema, USING name; or it is made, AS "
                "SELECT",
                node,
            )
        if node.args["kind"] == "TABLE" and schema is not None and not schema.key:
            raise self._source.refusal("a table needs a PRIMARY KEY", node)
        self._streams.append(stream_of(node, name, schema_name, slack, self._source))
        if node.args["kind"] == "TABLE":
            self._tables.add(name)
        if schema is not None:
            self._known[name] = msgspec.structs.replace(schema, name=name)

    def _query(self, node: Definition) -> None:
        name = self._name(node.this)
        body = node.args.get("body") or [node]
        boxes = Boxes(self._source, self._known, self._tables, self._functions)
        options = Options(node, self._source)
        within = options.within(Within())
        outputs: list[str] = []
        hidden: dict[str, exp.Expr] = {}
        readers: dict[str, tuple[str, ...]] = {}
        for each in body:
            own = options if each is node else Options(each, self._source)
            bound = within if own is options else own.within(within)
            streams = self._made(each, boxes, own, bound)
            if bound is not within:
                bound.finish(self._source)
            for name_, stream in zip(_names(each), streams, strict=True):
                if each.args.get("temporary") or name_.args.get("temporary"):
                    hidden[stream] = name_
                else:
                    outputs.append(stream)
            readers |= _readers(own, streams)
            if own is not options:
                own.finish()
        within.finish(self._source)
        read = {stream for box in boxes.boxes for stream in box.inputs}
        for stream, at in hidden.items():
            if stream not in read:
                raise self._source.refusal(
                    "a TEMPORARY stream is one that another stream of its QUERY reads", at
                )
        with self._source.pointing(node):
            query = Query(
                name,
                boxes.boxes,
                tuple(stream for stream in outputs if stream in read),
                readers=tuple(readers.items()),
                functions=tuple(self._functions.values()),
            )
            query = _completed(without_unused(query), options)
        options.finish()
        boxes.note_typed(self._typed)
        self._known, self._tables = boxes.schemas, boxes.tables
        self._queries.append(query)

    def _made(
        self,
        node: Definition,
        boxes: Boxes,
        options: Options,
        within: Within,
    ) -> list[str]:
        """The boxes of one CREATE STREAM of a query; returns the streams that it names."""
        made_of = node.args.get("query")
        if node.args["kind"] == "SCHEMA" or made_of is None:
            raise self._source.refusal(
                "a query's streams are made: CREATE STREAM s AS SELECT", node
            )
        if node.args.get("fields") or node.args.get("schema"):
            raise self._source.refusal("the SELECT says the fields of this stream", node)
        streams = [self._name(each) for each in _names(node)]
        for stream in streams:
            if stream in boxes.schemas:
                raise self._source.refusal(f"{stream} is there already", node)
        name = options.text("box", streams[0].rpartition("/")[2])
        boxes.begin(streams[0])
        selecting = Selecting(boxes, self._source, self._name, self._relations, within)
        if isinstance(made_of, Split):
            selecting.split(made_of, streams, name)
        elif len(streams) > 1:
            raise self._source.refusal("a SELECT makes one stream; SPLIT makes several", node)
        else:
            relation = selecting.relation(made_of)
            self._check_key(relation, boxes, made_of)
            if node.args["kind"] == "TABLE" and relation.stream not in boxes.tables:
                reason = "this SELECT gives a stream, and no table: say CREATE STREAM"
                raise self._source.refusal(reason, node)
            schema = boxes.finish(relation.schema, streams[0], name, made_of)
            self._relations[streams[0]] = Relation(schema, relation.columns)
        return streams

    def _check_key(self, relation: Relation, boxes: Boxes, at: exp.Expr) -> None:
        """Refuse a table that lacks a column of its key: its rows would be ambiguous."""
        if relation.stream not in boxes.tables:
            return
        shown = {each.text for each in relation.shown()}
        hidden = [name for name in relation.schema.key if name_text(name) not in shown]
        if hidden:
            names = (
                "an expression of PARTITION BY" if NUMBERED_BY in name else name for name in hidden
            )
            left_out = ", ".join(name.removeprefix(HIDDEN) for name in names)
            raise self._source.refusal(
                f"the rows of this table are told apart by {left_out}, which SELECT leaves out: "
                "add it",
                at,
            )


def _readers(options: Options, streams: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """The declared readers of a statement's streams: "readers" for all of them, "readers.2" for the
    second alone. An empty list is a declaration, too: only the owner reads the stream.
    """
    found = {}
    everyone = ("", "*")  # no list of names equals this one, because no name is empty
    of_all = options.members("readers", everyone)
    for number, stream in enumerate(streams, 1):
        declared = options.members(f"readers.{number}", of_all)
        if declared is not everyone:
            found[stream] = declared
    return found


def _completed(query: Query, options: Options) -> Query:
    """The query with the availability and the part of the past that its options say: FROM and UNTIL
    are seconds since 1970."""
    ha, recovery, secondary = (
        options.text(name, "") or None for name in ("ha", "recovery", "secondary")
    )
    bound, checkpoint = options.us("bound"), options.us("checkpoint")
    after, until = options.us("from"), options.us("until")
    return completed(
        query,
        requested(ha, recovery, bound, checkpoint, secondary),
        after=BEGINNING if after is None else after,
        until=END if until is None else until,
        version=options.number("version", 0),
    )
