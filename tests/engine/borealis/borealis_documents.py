"""Documents in Borealis' own form: with its document type, without attributes of ours.

The intrusion query is that of the SIGMOD demonstration and its poster, the monitoring of sources
that of the demonstration of high availability, the tolls are figure 1 of Medusa's first paper, and
the quotes are those of Borealis' tutorial for programmers.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).parents[3] / "examples" / "borealis"

INTRUSION: Final = (FOLDER / "intrusion" / "query.xml").read_text()

TOLLS: Final = (FOLDER / "tolls" / "query.xml").read_text()


def monitoring(servers: int, units: int) -> str:
    """Return the query of the demonstration of high availability for that many servers: each has
    windows of 10 that advance by 1 over both inputs, and a union joins them all."""
    relays, queries, ends = [], [], []
    for unit in range(1, units + 1):
        for port in (1, 2):
            stream = f"{port}{unit:02}"
            relays.append(
                f'<box name="union.u{stream}" type="union">'
                f'<in stream="input{port}"/><out stream="{stream}"/></box>'
            )
    for server in range(1, servers + 1):
        boxes = []
        for unit in range(1, units + 1):
            for port in (1, 2):
                number = server * 10_000 + port * 1_000 + unit * 10 + 1
                ends.append(f'<in stream="{number}"/>')
                boxes.append(f"""<box name="{number}" type="aggregate">
            <in stream="{port}{unit:02}"/> <out stream="{number}"/>
            <parameter   name="advance"               value="1"        />
            <parameter   name="aggregate-function.0"  value="avg({number})"  />
            <parameter   name="aggregate-function-output-name.0"  value="agg_id"  />
            <parameter   name="aggregate-function.1"  value="count()"  />
            <parameter   name="aggregate-function-output-name.1"  value="count"  />
            <parameter   name="order-by"              value="FIELD"    />
            <parameter   name="order-on-field"        value="timestamp"    />
            <parameter   name="group-by"              value="source"    />
            <parameter   name="window-size"           value="10"        />
            <parameter   name="window-size-by"        value="VALUES"   />
            <parameter   name="drop-empty-outputs"    value="1"   />
        </box>""")
        queries.append(f'<query name="Query{server}">{"".join(boxes)}</query>')
    return f"""<?xml version="1.0"?>
<!DOCTYPE borealis SYSTEM "../../src/src/borealis.dtd">
<!-- Borealis query diagram for:  ha_demo.cc -->
<borealis>
    <input  stream="input1" schema="PacketSchema" />
    <input  stream="input2" schema="PacketSchema" />
    <output stream="output" schema="CountSchema"/>
    <schema name="PacketSchema">
        <field name="timestamp" type="int"/>
        <field name="source" type="int"/>
    </schema>
    <schema name="CountSchema">
        <field name="source" type="int"/>
        <field name="timestamp" type="int"/>
        <field name="agg_id" type="int"/>
        <field name="count" type="int"/>
    </schema>
    <query name="QueryU">{"".join(relays)}</query>
    {"".join(queries)}
    <query name="QueryD">
        <box name="union.output" type="union">{"".join(ends)}<out stream="output"/></box>
    </query>
</borealis>
"""


MONITORING_DEPLOYED = """<?xml version="1.0"?>
<!DOCTYPE borealis SYSTEM "../../src/src/borealis.dtd">

<!-- Borealis query diagram for:  ha_demo.cc -->

<deploy>
    <publish   stream="input1"  node="127.0.0.1:20000"/>
    <publish   stream="input2"  node="127.0.0.1:20000"/>
    <subscribe stream="output"  node="127.0.0.1:20000"/>

    <node   endpoint="127.0.0.1:20000" query="QueryU" />
    <node   endpoint="127.0.0.1:15000" query="Query1" />
    <node   endpoint="127.0.0.1:20000" query="QueryD" />
</deploy>
"""

QUOTES = """<?xml version="1.0"?>
<!DOCTYPE borealis SYSTEM "/home/me/borealis/src/src/borealis.dtd">
<borealis>
  <input stream="Stock_USD" schema="StockType_USD" />
  <output stream="Stock_BR" schema="StockType_BR" />
  <schema name="StockType_USD">
    <field name="symbol"      type="string" size="4" />
    <field name="time"        type="int"             />
    <field name="price_usd"   type="double"          />
  </schema>
  <schema name="StockType_BR">
    <field name="symbol"      type="string" size="4" />
    <field name="time"        type="int"             />
    <field name="price_br"    type="double"          />
  </schema>
  <query name="Canadian">
    <box name="Canadian" type="map">
      <in stream="Stock_USD" />
      <out stream="Stock_CAD" />
      <parameter name="expression.0"        value="symbol"         />
      <parameter name="output-field-name.0" value="symbol"         />
      <parameter name="expression.1"        value="time"           />
      <parameter name="output-field-name.1" value="time"           />
      <parameter name="expression.2"        value="price_usd/0.75" />
      <parameter name="output-field-name.2" value="price_cad"      />
    </box>
  </query>
  <query name="Brazilian">
    <box name="Brazilian" type="map">
      <in stream="Stock_CAD" />
      <out stream="Stock_BR" />
      <parameter name="expression.0"        value="symbol"         />
      <parameter name="output-field-name.0" value="symbol"         />
      <parameter name="expression.1"        value="time"           />
      <parameter name="output-field-name.1" value="time"           />
      <parameter name="expression.2"        value="price_cad/2.50" />
      <parameter name="output-field-name.2" value="price_br"       />
    </box>
  </query>
</borealis>
"""
