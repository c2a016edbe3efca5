"""JOIN: the pairs of two streams, and the bound of time between them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from sqlglot import exp

from medusa.engine.expressions.intervals import interval_us
from medusa.engine.expressions.printing import Substitute, expression_text, name_text
from medusa.engine.language.sql.errors import Source
from medusa.engine.language.sql.network import Boxes
from medusa.engine.language.sql.relation import Column, Relation, of_stream
from medusa.engine.language.sql.within import Within
from medusa.engine.objects.query import Join, JoinKind
from medusa.engine.objects.schema import STIME
from medusa.engine.operators.join.sides import AS_OF, KEEPS_LEFT, KEEPS_RIGHT, ONE_SIDED

_KINDS: Final = {
    ("", ""): JoinKind.INNER,
    ("", "INNER"): JoinKind.INNER,
    ("", "CROSS"): JoinKind.INNER,
    ("LEFT", ""): JoinKind.LEFT,
    ("LEFT", "OUTER"): JoinKind.LEFT,
    ("RIGHT", ""): JoinKind.RIGHT,
    ("RIGHT", "OUTER"): JoinKind.RIGHT,
    ("FULL", ""): JoinKind.FULL,
    ("FULL", "OUTER"): JoinKind.FULL,
    ("LEFT", "SEMI"): JoinKind.SEMI,
    ("", "SEMI"): JoinKind.SEMI,
    ("LEFT", "ANTI"): JoinKind.ANTI,
    ("", "ANTI"): JoinKind.ANTI,
}

_MIRRORED: Final[dict[type[exp.Expr], type[exp.Expr]]] = {
    exp.GT: exp.LT,
    exp.GTE: exp.LTE,
    exp.LT: exp.GT,
    exp.LTE: exp.GTE,
}


@dataclass(slots=True)
class Bounds:
    """right.stime - left.stime is from `least` to `most`, microseconds; None: no bound known."""

    least: int | None = None
    most: int | None = None

    def add(self, least: int | None, most: int | None) -> None:
        """Combine these bounds with the present ones: both hold."""
        if least is not None:
            self.least = least if self.least is None else max(self.least, least)
        if most is not None:
            self.most = most if self.most is None else min(self.most, most)


@dataclass(frozen=True, slots=True)
class Sided:
    """A time in an ON clause: the stime of one side plus something."""

    right: bool
    offset: int


class Joining:
    """One join, to which conditions are added before it becomes a box.

    Args:
        within: the bound of time that counts where the conditions have none.

    Attributes:
        relation: the names of its tuples; the texts of its columns are for expressions of the join
            itself.
    """

    def __init__(
        self,
        boxes: Boxes,
        source: Source,
        left: Relation,
        right: Relation,
        *,
        node: exp.Join,
        within: Within,
    ) -> None:
        self._boxes = boxes
        self._source = source
        self._sides = left, right
        self._node = node
        self._within = within
        self._bounds = Bounds()
        self._bounded_at: exp.Expr = node
        self._of_panes = Bounds()
        self._conditions: list[str] = []
        self._temporal = _version_of(node) is not None
        self.kind = self._kind_of(node)
        for side in (left, right):
            if side.window is not None:
                raise source.refusal(
                    "windows are joined as subqueries: (SELECT ... FROM TUMBLE(...) ...) AS w", node
                )
        columns = [
            *(_sided(each, "left") for each in left.columns),
            *(_sided(each, "right") for each in right.columns),
        ]
        self.relation = Relation(left.schema, tuple(columns))
        if self._temporal:
            self._check_version(_version_of(node))
        for name in node.args.get("using") or []:
            self._using(name)
        condition = node.args.get("on")
        if condition is not None:
            for each in conjuncts(condition):
                self.add(each)

    @property
    def takes_where(self) -> bool:
        """Whether the join may take conditions of WHERE."""
        return self.kind is JoinKind.INNER

    def knows(self, node: exp.Expr) -> bool:
        """Whether the joined streams have all columns of a condition."""
        names = {(table, each.name) for each in self.relation.columns for table in each.tables}
        bare = {each.name for each in self.relation.columns}
        return all(
            (each.table, each.name) in names if each.table else each.name in bare
            for each in node.find_all(exp.Column)
        )

    def add(self, node: exp.Expr) -> None:
        """Add a condition."""
        plain = isinstance(node, exp.Between) and not node.args.get("symmetric")
        if plain and not self._temporal:
            for kind, key in ((exp.GTE, "low"), (exp.LTE, "high")):
                made = kind(this=node.this, expression=node.args[key])
                self.add(made)
            return
        if self._temporal or not self._bound(node):
            substitute = self.substitute()
            text = expression_text(node, self._source, substitute)
            self._conditions.append(f"({text})" if isinstance(node, exp.Or) else text)

    def substitute(self) -> Substitute:
        """Substitute in expressions over the pairs."""

        def found(node: exp.Expr) -> str | None:
            if isinstance(node, exp.Column):
                return self.relation.find(node, self._source).text
            return None

        return found

    def box(self, outputs: Sequence[tuple[str, str]]) -> Relation:
        """The pairs with these output fields (name, text)."""
        least, most = self._checked_bounds()
        box = Join(
            "join",
            self._sides[0].stream,
            self._sides[1].stream,
            "",
            self.kind,
            -least,
            most,
            " and ".join(self._conditions) or "true",
            tuple(outputs),
            self._temporal,
        )
        schema = self._boxes.add(box, self._node)
        known = self._offsets(least, most)
        made = of_stream(schema, "")
        texts = dict(outputs)
        columns = tuple(
            replace(each, offset=known[texts[each.name]], time=True)
            if texts.get(each.name) in known
            else each
            for each in made.columns
        )
        return replace(made, columns=columns)

    def all(self) -> Relation:
        """The pairs with all fields of both sides, under their names."""
        columns = [each for each in self._usable() if each.name != STIME]
        names: list[str] = []
        for each in columns:
            same = [other for other in columns if other.name.lower() == each.name.lower()]
            table = each.tables[0] if each.tables else "side"
            names.append(each.name if len(same) == 1 else f"{table}_{each.name}")
        outputs = [(name, each.text) for name, each in zip(names, columns, strict=True)]
        made = self.box(outputs)
        stime = next(each for each in made.columns if each.name == STIME)
        renamed = [
            replace(
                each,
                text=name_text(name),
                offset=next(c.offset for c in made.columns if c.name == name),
            )
            for name, each in zip(names, columns, strict=True)
        ]
        return replace(made, columns=(*renamed, replace(stime, tables=())))

    def _usable(self) -> list[Column]:
        left = len(self._sides[0].columns)
        columns = list(self.relation.columns)
        return columns[:left] if self.kind in ONE_SIDED else columns

    # -- bounds ------------------------------------------------------------------------------------

    def _kind_of(self, node: exp.Join) -> JoinKind:
        method = (node.args.get("method") or "").upper()
        side = (node.args.get("side") or "").upper()
        kind = (node.args.get("kind") or "").upper()
        if method == "ASOF":
            if side not in {"", "LEFT"} or kind not in {"", "INNER", "OUTER"}:
                raise self._source.refusal("a join AS OF is an inner or a LEFT join", node)
            return JoinKind.LEFT_ASOF if side == "LEFT" else JoinKind.ASOF
        found = None if method else _KINDS.get((side, kind))
        if kind == "CROSS" and (node.args.get("on") or node.args.get("using")):
            raise self._source.refusal("a CROSS JOIN has no ON: say JOIN", node)
        if found is None:
            words = " ".join(filter(None, (method, side, kind)))
            raise self._source.refusal(
                f"{words} JOIN is not part of the language; there are JOIN, LEFT, RIGHT, FULL, "
                "LEFT SEMI, LEFT ANTI and ASOF JOIN",
                node,
            )
        return found

    def _using(self, name: exp.Expr) -> None:
        texts = []
        for side, prefix in zip(self._sides, ("left", "right"), strict=True):
            column = exp.column(name.name)
            column.meta.update(name.meta)
            texts.append(_sided(side.find(column, self._source), prefix).text)
        self._conditions.append(f"{texts[0]} = {texts[1]}")

    def _bound(self, node: exp.Expr) -> bool:
        """Whether the condition is a bound of time, and nothing else."""
        if type(node) not in {*_MIRRORED, exp.EQ}:
            return False
        if isinstance(node, exp.EQ) and (size := self._same_pane(node)):
            self._of_panes.add(1 - size, size - 1)
            return False  # the condition stays in the predicate, too
        one, other = self._time(node.this), self._time(node.expression)
        if one is None or other is None or one.right == other.right:
            return False
        kind = type(node)
        if not one.right:
            one, other, kind = other, one, _MIRRORED.get(kind, kind)
        # the condition is now `right.stime + one.offset KIND left.stime + other.offset`
        difference = other.offset - one.offset
        bounds: dict[type[exp.Expr], tuple[int | None, int | None]] = {
            exp.EQ: (difference, difference),
            exp.GTE: (difference, None),
            exp.GT: (difference + 1, None),
            exp.LTE: (None, difference),
            exp.LT: (None, difference - 1),
        }
        self._bounds.add(*bounds[kind])
        self._bounded_at = node
        return True

    def _same_pane(self, node: exp.EQ) -> int | None:
        """The size of the windows, if the condition says that both tuples are in the same
        window."""
        sides = []
        for each in (node.this, node.expression):
            if not isinstance(each, exp.Column):
                return None
            sides.append(self.relation.find(each, self._source))
        one, other = sides
        if one.pane is None or one.pane != other.pane or one.text[:5] == other.text[:5]:
            return None
        return one.pane[0]

    def _time(self, node: exp.Expr) -> Sided | None:
        """The time that an expression denotes: a column, plus or minus intervals."""
        if isinstance(node, exp.Paren):
            return self._time(node.this)
        if isinstance(node, (exp.Add, exp.Sub)) and isinstance(node.expression, exp.Interval):
            base = self._time(node.this)
            if base is None:
                return None
            span = interval_us(node.expression, self._source)
            return Sided(base.right, base.offset + (span if isinstance(node, exp.Add) else -span))
        if isinstance(node, exp.Column):
            column = self.relation.find(node, self._source)
            # a time field of another type, like seconds as a double, means the stime as well
            offset = 0 if column.offset is None and column.time else column.offset
            if offset is not None:
                return Sided(column.text.startswith("right.") or "(right." in column.text, offset)
        return None

    def _check_version(self, version: exp.Expr | None) -> None:
        """Refuse a table that is read at another time than that of the left tuple."""
        time = None
        if version is not None and (version.name, version.args["kind"]) == ("TIMESTAMP", "AS OF"):
            time = self._time(version.expression)
        if time is None or time.right or time.offset:
            raise self._source.refusal(
                "a table is joined as it is at the time of the row: FOR SYSTEM_TIME AS OF "
                f"{self._names()[0]}.stime",
                self._node,
            )

    def _names(self) -> tuple[str, str]:
        """Return the statement's names of both sides."""
        columns = self.relation.columns
        tables = [columns[n].tables for n in (0, len(self._sides[0].columns))]
        left, right = (each[0] if each else "" for each in tables)
        return left or "left", right or "right"

    def _checked_bounds(self) -> tuple[int, int]:
        if self._temporal:
            return 0, 0
        bounds = Bounds(self._bounds.least, self._bounds.most)
        if self.kind in AS_OF:
            self._look_one_way(bounds)
        bounds.add(self._of_panes.least, self._of_panes.most)
        least, most = bounds.least, bounds.most
        within = self._within.take() if least is None or most is None else None
        if least is None and within is not None:
            least = -within
        if most is None and within is not None:
            most = within
        if least is None or most is None:
            left, right = self._names()
            hour = "INTERVAL '1' HOUR"
            ends = [f"{left}.stime - {hour}", f"{left}.stime"]
            if least is not None and least >= 0:
                ends = [f"{left}.stime", f"{left}.stime + {hour}"]
            raise self._source.refusal(
                "the rows of an endless stream cannot all be kept for this join: bound it, like "
                f"AND {right}.stime BETWEEN {' AND '.join(ends)}, or say WITH (within = {hour})",
                self._node,
            )
        if least > most:
            raise self._source.refusal(
                "no pair of rows can meet these bounds of time", self._bounded_at
            )
        return least, most

    def _look_one_way(self, bounds: Bounds) -> None:
        """Refuse bounds of a join as of that are on both sides of the left row. It looks back if
        the upper one is at the row or before it, or if there is none; forward if the lower one is
        at the row or after it."""
        least, most = bounds.least, bounds.most
        if least is None and most is None:
            bounds.add(None, 0)
            return
        if (most is not None and most <= 0) or (least is not None and least >= 0):
            return
        left, right = self._names()
        raise self._source.refusal(
            "a join AS OF looks one way, and these bounds of time are on both sides of the row: "
            f"AND {right}.stime <= {left}.stime looks back from it, "
            f"AND {right}.stime >= {left}.stime forward",
            self._bounded_at,
        )

    def _offsets(self, least: int, most: int) -> dict[str, int]:
        """The texts that equal a pair's stime plus a constant; the stime of a pair is that of the
        later tuple."""
        found: dict[str, int] = {}
        left = len(self._sides[0].columns)
        for number, each in enumerate(self.relation.columns):
            later = most <= 0 if number < left else least >= 0 and not self._temporal
            outer = self.kind in (KEEPS_RIGHT if number < left else KEEPS_LEFT)
            if each.offset is not None and later and not outer:
                found[each.text] = each.offset
        return found


def _version_of(node: exp.Join) -> exp.Expr | None:
    """FOR SYSTEM_TIME AS OF, if the joined stream has it."""
    return node.this.args.get("version") if isinstance(node.this, exp.Table) else None


def conjuncts(node: exp.Expr) -> Iterator[exp.Expr]:
    """The conditions that AND joins."""
    while isinstance(node, exp.Paren):
        node = node.this
    stack = [node]
    found: list[exp.Expr] = []
    while stack:
        each = stack.pop()
        if isinstance(each, exp.And):
            stack += [each.this, each.expression]
        elif isinstance(each, exp.Paren) and isinstance(each.this, exp.And):
            stack.append(each.this)
        else:
            found.append(each)
    return reversed(found)


def _sided(column: Column, side: str) -> Column:
    """A column of one side, as the join's expressions name it."""
    if column.offset is not None and column.text.startswith("cast(cast("):
        return replace(column, text=column.text.replace(STIME, f"{side}.{STIME}", 1))
    return replace(column, text=f"{side}.{column.text}")
