"""The tables of a document of Borealis: `<table>`, and the boxes that look up and change them.

A table is here a stream of which the newest tuple of each key counts. One that no box changes is a
source table, to which rows are posted. One that boxes change is made of their changes, newest
first: a `top` with one place.

    <table name="blocked" schema="block_tuple"> <key field="ip"/> </table>

    select  `select input.ip, reason from blocked where ip = input.ip`
    insert  `insert into blocked values (input.ip, 'scan')`; without sql, the tuple's fields
    delete  `delete from blocked where ip = input.ip`, an equality for each field of the key

`input.f` is a field of the tuple, `f` or `blocked.f` one of the table. A table is read as of the
tuple's time.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from engine.language.xml.borealis_streams import OldBox, OldTable, Streams
from engine.language.xml.boxes import Parameters
from engine.language.xml.medusa import Qualify
from engine.language.xml.tree import Node
from engine.objects.query import Box, Join, JoinKind, Map, Top, Union
from engine.objects.schema import DELETED, STIME, Field, FieldType, Schema, check_schema
from overlay.errors import InvalidInputError

TABLE_TAG: Final = "table"

CHANGES: Final = frozenset({"insert", "delete"})
"""The kinds of boxes that change a table."""

MAX_SQL: Final = 8192
"""Characters of the `sql` of a box: as many as an expression has at most."""

CHANGED: Final = "changed"
"""The field of a table that boxes change with the time of the change."""

_NO_UPDATE: Final = (
    "there is no update here: a new row would depend on the old one, and that on all before it. An "
    "insert takes the place of the row with the same key: give it all fields"
)

_WORDS: Final = re.compile(
    r"""'(?:[^']|'')*'|[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)?|\s+|.""", re.DOTALL
)

_SELECT: Final = re.compile(r"select (.+?) from (\w+) where (.+)", re.I)
_INSERT: Final = re.compile(r"insert into (\w+) values ?\((.+)\)", re.I)
_DELETE: Final = re.compile(r"delete from (\w+) where (.+)", re.I)
_ALIAS: Final = re.compile(r"(.+?)(?: as ([A-Za-z_]\w*))?", re.I)
_EQUALITY: Final = re.compile(r"([\w.]+) ?==? ?([\w.]+)")


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
    sql = _plain(taken.take("sql") or "")
    keeps = taken.take_flag("pass-on-no-results")
    taken.finish()
    table = _table_of(old, streams)
    found = _SELECT.fullmatch(sql)
    if found is None:
        raise InvalidInputError("sql is `select FIELDS from TABLE where CONDITION`")
    fields, named, condition = found.groups()
    names = _Names(old, table, named, streams)
    if fields.strip() == "*":
        pairs = [(each.name, f"right.{each.name}") for each in table.schema.fields]
    else:
        pairs = [_selected(each, names) for each in _split(fields)]
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


def _selected(text: str, names: _Names) -> tuple[str, str]:
    found = _ALIAS.fullmatch(text.strip())
    assert found is not None, "any text"
    value, alias = found.groups()
    name = alias or value.rpartition(".")[2].strip()
    return name, names.written(value, "left.")


def read_change(old: OldBox, streams: Streams, number: int) -> list[Box]:
    """What an insert or a delete adds to the changes of its table.

    Args:
        number: of the box among those that change the table.

    Raises:
        InvalidInputError: names the reason.
    """
    table = _table_of(old, streams)
    if len(old.inputs) != 1 or len(old.outputs) > 1:
        raise InvalidInputError(f"a {old.kind} has one input, and one output at most")
    taken = Parameters(old.node, old.parameters)
    sql = taken.take("sql")
    taken.finish()
    read = _inserted if old.kind == "insert" else _deleted
    values = read(old, table, None if sql is None else _plain(sql), streams)
    changes: list[Box] = [
        Map(old.name, old.inputs[0], _changes(table, number), _row(old, table, values))
    ]
    if old.outputs:
        changes.append(Union(f"{old.name}/passed", old.inputs, old.outputs[0]))
    return changes


def kept(table: OldTable, changes: int) -> list[Box]:
    """The boxes that make a table of so many streams of changes."""
    names = tuple(_changes(table, number) for number in range(changes))
    short = table.name.rpartition("/")[2]
    source = names[0]
    boxes: list[Box] = []
    if changes > 1:
        source = f"{table.name}/changes"
        boxes.append(Union(f"{short}/changes", names, source))
    newest = ((CHANGED, True), (DELETED, True))  # of changes at one time, a deletion
    boxes.append(Top(f"{short}/rows", source, table.name, table.schema.key, newest, 1))
    return boxes


def _changes(table: OldTable, number: int) -> str:
    return f"{table.name}/changes/{number}"


def _table_of(old: OldBox, streams: Streams) -> OldTable:
    if len(old.tables) != 1:
        raise InvalidInputError(f'a {old.kind} has one <access table="..."/>')
    table = streams.tables.get(old.tables[0])
    if table is None:
        raise InvalidInputError(f"there is no <table> {old.tables[0]}")
    return table


def _inserted(
    old: OldBox, table: OldTable, sql: str | None, streams: Streams
) -> dict[str, str | None]:
    if sql is None:
        return {each.name: each.name for each in table.schema.fields}
    found = _INSERT.fullmatch(sql)
    if found is None:
        raise InvalidInputError("sql is `insert into TABLE values (VALUE, ...)`")
    names = _Names(old, table, found[1], streams)
    values = [names.written(each, "", table=False) for each in _split(found[2])]
    fields = [each.name for each in table.schema.fields]
    if len(values) != len(fields):
        raise InvalidInputError(f"{len(values)} values for {len(fields)} fields of {table.name}")
    return dict(zip(fields, values, strict=True))


def _deleted(
    old: OldBox, table: OldTable, sql: str | None, streams: Streams
) -> dict[str, str | None]:
    key = {name: name for name in table.schema.key}
    if sql is not None:
        found = _DELETE.fullmatch(sql)
        if found is None:
            raise InvalidInputError("sql is `delete from TABLE where KEY = VALUE and ...`")
        names = _Names(old, table, found[1], streams)
        key = _key_values(found[2], table, names)
    return {each.name: key.get(each.name) for each in table.schema.fields}


def _key_values(condition: str, table: OldTable, names: _Names) -> dict[str, str]:
    """What a condition says that each field of the key is equal to."""
    found = {}
    for each in re.split(" and ", condition, flags=re.I):
        match = _EQUALITY.fullmatch(each)
        sides = [] if match is None else [names.written(side, "left.") for side in match.groups()]
        sides.sort(key=lambda side: not side.startswith("right."))
        if len(sides) != 2 or not sides[1].startswith("left."):
            sides = [""]
        found[sides[0].removeprefix("right.")] = sides[-1].removeprefix("left.")
    if found.keys() != set(table.schema.key):
        key = " and ".join(f"{name} = input.FIELD" for name in table.schema.key)
        raise InvalidInputError(f"rows are deleted by their key: where {key}")
    return found


def _row(
    old: OldBox, table: OldTable, values: Mapping[str, str | None]
) -> tuple[tuple[str, str], ...]:
    """The fields of a change; those without a value are null."""
    fields = [
        (
            each.name,
            f"cast({value} as {each.type})"
            if (value := values[each.name]) is not None and each.type is not FieldType.TIMESTAMP
            else value or _null(each),
        )
        for each in table.schema.fields
    ]
    gone = "true" if old.kind == "delete" else "false"
    return (*fields, (DELETED, gone), (CHANGED, STIME))


def _null(field: Field) -> str:
    if field.type is FieldType.TIMESTAMP:
        return f"nullif({STIME}, {STIME})"
    if field.type is FieldType.BOOL:
        return "nullif(true, true)"
    return f"cast(null as {field.type})"


def _plain(sql: str) -> str:
    """The SQL with one blank for blanks and ends of lines.

    Raises:
        InvalidInputError: it is too long.
    """
    if len(sql) > MAX_SQL:
        raise InvalidInputError(f"sql has {len(sql)} characters; at most {MAX_SQL} are allowed")
    words = (" " if word.isspace() else word for word in _WORDS.findall(sql))
    return "".join(words).strip()


def _split(text: str) -> list[str]:
    """The parts between the commas that are in no parentheses and no quotes."""
    parts, depth = [""], 0
    for word in _WORDS.findall(text):
        depth += {"(": 1, ")": -1}.get(word, 0)
        if word == "," and not depth:
            parts.append("")
        else:
            parts[-1] += word
    return parts


class _Names:
    """The names in the SQL of a box: of the tuple's fields, and of the table's."""

    def __init__(self, old: OldBox, table: OldTable, named: str, streams: Streams) -> None:
        self._short = table.name.rpartition("/")[2]
        if named != self._short:
            raise InvalidInputError(f"its sql is about {named[:64]}, its <access> is {self._short}")
        self._fields = {each.name for each in table.schema.fields}
        self._given = {each.name for each in streams.schema(old.inputs[0]).fields}

    def written(self, text: str, given: str, *, table: bool = True) -> str:
        """The text with the names that an expression of ours has.

        Args:
            given: what precedes the tuple's fields. table: whether it may have the table's.
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


def refuse_update(old: OldBox, streams: Streams) -> list[Box]:
    """Raises: InvalidInputError: always, with the nearest thing."""
    raise InvalidInputError(_NO_UPDATE)


def writers_of(boxes: Sequence[OldBox]) -> dict[str, list[OldBox]]:
    """The boxes that change tables, by table."""
    found: dict[str, list[OldBox]] = {}
    for box in boxes:
        if box.kind in CHANGES:
            for table in box.tables:
                found.setdefault(table, []).append(box)
    return found
