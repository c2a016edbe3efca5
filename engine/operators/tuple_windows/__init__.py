"""Count windows: windows of a number of tuples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from medusa.engine.objects.query import TupleWindows
from medusa.engine.objects.schema import Field, FieldType, Schema, check_schema
from medusa.engine.operators.shared.aggregation import (
    functions_in_words,
    group_fields,
    groups_in_words,
    result_fields,
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
from medusa.engine.operators.shared.python import call, constant, functions_python, grouped_python
from medusa.engine.operators.tuple_windows.step import (
    TupleWindowsStep,
    fields_taken,
    tuples_schema,
)
from medusa.overlay.errors import InvalidInputError

MOST_TUPLES: Final = 1_000
"""The most tuples of a window: each job reads as many of each group."""

MOST_WINDOWS: Final = 100
"""The most windows that a tuple is in: a job makes as many copies of it."""


class TupleWindowsOperator(Operator[TupleWindows, TupleWindowsStep]):
    word = "aggregate"
    state = State.OUTPUT
    box_class = BoxClass.DETERMINISTIC
    made_of_table = True

    def check(self) -> None:
        if not self.box.functions:
            raise InvalidInputError("windows of tuples need at least one function")
        check_sizes(self.box.size, self.box.advance)

    def typed(self, inputs: Inputs) -> TypedBox[TupleWindowsStep]:
        box, given = self.box, inputs.of(self.box.input)
        groups = group_fields(box.group_by, given)
        functions = typed_functions(box.functions, given)
        number = (Field(box.number, FieldType.LONG),) if box.number else ()
        made = Schema(box.output, (*groups, *result_fields(functions, given), *number))
        check_schema(made)
        fields = fields_taken(functions, given.schema)
        parts = (box.size, box.advance, box.partial, groups, functions, fields, box.number)
        step = TupleWindowsStep(*parts)
        check_schema(tuples_schema(box.output, step))
        return TypedBox({box.output: made}, {box.output: step})

    def in_words(self, stream: str, width_us: int | None) -> str:
        box = self.box
        if stream == box.output:
            return "the windows, without the tuples that they are made of"
        over = f"windows of {box.size:,} tuples that advance by {box.advance:,}"
        over += groups_in_words(box.group_by)
        over += f", their last tuple's number as {box.number}" if box.number else ""
        return f"{over}: {functions_in_words(box.functions)}"

    @property
    def gap(self) -> str:
        size, advance = self.box.size, self.box.advance
        if advance <= size:
            return ""
        return f"{size:,} rows long, and one begins each {advance:,} rows"

    @classmethod
    def is_meant(cls, parameters: Parameters) -> bool:
        return parameters.says("window-size-by") == "TUPLES"

    @classmethod
    def read(
        cls, name: str, inputs: tuple[str, ...], outputs: tuple[str, ...], parameters: Parameters
    ) -> TupleWindows:
        functions = read_functions(parameters)
        parameters.take("window-size-by")
        size = parameters.take_count("window-size")
        if size is None:
            raise InvalidInputError("parameter window-size is missing: the tuples of a window")
        advance = parameters.take_count("advance")
        parameters.take_all_fixed()
        return TupleWindows(
            name,
            inputs[0],
            outputs[0],
            size,
            size if advance is None else advance,
            read_groups(parameters),
            functions,
            parameters.take_flag("partial-windows"),
            parameters.take("number-field") or "",
        )

    def parameters(self) -> Written:
        box = self.box
        return [
            *functions_written(box.functions, box.group_by),
            ("window-size-by", "TUPLES"),
            ("window-size", str(box.size)),
            ("advance", str(box.advance)),
            *([("partial-windows", "1")] if box.partial else []),
            *([("number-field", box.number)] if box.number else []),
        ]

    def select_sql(self, schemas: Mapping[str, Schema]) -> str:
        from medusa.engine.expressions import sql_texts
        from medusa.engine.expressions.printing import name_text  # loads sqlglot
        from medusa.engine.operators.shared import sql

        box = self.box
        table = f"TABLE {sql_texts.object_sql(box.input)}"
        windows = f"TUMBLE({table}, {box.size} ROWS)"
        if box.partial or box.size != box.advance:
            partial = ", PARTIAL" if box.partial else ""
            windows = f"HOP({table}, {box.advance} ROWS, {box.size} ROWS{partial})"
        number = [f"ROW_NUMBER() AS {name_text(box.number)}"] if box.number else []
        groups = [*map(name_text, box.group_by)]
        return sql.windows_sql(box, groups, windows, number, of_time=False)

    def python(self, streams: Sequence[str]) -> str:
        box = self.box
        sizes = map(str, dict.fromkeys((box.size, box.advance)))
        partial = ["partial=True"] if box.partial else []
        windows = call(f"{streams[0]}.tuple_windows", [*sizes, *partial])
        windows = grouped_python(windows, box.group_by)
        if box.number:
            windows = call(f"{windows}.numbered", [constant(box.number)])
        return functions_python(windows, box.functions)


def check_sizes(size: int, advance: int) -> None:
    """Check the numbers of tuples of windows. Raises: InvalidInputError: names the mistake."""
    if not 1 <= size <= MOST_TUPLES:
        raise InvalidInputError(
            f"its windows have {size:,} tuples; 1 to {MOST_TUPLES:,} are allowed"
        )
    if not 1 <= advance <= MOST_TUPLES:
        raise InvalidInputError(
            f"its windows advance by {advance:,} tuples; 1 to {MOST_TUPLES:,} are allowed"
        )
    if size > MOST_WINDOWS * advance:
        raise InvalidInputError(
            f"a tuple is in {-(-size // advance)} of its windows; at most {MOST_WINDOWS} "
            f"are allowed: let them have fewer tuples, or advance by more"
        )
