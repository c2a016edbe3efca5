"""Documents in Borealis' own form: with its document type, without attributes of ours.

The intrusion query is that of the SIGMOD demonstration and its poster, the monitoring of sources
that of the demonstration of high availability, the tolls are figure 1 of Medusa's first paper, and
the quotes are those of Borealis' tutorial for programmers.
"""

from __future__ import annotations

INTRUSION = """<?xml version="1.0"?>
<!DOCTYPE borealis SYSTEM "../../src/src/borealis.dtd">
<!-- Borealis query diagram for:  ids.cc -->
<borealis>
  <input  stream="Connection" schema="ConnectionTuple"/>
  <output stream="Busy"       schema="Suspects"/>
  <output stream="Probing"    schema="Suspects"/>
  <output stream="Clusters"   schema="ClusterTuple"/>
  <schema name="ConnectionTuple">
    <field name="start_time_sec" type="int"/>
    <field name="duration"       type="double"/>
    <field name="protocol"       type="string" size="16"/>
    <field name="orig_bytes"     type="int"/>
    <field name="resp_bytes"     type="int"/>
    <field name="local0" type="int"/> <field name="local1" type="int"/>
    <field name="local2" type="int"/> <field name="local3" type="int"/>
    <field name="remote_port"    type="int"/>
    <field name="flags"          type="string" size="8"/>
  </schema>
  <schema name="Suspects">
    <field name="local0" type="int"/> <field name="local1" type="int"/>
    <field name="local2" type="int"/> <field name="local3" type="int"/>
    <field name="start_time_sec" type="int"/>
    <field name="agg_0" type="int"/>
  </schema>
  <schema name="ClusterTuple">
    <field name="local0" type="int"/> <field name="local1" type="int"/>
    <field name="start_time_sec" type="int"/>
    <field name="conns" type="int"/>
  </schema>
  <query name="forward">
    <box name="forwarder" type="filter">
      <in stream="Connection"/>
      <out stream="All"/>
      <parameter name="expression.0" value="start_time_sec > -1"/>
    </box>
  </query>
  <query name="A">
    <box name="count" type="aggregate">
      <in stream="All"/>
      <out stream="Counted"/>
      <parameter name="aggregate-function.0" value="count()"/>
      <parameter name="window-size-by" value="VALUES"/>
      <parameter name="window-size" value="60"/>
      <parameter name="advance" value="60"/>
      <parameter name="order-by" value="FIELD"/>
      <parameter name="order-on-field" value="start_time_sec"/>
      <parameter name="timeout" value="12"/>
      <parameter name="group-by" value="local0,local1,local2,local3"/>
    </box>
    <box name="many" type="filter">
      <in stream="Counted"/>
      <out stream="Busy"/>
      <parameter name="expression.0" value="agg_0 > 100"/>
    </box>
    <box name="prefix" type="aggregate">
      <in stream="Busy"/>
      <out stream="Prefixes"/>
      <parameter name="aggregate-function.0" value="sum(agg_0)"/>
      <parameter name="aggregate-function-output-name.0" value="conns"/>
      <parameter name="window-size-by" value="VALUES"/>
      <parameter name="window-size" value="60"/>
      <parameter name="advance" value="60"/>
      <parameter name="order-by" value="FIELD"/>
      <parameter name="order-on-field" value="start_time_sec"/>
      <parameter name="group-by" value="local0,local1"/>
    </box>
    <box name="clusters" type="filter">
      <in stream="Prefixes"/>
      <out stream="Clusters"/>
      <parameter name="predicate" value="conns > 250"/>
    </box>
  </query>
  <query name="B">
    <box name="distinct" type="aggregate">
      <in stream="All"/>
      <out stream="Ports"/>
      <parameter name="aggregate-function.0" value="count_distinct(protocol)"/>
      <parameter name="window-size-by" value="VALUES"/>
      <parameter name="window-size" value="60"/>
      <parameter name="advance" value="60"/>
      <parameter name="order-by" value="FIELD"/>
      <parameter name="order-on-field" value="start_time_sec"/>
      <parameter name="timeout" value="12"/>
      <parameter name="group-by" value="local0,local1,local2,local3"/>
    </box>
    <box name="probe" type="filter">
      <in stream="Ports"/>
      <out stream="Probing"/>
      <parameter name="expression.0" value="agg_0 > 10"/>
    </box>
  </query>
  <deploy>
    <publish   stream="Connection" endpoint="127.0.0.1:15000"/>
    <subscribe stream="Busy"    endpoint="127.0.0.1:25000" gap="0"/>
    <subscribe stream="Probing" endpoint="127.0.0.1:25000" gap="0"/>
    <node endpoint="127.0.0.1:15000" query="forward"/>
    <replica_set name="one" query="A">
      <node endpoint="127.0.0.1:17000"/> <node endpoint="127.0.0.1:18000"/>
    </replica_set>
    <node endpoint="127.0.0.1:19000" query="B"/>
    <client endpoint="127.0.0.1:25000"/>
  </deploy>
</borealis>
"""

TOLLS = """<?xml version="1.0"?>
<!DOCTYPE borealis SYSTEM "borealis.dtd">
<borealis>
  <input  stream="CarSightings"      schema="Sighting"/>
  <output stream="TollNotifications" schema="Toll"/>
  <output stream="TowTruckDispatch"  schema="Dispatch"/>
  <schema name="Sighting">
    <field name="time" type="int"/>
    <field name="car" type="int"/>
    <field name="segment" type="int"/>
    <field name="speed" type="double"/>
    <field name="tow" type="int"/>
  </schema>
  <schema name="Toll">
    <field name="car" type="int"/>
    <field name="segment" type="int"/>
    <field name="toll" type="int"/>
  </schema>
  <schema name="Dispatch">
    <field name="car" type="int"/>
    <field name="truck" type="int"/>
    <field name="segment" type="int"/>
  </schema>
  <query name="Tolls">
    <box name="a" type="aggregate">
      <in stream="CarSightings"/>
      <out stream="Speeds"/>
      <parameter name="aggregate-function.0" value="avg(speed)"/>
      <parameter name="aggregate-function-output-name.0" value="mean"/>
      <parameter name="window-size-by" value="VALUES"/>
      <parameter name="window-size" value="60"/>
      <parameter name="advance" value="60"/>
      <parameter name="order-by" value="FIELD"/>
      <parameter name="order-on-field" value="time"/>
      <parameter name="group-by" value="segment"/>
    </box>
    <box name="b" type="aggregate">
      <in stream="CarSightings"/>
      <out stream="Volumes"/>
      <parameter name="aggregate-function.0" value="count()"/>
      <parameter name="aggregate-function-output-name.0" value="cars"/>
      <parameter name="window-size-by" value="VALUES"/>
      <parameter name="window-size" value="60"/>
      <parameter name="advance" value="60"/>
      <parameter name="order-by" value="FIELD"/>
      <parameter name="order-on-field" value="time"/>
      <parameter name="group-by" value="segment"/>
    </box>
    <box name="pairs" type="join">
      <in stream="Speeds"/>
      <in stream="Volumes"/>
      <out stream="Loads"/>
      <parameter name="predicate" value="left.segment = right.segment and left.time == right.time"/>
      <parameter name="left-order-by" value="VALUES"/>
      <parameter name="left-order-on-field" value="time"/>
      <parameter name="left-buffer-size" value="60"/>
      <parameter name="right-order-by" value="VALUES"/>
      <parameter name="right-order-on-field" value="time"/>
      <parameter name="right-buffer-size" value="60"/>
      <parameter name="out-field-name.0" value="segment"/>
      <parameter name="out-field.0" value="left.segment"/>
      <parameter name="out-field-name.1" value="mean"/>
      <parameter name="out-field.1" value="left.mean"/>
      <parameter name="out-field-name.2" value="cars"/>
      <parameter name="out-field.2" value="right.cars"/>
    </box>
    <box name="due" type="filter">
      <in stream="Loads"/>
      <out stream="Busy"/>
      <parameter name="expression.0" value="mean &lt; 40 and cars > 5"/>
    </box>
    <box name="c" type="map">
      <in stream="Busy"/>
      <out stream="SegmentTolls"/>
      <parameter name="output-field-name.0" value="at"/>
      <parameter name="expression.0" value="segment"/>
      <parameter name="output-field-name.1" value="toll"/>
      <parameter name="expression.1" value="2 * (cars - 5) * (cars - 5)"/>
    </box>
    <box name="e" type="filter">
      <in stream="CarSightings"/>
      <out stream="Moving"/>
      <out stream="Standing"/>
      <parameter name="expression.0" value="speed > 0"/>
      <parameter name="pass-on-false-port" value="1"/>
    </box>
    <box name="d" type="join">
      <in stream="Moving"/>
      <in stream="SegmentTolls"/>
      <out stream="TollNotifications"/>
      <parameter name="predicate" value="left.segment = right.at"/>
      <parameter name="left-order-by" value="VALUES"/>
      <parameter name="left-order-on-field" value="time"/>
      <parameter name="left-buffer-size" value="0"/>
      <parameter name="right-order-by" value="VALUES"/>
      <parameter name="right-buffer-size" value="60"/>
      <parameter name="out-field-name.0" value="car"/>
      <parameter name="out-field.0" value="left.car"/>
      <parameter name="out-field-name.1" value="segment"/>
      <parameter name="out-field.1" value="left.segment"/>
      <parameter name="out-field-name.2" value="toll"/>
      <parameter name="out-field.2" value="right.toll"/>
    </box>
    <box name="g" type="filter">
      <in stream="CarSightings"/>
      <out stream="TowTrucks"/>
      <parameter name="expression.0" value="tow = 1"/>
    </box>
    <box name="h" type="join">
      <in stream="Standing"/>
      <in stream="TowTrucks"/>
      <out stream="TowTruckDispatch"/>
      <parameter name="predicate"
                 value="left.segment = right.segment and left.car &lt;> right.car"/>
      <parameter name="left-order-by" value="VALUES"/>
      <parameter name="left-order-on-field" value="time"/>
      <parameter name="left-buffer-size" value="10"/>
      <parameter name="right-order-by" value="VALUES"/>
      <parameter name="right-order-on-field" value="time"/>
      <parameter name="right-buffer-size" value="30"/>
      <parameter name="out-field-name.0" value="car"/>
      <parameter name="out-field.0" value="left.car"/>
      <parameter name="out-field-name.1" value="truck"/>
      <parameter name="out-field.1" value="right.car"/>
      <parameter name="out-field-name.2" value="segment"/>
      <parameter name="out-field.2" value="left.segment"/>
    </box>
  </query>
</borealis>
"""


def monitoring(servers: int, units: int) -> str:
    """The query of the demonstration of high availability, for so many servers: each has windows of
    10 that advance by 1 over both inputs, and all of them are put together."""
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
