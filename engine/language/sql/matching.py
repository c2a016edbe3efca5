"""MATCH_RECOGNIZE as a match, and as a map behind it if a measure is more than a function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from sqlglot import exp

from medusa.engine.expressions.intervals import interval_us
from medusa.engine.expressions.printing import expression_text, name_text
from medusa.engine.language.sql.errors import Source
from medusa.engine.language.sql.match_grammar import MatchTable
from medusa.engine.language.sql.network import Boxes
from medusa.engine.language.sql.relation import Relation, of_stream
from medusa.engine.language.sql.within import Within
from medusa.engine.objects.query import Contiguity, Map, Match, Measure, PatternStep
from medusa.engine.objects.schema import STIME
from medusa.engine.operators.match.pattern import PREVIOUS, read_pattern

_FUNCTIONS: Final = {
    "FIRST": "firstval",
    "LAST": "lastval",
    "COUNT": "count",
    "SUM": "sum",
    "MIN": "min",
    "MAX": "max",
    "AVG": "avg",
}

_PREV: Final = "PREV"


class Matching:
    """One MATCH_RECOGNIZE.

    Args:
        relation: the rows that it reads. within: the bound of a match without WITHIN.
    """

    def __init__(
        self,
        boxes: Boxes,
        source: Source,
        relation: Relation,
        node: MatchTable,
        within: Within,
    ) -> None:
        self._boxes = boxes
        self._source = source
        self._read = relation
        self._node = node
        self._within = within
        self._measures: list[Measure] = []
        if relation.window is not None:
            raise source.refusal("a pattern reads a stream, not windows", node)
        self._check_order()
        with source.pointing(node.this):
            self._steps = read_pattern(node.this.name)
        if not node.args.get("skips") and any(step.negated for step in self._steps):
            reason = "between rows that follow each other is nothing: say PATTERN SEQ (A !B C)"
            raise source.refusal(reason, node.this)
        self._variables = {step.variable.lower(): step.variable for step in self._steps}

    def relation(self) -> Relation:
        """The matches."""
        node, partition = self._node, self._partition()
        measures = [
            (each.alias, self._measure_text(each)) for each in node.args.get("measures") or []
        ]
        outputs = [*((name, name_text(name)) for name in partition), *measures]
        box = Match(
            "match",
            self._read.stream,
            "",
            partition,
            self._conditioned(),
            self._bound(),
            tuple(self._measures),
            Contiguity.SKIP_TILL_NEXT_MATCH if node.args.get("skips") else Contiguity.STRICT,
        )
        schema = self._boxes.add(box, node)
        if [name for name, _ in outputs] != [field.name for field in schema.fields] or any(
            text != name_text(name) for name, text in outputs
        ):
            schema = self._boxes.add(Map("measures", schema.name, "", tuple(outputs)), node)
        alias = node.args.get("alias")
        return of_stream(schema, alias.name if alias is not None else "")

    # -- clauses -----------------------------------------------------------------------------------

    def _check_order(self) -> None:
        order = self._node.args.get("order")
        if order is None:
            return  # the order of the stream
        first, *more = order.expressions
        inner = first.this
        if not isinstance(inner, exp.Column) or not self._read.find(inner, self._source).time:
            raise self._source.refusal("a pattern is over the stream's order: by its time", order)
        if first.args.get("desc") or more:
            reason = "a pattern is over the stream's order: ORDER BY its time, ascending, alone"
            raise self._source.refusal(reason, order)

    def _partition(self) -> tuple[str, ...]:
        found = []
        for each in self._node.args.get("partition") or []:
            if not isinstance(each, exp.Column):
                raise self._source.refusal("PARTITION BY takes fields", each)
            found.append(self._field(each))
        return tuple(found)

    def _bound(self) -> int:
        given = self._node.args.get("within")
        if given is not None:
            return interval_us(given, self._source)
        within = self._within.take()
        if within is None:
            raise self._source.refusal(
                "the rows of an endless stream cannot all be kept for a pattern: bound it, like "
                "PATTERN (A B) WITHIN INTERVAL '1' HOUR",
                self._node,
            )
        return within

    def _conditioned(self) -> tuple[PatternStep, ...]:
        conditions: dict[str, str] = {}
        for each in self._node.args.get("define") or []:
            name = self._variables.get(each.alias.lower())
            if name is None:
                raise self._source.refusal(f"{each.alias[:64]} is not in the pattern", each)
            if name in conditions:
                raise self._source.refusal(f"{name} is defined twice", each)
            conditions[name] = expression_text(each.this, self._source, self._condition_of(name))
        return tuple(
            PatternStep(
                step.variable,
                conditions.get(step.variable, step.condition),
                step.least,
                step.most,
                step.reluctant,
                step.negated,
            )
            for step in self._steps
        )

    # -- expressions -------------------------------------------------------------------------------

    def _condition_of(self, own: str) -> Callable[[exp.Expr], str | None]:
        """Substitute in the condition of a variable, whose last tuple is the current one."""

        def found(node: exp.Expr) -> str | None:
            if isinstance(node, exp.Column):
                return self._current(node, own)
            if isinstance(node, exp.Anonymous) and node.name.upper() in {_PREV, "LAST", "FIRST"}:
                return self._navigated(node, own)
            if isinstance(node, exp.Anonymous) and node.name.upper() in _FUNCTIONS:
                raise self._source.refusal("a condition has no aggregates", node)
            return None

        return found

    def _current(self, node: exp.Column, own: str) -> str:
        variable = self._variable(node)
        text = self._text(node)
        if variable is None or variable == own:
            return text
        names = list(self._variables.values())
        if names.index(variable) > names.index(own):
            raise self._source.refusal(f"{variable} comes after {own}, and has no row yet", node)
        return f"{variable}.{text}"

    def _navigated(self, node: exp.Anonymous, own: str) -> str:
        name = node.name.upper()
        column, *rest = node.expressions or [None]
        if not isinstance(column, exp.Column):
            raise self._source.refusal(f"{name} takes a field here", node)
        back = int(rest[0].name) if len(rest) == 1 and rest[0].name in {"0", "1"} else None
        if rest and back is None:
            raise self._source.refusal(f"{name} goes one row back at most", node)
        variable = self._variable(column)
        text = self._text(column)
        if name == _PREV and variable in {None, own} and back != 0:
            return f"{PREVIOUS}.{text}"
        if name == "LAST" and variable == own and back == 1:
            return f"{own}.{text}"
        if name == "LAST" and variable is not None and not back:
            return self._current(column, own)
        raise self._source.refusal(
            f"{name} of these rows cannot be asked here; there are PREV(field), V.field of the "
            "last row of V, and LAST(V.field, 1) of the row before it in the condition of V: give "
            "a row that you refer to a variable of its own",
            node,
        )

    def _measure_text(self, node: exp.Alias) -> str:
        """The expression over the match's outputs that computes a measure."""
        if (measure := self._measure(node.this)) is not None:
            return self._added(*measure, node.alias)

        def found(inner: exp.Expr) -> str | None:
            measure = self._measure(inner)
            if measure is None:
                return None
            return self._added(*measure, f"{node.alias}_{len(self._measures)}")

        return expression_text(node.this, self._source, found)

    def _added(self, function: str, variable: str, field: str, name: str) -> str:
        self._measures.append(Measure(function, variable, field, name))
        return name_text(name)

    def _measure(self, node: exp.Expr) -> tuple[str, str, str] | None:
        """The function, the variable and the field of a measure; None: the node is another
        expression."""
        if isinstance(node, exp.Column):
            return "lastval", self._variable(node) or "", self._field(node)
        if not isinstance(node, exp.Anonymous) or node.name.upper() not in _FUNCTIONS:
            return None
        function, name = _FUNCTIONS[node.name.upper()], node.name.upper()
        given = node.expressions[0] if len(node.expressions) == 1 else None
        if isinstance(given, exp.Star) and function == "count":
            return function, "", ""
        if not isinstance(given, exp.Column):
            raise self._source.refusal(
                f"{name} takes one field here, like {name}(A.x): compute it in a SELECT before",
                node,
            )
        if isinstance(given.this, exp.Star) and function == "count":
            return function, self._variable(given) or "", ""
        return function, self._variable(given) or "", self._field(given)

    def _variable(self, node: exp.Column) -> str | None:
        """The variable before a field; None: the field has none."""
        if not node.table:
            return None
        if node.table.lower() not in self._variables:
            raise self._source.refusal(f"{node.table[:64]} is not in the pattern", node)
        return self._variables[node.table.lower()]

    def _text(self, node: exp.Column) -> str:
        """The field's name in an expression."""
        name = self._field(node)
        return name if name == STIME else name_text(name)

    def _field(self, node: exp.Column) -> str:
        bare = exp.column(node.name)
        bare.meta.update(node.meta)
        for part in node.walk():
            if "start" in part.meta:
                bare.meta.setdefault("start", part.meta["start"])
        column = self._read.find(bare, self._source)
        names = {name_text(field.name): field.name for field in self._read.schema.fields}
        name = names.get(column.text, STIME if column.text == STIME else None)
        if name is None:
            raise self._source.refusal(
                f"{node.name} is computed: make it a field by a SELECT in FROM", node
            )
        return name
