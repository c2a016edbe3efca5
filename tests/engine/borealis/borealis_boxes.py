"""Documents of Borealis with one box over two inputs."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from computed_documents import BASE
from msgspec.structs import replace
from printed_queries import read_sql, run

from medusa.engine.language.document import Document
from medusa.engine.language.python.printing import query_as_python
from medusa.engine.language.same_query import is_same
from medusa.engine.language.sql.printing import query_as_sql
from medusa.engine.language.xml.writing import document_as_xml
from medusa.engine.objects.query import Query
from medusa.engine.objects.schema import Schema
from medusa.engine.reading import read_document

HEAD = """<borealis>
  <input stream="s" schema="s_tuple"/> <input stream="u" schema="u_tuple"/>
  <schema name="s_tuple">
    <field name="time" type="int"/> <field name="k" type="string" size="8"/>
    <field name="x" type="int"/> <field name="y" type="double"/>
  </schema>
  <schema name="u_tuple">
    <field name="seen" type="int"/> <field name="k" type="string" size="8"/>
    <field name="z" type="int"/>
  </schema>
"""

TIMED = """<box name="timed" type="bsort"><in stream="s"/><out stream="timed"/>
  <parameter name="order-on" value="time"/></box>
  <box name="timed_u" type="bsort"><in stream="u"/><out stream="timed_u"/>
  <parameter name="order-on" value="seen"/></box>"""
"""Boxes whose parameters name the time fields."""

ORDERED = {"order-by": "FIELD", "window-size-by": "VALUES", "order-on-field": "time"}

BUFFERS = {
    "left-order-by": "VALUES",
    "left-order-on-field": "time",
    "left-buffer-size": "3",
    "right-order-by": "VALUES",
    "right-order-on-field": "seen",
    "right-buffer-size": "8",
}

TABLE = """<schema name="fleet_tuple"> <field name="since" type="int"/>
    <field name="k" type="string" size="8"/> <field name="z" type="int"/> </schema>
  <table name="fleet" schema="fleet_tuple"> <key field="k"/> </table>"""


def document(
    kind: str, parameters: Mapping[str, str], inputs: str = "s", outputs: str = "out"
) -> str:
    """Return a document with one box of that type."""
    streams = "".join(f'<in stream="{each}"/>' for each in inputs.split())
    streams += "".join(f'<out stream="{each}"/>' for each in outputs.split())
    given = "".join(
        f'<parameter name="{name}" value="{value}"/>' for name, value in parameters.items()
    )
    return whole(f'<box name="b" type="{kind}">{streams}{given}</box>')


def whole(boxes: str, more: str = "") -> str:
    return f'{HEAD}{more}<query name="q">{TIMED}{boxes}</query></borealis>'


def table_box(kind: str, source: str, sql: str, more: str = "") -> str:
    return (
        f'<box name="{kind}" type="{kind}"><in stream="{source}"/>{more}<access table="fleet"/>'
        f'<parameter name="sql" value="{sql}"/></box>'
    )


def check_printed(query: Query, inputs: Mapping[str, Schema]) -> None:
    """Check that a query of a document stays the same when it is printed as SQL and as Python and
    read again."""
    assert is_same(read_sql(query_as_sql(query, inputs), inputs), query, inputs)
    assert is_same(run(query_as_python(query)), query, inputs)


@cache
def read(text: str) -> Document:
    """Read the document; check that it stays the same when it is printed in our dialect."""
    found = read_document(text, BASE)
    printed = read_document(document_as_xml(found))
    assert printed.streams == found.streams
    assert printed.queries == tuple(
        replace(query, outputs=printed.queries[number].outputs)
        for number, query in enumerate(found.queries)
    )
    return found
