"""Group aggregates: the totals of groups so far, as tables."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from medusa.engine.objects.query import Totals
from medusa.engine.objects.schema import DELETED, Field, FieldType, Schema, check_schema
from medusa.engine.operators.shared.aggregation import (
    functions_in_words,
    group_fields,
    groups_in_words,
    typed_functions,
)
from medusa.engine.operators.shared.operator import BoxClass, Inputs, Operator, State, TypedBox
from medusa.engine.operators.shared.parameters import (
    Parameters,
    Written,
    functions_written,
    read_functions,
    read_groups,
)
from medusa.engine.operators.shared.python import call, constant, functions_python
from medusa.engine.operators.totals.step import TotalsStep, totals_schema
from medusa.overlay.alternatives import alternatives
from medusa.overlay.errors import InvalidInputError

ADDED: Final = frozenset({"count", "sum", "avg"})
"""The functions of totals over a table: a deleted tuple can be subtracted from them."""

KNOWN: Final = ADDED | {"min", "max", "count_distinct"}
"""The functions of totals. They are computed from their former values and the new tuples."""


class TotalsOperator(Operator[Totals, TotalsStep]):
    word = "totals"
    state = State.OUTPUT
    box_class = BoxClass.DETERMINISTIC
    made_of_table = True

    def check(self) -> None:
        if not self.box.group_by:
            raise InvalidInputError("totals need at least one group")
        if not self.box.functions:
            raise InvalidInputError("totals need at least one function")
        known = ADDED if self.box.changes else KNOWN
        for each in self.box.functions:
            if each.function not in known:
                of = "of a table" if self.box.changes else "without a window"
                raise InvalidInputError(
                    f"{each.function} {of} is not there; "
                    f"{alternatives(each.function, sorted(known))}"
                )

    def typed(self, inputs: Inputs) -> TypedBox[TotalsStep]:
        box, given = self.box, inputs.of(self.box.input)
        schema = given.schema
        if box.changes and not schema.key:
            raise InvalidInputError(f"{box.input} is no table: its schema has no key")
        groups = group_fields(box.group_by, given)
        functions = typed_functions(box.functions, given)
        results = (Field(e.output, e.type, nullable=not e.function.never_null) for e in functions)
        deleted = [Field(DELETED, FieldType.BOOL, nullable=True)] if box.changes else []
        made = Schema(box.output, (*groups, *results, *deleted), key=box.group_by)
        check_schema(made)
        key = schema.key if box.changes else ()
        step = TotalsStep(groups, functions, key, DELETED if key and schema.deletes else "")
        check_schema(totals_schema(box.output, step))
        return TypedBox({box.output: made}, {box.output: step})

    def in_words(self, stream: str, width_us: int | None) -> str:
        if stream == self.box.output:
            return "the totals, of what they are made of"
        of = "the rows of a table" if self.box.changes else "all so far"
        by, functions = groups_in_words(self.box.group_by), functions_in_words(self.box.functions)
        return f"a table of the totals of {of}{by}: {functions}"

    @property
    def tables_read(self) -> tuple[str, ...]:
        return (self.box.input,) if self.box.changes else ()

    def makes_table(self, tables: Collection[str]) -> bool:
        return True

    @classmethod
    def read(
        cls, name: str, inputs: tuple[str, ...], outputs: tuple[str, ...], parameters: Parameters
    ) -> Totals:
        functions, groups = read_functions(parameters), read_groups(parameters)
        changes = parameters.take_flag("table")
        return Totals(name, inputs[0], outputs[0], groups, functions, changes=changes)

    def parameters(self) -> Written:
        table = [("table", "1")] if self.box.changes else []
        return [*functions_written(self.box.functions, self.box.group_by), *table]

    def select_sql(self, schemas: Mapping[str, Schema]) -> str:
        from medusa.engine.expressions import sql_texts
        from medusa.engine.expressions.printing import name_text  # loads sqlglot
        from medusa.engine.operators.shared import sql

        box, schema = self.box, schemas[self.box.input]
        groups = [*map(name_text, box.group_by)]
        by = ", ".join(sql.no_window(name, name_text(name), schema) for name in box.group_by)
        items = ", ".join([*groups, *sql.calls_sql(box.functions)])
        return f"SELECT {items}\n    FROM {sql_texts.object_sql(box.input)} GROUP BY {by}"

    def python(self, streams: Sequence[str]) -> str:
        table = ["table=True"] if self.box.changes else []
        groups = call(f"{streams[0]}.group_by", [*map(constant, self.box.group_by), *table])
        return functions_python(groups, self.box.functions, "totals")
