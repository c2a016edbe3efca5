"""The grammar of MATCH_RECOGNIZE: that of SQL:2016 with a bound of time, as Flink has it, and with
SASE's sequences."""

from __future__ import annotations

from typing import ClassVar, Final

from sqlglot import Token, TokenType, exp

from medusa.engine.expressions.grammar import ExpressionParser


class MatchTable(exp.Expression):
    """`MATCH_RECOGNIZE (PARTITION BY k ORDER BY ts MEASURES ... PATTERN (A B+) WITHIN ... DEFINE
    ...)`."""

    arg_types: ClassVar = {
        "this": True,  # a string: the pattern
        "skips": False,  # PATTERN SEQ: other tuples may lie between
        "partition": False,
        "order": False,
        "measures": False,  # Alias
        "within": False,  # an Interval
        "define": False,  # Alias: the condition, named after its variable
        "alias": False,
    }


class MatchParser(ExpressionParser):
    """Parses MATCH_RECOGNIZE."""

    def _parse_match_recognize(self) -> exp.Expr | None:  # type: ignore[override]
        start = self._curr
        if not self._match(TokenType.MATCH_RECOGNIZE):
            return None
        self._match_l_paren()
        made = MatchTable(partition=self._parse_partition_by(), order=self._parse_order())
        if self._match_text_seq("MEASURES"):
            made.set("measures", self._parse_csv(self._measure))
        if self._match_text_seq("ALL", "ROWS"):
            self._refuse("a match is one row: say ONE ROW PER MATCH", self._prev)
        self._match_text_seq("ONE", "ROW", "PER", "MATCH")
        self._refuse_earlier("AFTER MATCH SKIP")
        self._skip(start)
        self._refuse_earlier("PATTERN")
        if not self._match_text_seq("PATTERN"):
            self._refuse("here comes PATTERN (A B+ ...)")
        made.set("skips", bool(self._match_text_seq("SEQ")))
        made.set("this", self._pattern())
        if self._match_text_seq("WITHIN"):
            made.set("within", self._parse_interval())
        if self._match_text_seq("SUBSET"):
            self._refuse("SUBSET is not part of the language", self._prev)
        if self._match_text_seq("DEFINE"):
            made.set("define", self._parse_csv(self._definition_of_variable))
        self._refuse_earlier()
        self._match_r_paren()
        made.set("alias", self._parse_table_alias(alias_tokens=self.TABLE_ALIAS_TOKENS))
        return self.expression(made, start)

    def _measure(self) -> exp.Expr:
        # for a match of one row FINAL and RUNNING mean the same
        self._match_texts(("FINAL", "RUNNING"))
        start = self._curr
        measured = self._parse_disjunction()
        if measured is None or not self._match(TokenType.ALIAS):
            self._refuse("a measure is FUNCTION(variable.field) AS name", start)
        return self.expression(exp.Alias(this=measured, alias=self._parse_id_var()))

    def _refuse_earlier(self, before: str = "") -> None:
        """Refuse a clause that belongs before this one; `before`: that clause; the end by
        default."""
        words = (each.text.upper() for each in self._tokens[self._index : self._index + 4])
        here = " ".join(words)
        for clause in _CLAUSES[: _CLAUSES.index(before) if before else None]:
            if here.startswith(clause):
                order = ", ".join(_CLAUSES)
                self._refuse(
                    f"{clause} is said twice, or too late: the clauses are, in this order, {order}"
                )

    def _skip(self, start: Token) -> None:
        """AFTER MATCH SKIP TO NEXT ROW, which must be there: SQL's default is another one."""
        if not self._match_text_seq("AFTER", "MATCH", "SKIP"):
            self._refuse(f"it says no AFTER MATCH, and SQL's default {_PAST}", start)
        token = self._curr
        if not self._match_text_seq("TO", "NEXT", "ROW"):
            if self._match_text_seq("PAST", "LAST", "ROW"):
                self._refuse(f"AFTER MATCH SKIP {_PAST}", token)
            self._refuse("after AFTER MATCH SKIP comes TO NEXT ROW", token)

    def _pattern(self) -> exp.Var:
        self._match_l_paren()
        start, depth = self._curr, 1
        while self._curr and depth:
            depth += self._curr.token_type is TokenType.L_PAREN
            depth -= self._curr.token_type is TokenType.R_PAREN
            if depth:
                self._advance()
        if depth or start is self._curr:
            self._refuse("PATTERN takes variables in parentheses, like (A B+ C)", start)
        text = self._find_sql(start, self._prev)
        self._match_r_paren()
        return self.expression(exp.Var(this=text), start)

    def _definition_of_variable(self) -> exp.Expr:
        start = self._curr
        name = self._parse_id_var(any_token=True)
        if not self._match(TokenType.ALIAS):
            self._refuse("a variable is defined as NAME AS condition", start)
        condition = self._parse_disjunction()
        return self.expression(exp.Alias(this=condition, alias=name), start)


_CLAUSES: Final = (
    "PARTITION BY",
    "ORDER BY",
    "MEASURES",
    "ONE ROW PER MATCH",
    "AFTER MATCH SKIP",
    "PATTERN",
    "WITHIN",
    "DEFINE",
)
"""The clauses of MATCH_RECOGNIZE, in their order."""

_PAST: Final = (
    "PAST LAST ROW makes each match depend on all before it, without end: say "
    "AFTER MATCH SKIP TO NEXT ROW, and filter or count the matches that overlap"
)
