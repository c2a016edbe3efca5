"""The grammar of the windowing table functions: `TUMBLE(TABLE s, DESCRIPTOR(ts), INTERVAL ...)` as
Flink has it, and `TUMBLE(TABLE s, 10 ROWS)`."""

from __future__ import annotations

from typing import Any, ClassVar, Final

from sqlglot import TokenType, exp

from medusa.engine.language.sql.match_grammar import MatchParser
from medusa.overlay.alternatives import alternatives

WINDOWS: Final = {
    "TUMBLE": ("SIZE",),
    "HOP": ("SLIDE", "SIZE"),
    "CUMULATE": ("STEP", "SIZE"),
    "SESSION": ("GAP",),
}
"""The windowing table functions, and the names of the lengths that each takes, in order."""

_MOST_DIGITS: Final = 9
"""Digits in a number of rows: more than any window may have."""

_OF_ROWS: Final = frozenset({"TUMBLE", "HOP"})
"""The table functions whose size may be a number of rows."""

_TAKES: Final = {
    "TUMBLE": "TABLE name, DESCRIPTOR(time field), INTERVAL size; or TABLE name, size ROWS",
    "HOP": (
        "TABLE name, DESCRIPTOR(time field), INTERVAL advance, INTERVAL size; or TABLE name, "
        "advance ROWS, size ROWS"
    ),
    "CUMULATE": "TABLE name, DESCRIPTOR(time field), INTERVAL step, INTERVAL size",
    "SESSION": "TABLE name PARTITION BY fields, DESCRIPTOR(time field), INTERVAL gap",
}


class WindowTable(exp.Expression):
    """`TUMBLE(TABLE s [PARTITION BY k], DESCRIPTOR(ts), INTERVAL ...)` and similar calls."""

    arg_types: ClassVar = {
        "this": True,  # the function's name, upper case
        "table": True,
        "time": True,
        "intervals": True,
        "partition": False,
        "alias": False,
    }


class RowsTable(exp.Expression):
    """`TUMBLE(TABLE s, 10 ROWS)`, or `HOP(TABLE s, 3 ROWS, 10 ROWS [, PARTIAL])`."""

    arg_types: ClassVar = {
        "table": True,
        "rows": True,  # Literals: whole numbers, two for HOP
        "partial": False,
        "partition": False,
        "alias": False,
    }


class WindowParser(MatchParser):
    """Parses the windowing table functions."""

    def _parse_table(self, *args: Any, **named: Any) -> exp.Expr | None:  # noqa: ANN401 - as sqlglot's
        wrapped = self._is_text("TABLE") and self._next.token_type is TokenType.L_PAREN
        if wrapped:
            self._advance(2)
        if self._curr.text.upper() in WINDOWS and self._next.token_type is TokenType.L_PAREN:
            table = self._window_table()
            if wrapped:
                self._match_r_paren()
            table.set("alias", self._parse_table_alias(alias_tokens=self.TABLE_ALIAS_TOKENS))
            return table
        after = self._tokens[self._index + 2 : self._index + 3]
        called = self._next.token_type is TokenType.L_PAREN
        if called and after and after[0].text.upper() == "TABLE":
            asked = self._curr.text
            self._refuse(f"{asked[:40]!a} is no window; {alternatives(asked, WINDOWS)}")
        if wrapped:
            known = ", ".join(WINDOWS)
            self._refuse(f"TABLE(...) takes one of {known}")
        return super()._parse_table(*args, **named)

    def _window_table(self) -> WindowTable | RowsTable:
        start = self._curr
        kind = start.text.upper()
        self._advance(2)
        self._argument("DATA")
        self._match_text_seq("TABLE")
        table = self._name()
        if self._curr.token_type is TokenType.L_PAREN:
            self._refuse("TABLE is followed by a stream's name: give a subquery one by WITH")
        partition = self._partition()
        if not partition:
            self._match(TokenType.COMMA)
        self._argument("TIMECOL")
        descriptor, time = self._curr, []
        if self._match_text_seq("DESCRIPTOR"):
            time = self._parse_wrapped_csv(self._parse_id_var)
            self._match(TokenType.COMMA)
        lengths = self._lengths(kind) if self._prev.token_type is TokenType.COMMA else [None]
        of_rows = kind in _OF_ROWS and isinstance(lengths[0], exp.Literal)
        if of_rows and time:
            self._refuse("rows are counted in the stream's order: say no DESCRIPTOR", descriptor)
        partial = self._match_text_seq("PARTIAL")
        if partial and not (of_rows and kind == "HOP"):
            form = "HOP(TABLE name, advance ROWS, size ROWS, PARTIAL)"
            self._refuse(f"PARTIAL is for {form}", self._prev)
        whole = of_rows or (len(time) == 1 and isinstance(lengths[0], exp.Interval))
        if not whole or len(lengths) != len(WINDOWS[kind]) or None in lengths:
            self._refuse(f"{kind} takes {_TAKES[kind]}", start)
        self._match_r_paren()
        if of_rows:
            rows = RowsTable(table=table, rows=lengths, partition=partition)
            rows.set("partial", bool(partial))
            return self.expression(rows, start)
        made = WindowTable(this=kind, table=table, time=time[0], intervals=lengths)
        made.set("partition", partition)
        return self.expression(made, start)

    def _lengths(self, kind: str) -> list[exp.Expr | None]:
        """The lengths of a window: all intervals, or all numbers of rows; up to PARTIAL."""
        found: list[exp.Expr | None] = []
        while not found or self._match(TokenType.COMMA):
            self._argument(*WINDOWS[kind][len(found) : len(found) + 1])
            if self._next is not None and self._next.token_type is TokenType.FARROW:
                order = ", ".join(f"{each} => ..." for each in WINDOWS[kind])
                self._refuse(f"the lengths of {kind} are, in this order, {order}")
            if found and self._is_text("PARTIAL"):
                break
            start = self._curr
            length = self._parse_interval() or self._rows()
            kinds = {type(each) for each in (*found, length) if each is not None}
            if len(kinds) > 1:
                self._refuse("the lengths of a window are all INTERVALs, or all ROWS", start)
            found.append(length)
        return found

    def _rows(self) -> exp.Expr | None:
        """`10 ROWS`; None: it is something else."""
        start = self._curr
        number = self._parse_unary()
        if not self._match_text_seq("ROWS"):
            return None
        text = start.text if isinstance(number, exp.Literal) and number.is_number else ""
        if not (text.isascii() and text.isdecimal() and len(text) <= _MOST_DIGITS):
            self._refuse("a window has a whole number of rows, like 10 ROWS", start)
        return self.expression(exp.Literal.number(text), start)

    def _partition(self) -> list[exp.Expr]:
        """The fields of `PARTITION BY a, b`, up to the comma before the next argument."""
        fields: list[exp.Expr] = []
        if not self._match(TokenType.PARTITION_BY):
            return fields
        while not fields or self._match(TokenType.COMMA):
            named = self._next is not None and self._next.token_type is TokenType.FARROW
            if named or self._is_text("DESCRIPTOR") or self._curr.token_type is TokenType.NUMBER:
                break
            field = self._parse_column()
            if field is None:
                self._refuse("PARTITION BY takes fields, with a comma behind the last one")
            fields.append(field)
        return fields

    def _argument(self, *names: str) -> None:
        """Skip `NAME =>` if it is next."""
        if self._curr.text.upper() in names and self._next.token_type is TokenType.FARROW:
            self._advance(2)

    def _is_text(self, text: str) -> bool:
        return self._curr.text.upper() == text

    def _name(self) -> exp.Table:
        """`participant.path`, or `path`; the participant's name may have dots."""
        start, parts = self._curr, []
        while True:
            part = self._parse_id_var(any_token=True)
            if part is None:
                self._refuse("here comes a name", start)
            parts.append(part.name)
            if not self._match(TokenType.DOT):
                break
        table = exp.Table(this=exp.to_identifier(parts[-1]), db=".".join(parts[:-1]) or None)
        return self.expression(table, start)
