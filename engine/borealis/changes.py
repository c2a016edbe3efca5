"""The boxes of Borealis that change a table: insert, delete, update.

A table that boxes change is a `top` with one place over their changes, newest first.

    insert  `insert into blocked values (input.ip, 'scan')`; without sql, the tuple's fields
    delete  `delete from blocked where ip = input.ip`, an equality for each field of the key
    update  `update blocked set level = input.level + base where ip = input.ip`, the same

Inserts and deletes alone decide whether a row exists. So the rows that they leave are a separate
table, `TABLE/base`; an update joins its input with `TABLE/base`, as of its time, for the fields
that no update sets. Its result is a change of `TABLE`, beside inserts and deletes. Then a row never
depends on another update: all updates of a table set the same fields, and none reads them.

If several changes of a row have one time, inserts come first, then updates, then deletions.
"""

from __future__ import annotations

import re
from collections.abc import Sequence, Set
from typing import Final

from medusa.engine.borealis.streams import OldBox, OldTable, Streams
from medusa.engine.borealis.tables import Names, plain, split, table_of
from medusa.engine.expressions.typed import fields_in
from medusa.engine.objects.query import (
    Box,
    Join,
    JoinKind,
    Map,
    Top,
    Union,
    order_by,
)
from medusa.engine.objects.schema import DELETED, STIME, Field, FieldType, Schema
from medusa.engine.operators.join import JoinOperator
from medusa.engine.operators.join.sides import RIGHT
from medusa.engine.operators.shared.operator import Inputs
from medusa.engine.operators.shared.parameters import Parameters
from medusa.engine.operators.typing import typed
from medusa.overlay.alternatives import alternatives
from medusa.overlay.errors import InvalidInputError

UPDATE: Final = "update"

CHANGES: Final = frozenset({"insert", "delete", UPDATE})
"""The kinds of boxes that change a table."""

CHANGED: Final = "changed"
"""The field, of a table that boxes change, that has the time of the change."""

UPDATED: Final = "updated"
"""The field, of a table that boxes update, that says whether an update made the row."""

_INSERT: Final = re.compile(r"insert into (\w+) values ?\((.+)\)", re.I)
_DELETE: Final = re.compile(r"delete from (\w+) where (.+)", re.I)
_UPDATE: Final = re.compile(r"update (\w+) set (.+) where (.+)", re.I)
_EQUALITY: Final = re.compile(r"([\w.]+) ?==? ?([\w.]+)")
_ASSIGNMENT: Final = re.compile(r"(?:(\w+)\.)?(\w+) ?= ?([^=].*)", re.DOTALL)


def writers_of(boxes: Sequence[OldBox]) -> dict[str, list[OldBox]]:
    """The boxes that change tables, by table."""
    found: dict[str, list[OldBox]] = {}
    for box in boxes:
        if box.kind in CHANGES:
            for table in box.tables:
                found.setdefault(table, []).append(box)
    return found


class Changing:
    """The boxes of a query that change tables, as they are read: each after those whose output it
    reads, and the updates of a table after its inserts and deletes.

    Args:
        boxes: the boxes of the query.
    """

    def __init__(self, boxes: Sequence[OldBox], streams: Streams) -> None:
        self._streams = streams
        self._writers = writers_of(boxes)
        self._changes: dict[str, list[str]] = {}
        self._updates: dict[str, list[str]] = {}
        self._set: dict[str, tuple[str, frozenset[str]]] = {}

    def read(self, old: OldBox) -> list[Box]:
        """The boxes of ours for one change; after the last change of a table, also the boxes that
        make the table.

        Raises:
            InvalidInputError: names the reason.
        """
        table = table_of(old, self._streams)
        if len(old.inputs) != 1 or len(old.outputs) > 1:
            raise InvalidInputError(f"a {old.kind} has one input, and one output at most")
        if table.name in self._streams.schemas:
            raise InvalidInputError(f"boxes of another query change {table.name} already")
        taken = Parameters(old.node, old.parameters)
        sql = taken.take("sql")
        taken.finish()
        plain_sql = None if sql is None else plain(sql)
        changes = self._changes.setdefault(table.name, [])
        updates = self._updates.setdefault(table.name, [])
        stream = f"{table.name}/changes/{len(changes) + len(updates)}"
        boxes: list[Box]
        if old.kind == UPDATE:
            boxes = [self._update(old, table, stream, plain_sql or "")]
            updates.append(stream)
        else:
            boxes = [self._change(old, table, stream, plain_sql)]
            changes.append(stream)
        if old.outputs:
            boxes.append(Union(f"{old.name}/passed", old.inputs, old.outputs[0]))
        return [*boxes, *self._complete(old, table)]

    def _complete(self, old: OldBox, table: OldTable) -> list[Box]:
        """The boxes that make a table (or its base) from its changes, if this box is the last
        change of the table."""
        changes, updates = self._changes[table.name], self._updates[table.name]
        wanted = self._updates_of(table)
        if old.kind == UPDATE:
            if len(updates) < wanted:
                return []
            return _newest(table, "updated", [*changes, *updates])
        if len(changes) < len(self._writers[table.name]) - wanted:
            return []
        return _newest(table, "base" if wanted else "changes", changes)

    def _updates_of(self, table: OldTable) -> int:
        return sum(each.kind == UPDATE for each in self._writers[table.name])

    def _change(self, old: OldBox, table: OldTable, stream: str, sql: str | None) -> Box:
        """The rows of an insert, or the keys of a delete."""
        read = _inserted if old.kind == "insert" else _deleted
        values = read(old, table, sql, self._streams)
        fields = [(each.name, _typed(each, values[each.name])) for each in table.schema.fields]
        fields += [(DELETED, "true" if old.kind == "delete" else "false"), (CHANGED, STIME)]
        fields += [(UPDATED, "false")] if self._updates_of(table) else []
        return Map(old.name, old.inputs[0], stream, tuple(fields))

    def _update(self, old: OldBox, table: OldTable, stream: str, sql: str) -> Box:
        """The new rows of an update: the rows of the base that have its keys, with the values that
        it sets."""
        if all(each.kind != "insert" for each in self._writers[table.name]):
            raise InvalidInputError(
                f"an update makes no row, and no box of the query inserts one into {table.name}: "
                "let an insert make its rows"
            )
        found = _UPDATE.fullmatch(sql)
        if found is None:
            raise InvalidInputError("sql is `update TABLE set FIELD = VALUE, ... where KEY = ...`")
        named, assignments, condition = found.groups()
        names = Names(old, table, named, self._streams)
        values = _assigned(assignments, table, names)
        key = _key_values(condition, table, names, "updated")
        given = self._streams.schema(old.inputs[0])
        same = [
            _same(each, key[each.name], given) for each in table.schema.fields if each.name in key
        ]
        fields = [
            (
                each.name,
                _typed(each, values[each.name]) if each.name in values else f"right.{each.name}",
            )
            for each in table.schema.fields
        ]
        fields += [(DELETED, "false"), (CHANGED, f"left.{STIME}"), (UPDATED, "true")]
        streams = (old.inputs[0], _base(table), stream)
        box = Join(
            old.name, *streams, JoinKind.INNER, 0, 0, " and ".join(same), tuple(fields), table=True
        )
        self._check_set(box, table, values.keys())
        return box

    def _check_set(self, update: Join, table: OldTable, names: Set[str]) -> None:
        """Check that no update reads a field that one sets, and that all updates of a table set the
        same fields.

        Args:
            names: the fields that it sets.
        """
        step = typed(JoinOperator(update), Inputs(self._streams.schemas)).steps[update.output]
        for name, value in step.outputs:
            read = {each.removeprefix(RIGHT) for each in fields_in(value) if each.startswith(RIGHT)}
            if name in names and read & names:
                raise InvalidInputError(
                    f"{name} would be made of the old {min(read & names)}, which an update sets: "
                    "each row would depend on all updates before it. Such a value is a total: keep "
                    "it by a latch, or by an aggregate, and insert its results"
                )
        first, others = self._set.setdefault(table.name, (update.name, frozenset(names)))
        if others != names:
            told = (
                f"{name[:64]} sets {', '.join(sorted(each))[:200]}"
                for name, each in ((first, others), (update.name, names))
            )
            raise InvalidInputError(
                f"the updates of a table set the same fields, and {'; '.join(told)}. A field that "
                "only one of them sets would depend on the one before: keep them in two tables"
            )


def _newest(table: OldTable, word: str, changes: Sequence[str]) -> list[Box]:
    """The boxes that keep the newest change of each key.

    Args:
        word: `changes` for a table without updates; `base` and `updated` for the two tables of one
            with updates. changes: the streams of changes.
    """
    short = table.name.rpartition("/")[2]
    name, output = (word, _base(table)) if word == "base" else ("rows", table.name)
    source = changes[0]
    boxes: list[Box] = []
    if len(changes) > 1:
        union = "updated" if word == "updated" else "changes"
        source = f"{table.name}/{union}"
        boxes.append(Union(f"{short}/{union}", tuple(changes), source))
    order = [CHANGED, DELETED, *([UPDATED] if word == "updated" else [])]
    newest = tuple(order_by(each, descending=True) for each in order)
    boxes.append(Top(f"{short}/{name}", source, output, table.schema.key, newest, 1))
    return boxes


def _base(table: OldTable) -> str:
    """Return the table of the rows that inserts and deletes leave, beside a table with updates."""
    return f"{table.name}/base"


def _assigned(text: str, table: OldTable, names: Names) -> dict[str, str]:
    """The expressions of an update, by the fields that it sets."""
    known = {each.name for each in table.schema.fields}
    found: dict[str, str] = {}
    for each in split(text):
        match = _ASSIGNMENT.fullmatch(each.strip())
        owner, name, value = match.groups() if match is not None else (None, "", "")
        if name not in known or owner not in {None, table.name.rpartition("/")[2]}:
            raise InvalidInputError(
                f"{each.strip()[:80]!a} sets no field of the table; "
                f"{alternatives(name, sorted(known))}"
            )
        if name in table.schema.key:
            raise InvalidInputError(
                f"{name} is of the table's key, and with another key it is another row: delete the "
                "one, and insert the other"
            )
        if name in found:
            raise InvalidInputError(f"{name} is set twice")
        found[name] = names.written(value, "left.")
    return found


def _same(field: Field, value: str, given: Schema) -> str:
    """The condition that a field of the key equals the tuple's."""
    type_ = next((each.type for each in given.fields if each.name == value), field.type)
    tuples = f"left.{value}"
    return f"right.{field.name} = {tuples if type_ is field.type else _typed(field, tuples)}"


def _inserted(
    old: OldBox, table: OldTable, sql: str | None, streams: Streams
) -> dict[str, str | None]:
    if sql is None:
        return {each.name: each.name for each in table.schema.fields}
    found = _INSERT.fullmatch(sql)
    if found is None:
        raise InvalidInputError("sql is `insert into TABLE values (VALUE, ...)`")
    names = Names(old, table, found[1], streams)
    values = [names.written(each, "", table=False) for each in split(found[2])]
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
        names = Names(old, table, found[1], streams)
        key = _key_values(found[2], table, names, "deleted")
    return {each.name: key.get(each.name) for each in table.schema.fields}


def _key_values(condition: str, table: OldTable, names: Names, what: str) -> dict[str, str]:
    """Return the value that a condition gives to each field of the key."""
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
        raise InvalidInputError(f"rows are {what} by their key: where {key}")
    return found


def _typed(field: Field, value: str | None) -> str:
    """A value as a literal of the field's type; None: null."""
    if value is None:
        return _null(field)
    return value if field.type is FieldType.TIMESTAMP else f"cast({value} as {field.type})"


def _null(field: Field) -> str:
    if field.type is FieldType.TIMESTAMP:
        return f"nullif({STIME}, {STIME})"
    if field.type is FieldType.BOOL:
        return "nullif(true, true)"
    return f"cast(null as {field.type})"
