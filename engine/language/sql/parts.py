"""The parts of a statement that the language has. sqlglot reads many more, of other databases: none
of them may change what a script means without being understood."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from sqlglot import exp

from engine.language.sql.errors import position_of, refusal

_READ: Final[dict[type[exp.Expr], str]] = {
    exp.Select: "with_ expressions from_ joins match where group having distinct",
    exp.Union: "with_ this expression distinct",
    exp.Subquery: "with_ this alias joins",
    exp.With: "expressions recursive",
    exp.CTE: "this alias",
    exp.From: "this",
    exp.Table: "this db catalog alias joins version temporary",
    exp.TableAlias: "this columns",
    exp.Join: "this on using side kind method",
    exp.Group: "expressions rollup cube grouping_sets all totals",
    exp.Distinct: "expressions on",
    exp.Column: "this table",
    exp.Alias: "this alias",
    exp.In: "this expressions query",
    exp.Between: "this low high",
    exp.Like: "this expression negate",
    exp.RegexpLike: "this expression negate",
    exp.Is: "this expression",
    exp.Case: "this ifs default",
    exp.If: "this true",
    exp.Cast: "this to",
    exp.Extract: "this expression",
    exp.Anonymous: "this expressions",
    exp.Filter: "this expression",
    exp.Window: "this partition_by order spec alias over",
    exp.WindowSpec: "kind start start_side end end_side exclude",
    exp.WithinGroup: "this expression",
    exp.Interval: "this unit",
    exp.Star: "except_ replace",
}
"""What is read of each kind of node; of kinds that are not here the reader knows all, or refuses
them as a whole."""

_PARTS: Final = {kind: frozenset(names.split()) for kind, names in _READ.items()}

REASONS: Final = {
    "order": (
        "an endless stream is in the order of its time: for the greatest of a window say "
        "ROW_NUMBER() OVER (PARTITION BY window_start ORDER BY ...) <= n"
    ),
    "limit": (
        "an endless stream has no first n rows: medusa subscribe --limit stops after n, and "
        "ROW_NUMBER() OVER (...) <= n keeps n of each window"
    ),
    "offset": "an endless stream has no first rows to leave out",
    "laterals": "LATERAL is not part of the language",
    "pivots": "PIVOT is not part of the language",
    "qualify": "QUALIFY is not part of the language: filter an outer SELECT",
    "windows": "named windows are not part of the language",
    "sample": "TABLESAMPLE is not part of the language",
    "distribute": "DISTRIBUTE BY is not part of the language",
    "sort": "SORT BY is not part of the language",
    "cluster": "CLUSTER BY is not part of the language",
    "into": "INTO is not part of the language: CREATE STREAM name AS SELECT",
    "hint": "hints are not part of the language",
    "match_condition": "MATCH_CONDITION is not part of the language: say the times in ON",
    "by_name": "UNION BY NAME is not part of the language: say the columns in one order",
    "db": "a column is called table.column at most: give the stream a name by AS",
    "locks": "FOR UPDATE is not part of the language: a stream is not changed by a query",
    "connect": "CONNECT BY is not part of the language: a network of boxes has no loops",
    "safe": "TRY_CAST is not part of the language: CAST gives NULL for what it cannot cast",
}
"""By the name of a part that is refused, what to write instead."""


def check_parts(text: str, tree: exp.Expr) -> None:
    """Refuse what no reader of the tree looks at.

    Raises:
        PointedError: names the part.
    """
    for node in tree.walk():
        known = _PARTS.get(type(node))
        if known is not None:
            for name, part in node.args.items():
                if part and name not in known:
                    raise refusal(text, _reason(name, node), _place(part, node))
        if isinstance(node, exp.TableAlias) and node.columns:
            reason = "say the names of the columns in the SELECT"
            raise refusal(text, reason, position_of(node))
        dated = isinstance(node, exp.Table) and node.args.get("version")
        if dated and not isinstance(node.parent, exp.Join):
            raise refusal(text, "AS OF is for the second stream of a JOIN", position_of(node))


def _reason(name: str, node: exp.Expr) -> str:
    words = name.strip("_").replace("_", " ").upper()
    return REASONS.get(name, f"{words} of {node.key.upper()} is not part of the language")


def _place(part: object, node: exp.Expr) -> int:
    """Where a part begins, or else the node that has it."""
    nodes = [each for each in _nodes(part) if any("start" in one.meta for one in each.walk())]
    return position_of(nodes[0] if nodes else node)


def _nodes(part: object) -> Iterator[exp.Expr]:
    for each in part if isinstance(part, list) else [part]:
        if isinstance(each, exp.Expr):
            yield each
