"""The tables of a document of Borealis: `<table>`, and the box that looks up their rows.

Here a table is a stream of which the newest tuple of each key counts. If no box changes the table,
it is a source table, to which clients post rows; for other tables see
`medusa.engine.borealis.changes`.

    <table name="blocked" schema="block_tuple"> <key field="ip"/> </table>

    select  `select input.ip, reason from blocked where ip = input.ip`

`input.f` is a field of the tuple, `f` or `blocked.f` one of the table. A table is read as of the
tuple's time.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from msgspec.structs import replace

from medusa.engine.borealis.streams import OldBox, OldTable, Streams
from medusa.engine.language.xml.medusa import Qualify
from medusa.engine.objects.query import Box, Join, JoinKind
from medusa.engine.objects.schema import Schema, check_schema
from medusa.engine.operators.shared.parameters import Parameters
from medusa.engine.xml.tree import Node
from medusa.overlay.errors import InvalidInputError

TABLE_TAG: Final = "table"

MAX_SQL: Final = 8192
"""Characters of the `sql` of a box: as many as an expression has at most."""

_WORDS: Final = re.compile(
    r"""'(?:[^']|'')*'|[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)?|\s+|.""", re.DOTALL
)

_SELECT: Final = re.compile(r"select (.+?) from (\w+) where (.+)", re.I)
_ALIAS: Final = re.compile(r"(.+?)(?: as ([A-Za-z_]\w*))?", re.I)


def read_table(
    node: Node, qualify: Qualify, schemas: Mapping[str, Schema], changed: frozenset[str]
) -> OldTable:
    """The table in an element.

    Args:
        changed: the tables that boxes change.

    Raises:
        InvalidInputError: it is wrong; names line and reason.
    """
    given = node.checked(("name", "schema"))
    key = []
    for child in node.children:
        if child.tag != "key":
            raise child.error("a table has only <key> elements")
        child.childless()
        key.append(child.checked(("field",))["field"])
    with node.about():
        name, declared = qualify(given["name"]), schemas.get(qualify(given["schema"]))
        if declared is None:
            raise InvalidInputError(f"there is no schema {given['schema'][:80]!a} in the document")
        if not key and not declared.key:
            raise InvalidInputError('a table needs a <key field="..."/>')
        schema = declared
        if key and tuple(key) != declared.key:
            schema = replace(declared, name=f"{name}/schema", key=tuple(key))
        check_schema(schema)
        return OldTable(node, name, schema, made=name in changed)


def read_select(old: OldBox, streams: Streams) -> list[Box]:
    """A join with a table. Raises: InvalidInputError: names the reason."""
    old.refuse_ports(inputs=1)
    taken = Parameters(old.node, old.parameters)
    sql = plain(taken.take("sql") or "")
    keeps = taken.take_flag("pass-on-no-results")
    taken.finish()
    table = table_of(old, streams)
    found = _SELECT.fullmatch(sql)
    if found is None:
        raise InvalidInputError("sql is `select FIELDS from TABLE where CONDITION`")
    fields, named, condition = found.groups()
    names = Names(old, table, named, streams)
    if fields.strip() == "*":
        pairs = [(each.name, f"right.{each.name}") for each in table.schema.fields]
    else:
        pairs = [_selected(each, names) for each in split(fields)]
    kind = JoinKind.LEFT if keeps else JoinKind.INNER
    return [
        Join(
            old.name,
            old.inputs[0],
            table.name,
            old.outputs[0],
            kind,
            0,
            0,
            names.written(condition, "left."),
            tuple(pairs),
            table=True,
        )
    ]


def _selected(text: str, names: Names) -> tuple[str, str]:
    found = _ALIAS.fullmatch(text.strip())
    assert found is not None, "any text"
    value, alias = found.groups()
    name = alias or value.rpartition(".")[2].strip()
    return name, names.written(value, "left.")


def table_of(old: OldBox, streams: Streams) -> OldTable:
    """The table that a box reads or changes. Raises: InvalidInputError: there is none."""
    if len(old.tables) != 1:
        raise InvalidInputError(f'a {old.kind} has one <access table="..."/>')
    table = streams.tables.get(old.tables[0])
    if table is None:
        raise InvalidInputError(f"there is no <table> {old.tables[0]}")
    return table


def plain(sql: str) -> str:
    """The SQL with one blank for blanks and ends of lines.

    Raises:
        InvalidInputError: it is too long.
    """
    if len(sql) > MAX_SQL:
        raise InvalidInputError(f"sql has {len(sql)} characters; at most {MAX_SQL} are allowed")
    words = (" " if word.isspace() else word for word in _WORDS.findall(sql))
    return "".join(words).strip()


def split(text: str) -> list[str]:
    """Split the text at commas outside of parentheses and quotes."""
    parts, depth = [""], 0
    for word in _WORDS.findall(text):
        depth += {"(": 1, ")": -1}.get(word, 0)
        if word == "," and not depth:
            parts.append("")
        else:
            parts[-1] += word
    return parts


class Names:
    """The names in the SQL of a box: of the tuple's fields, and of the table's.

    Args:
        named: the table, as the SQL calls it.

    Raises:
        InvalidInputError: that is another table.
    """

    def __init__(self, old: OldBox, table: OldTable, named: str, streams: Streams) -> None:
        self._short = table.name.rpartition("/")[2]
        if named != self._short:
            raise InvalidInputError(f"its sql is about {named[:64]}, its <access> is {self._short}")
        self._fields = {each.name for each in table.schema.fields}
        self._given = {each.name for each in streams.schema(old.inputs[0]).fields}

    def written(self, text: str, given: str, *, table: bool = True) -> str:
        """The text, with each name as one of our expressions writes it.

        Args:
            given: the prefix of the tuple's fields. table: whether it may use the table's fields.

        Raises:
            InvalidInputError: there is no such field.
        """
        return "".join(
            self._name(word, given, table=table) for word in _WORDS.findall(text)
        ).strip()

    def _name(self, word: str, given: str, *, table: bool) -> str:
        owner, _, name = word.rpartition(".")
        if owner == "input" and name in self._given:
            return f"{given}{name}"
        if table and (owner == self._short or not owner) and name in self._fields:
            return f"right.{name}"
        if owner in {"input", self._short}:
            raise InvalidInputError(f"there is no field {word[:80]}")
        return word
