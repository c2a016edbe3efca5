#!/bin/sh
# avro 1.12.2 writes a decimal with fewer digits behind the point than the schema's scale as another
# number, without an error: 1.5 at scale 2 is written as the integer 15, and read as 0.15. Avro's
# specification stores the unscaled value at the schema's scale, 150; fastavro 1.13.1 writes that.
#
# Seen:
#   avro      1.5 -> 0.15
#   fastavro  1.5 -> 1.50
# Consequence: quantize decimals to the schema's scale before avro writes them, or use fastavro.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" --quiet --disable-pip-version-check install 'avro==1.12.2' 'fastavro==1.13.1'
"$folder/venv/bin/python" - <<'PYTHON'
import io
import json
from decimal import Decimal

import avro.io
import avro.schema
import fastavro

SCHEMA = json.dumps({"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2})

official = avro.schema.parse(SCHEMA)
written = io.BytesIO()
avro.io.DatumWriter(official).write(Decimal("1.5"), avro.io.BinaryEncoder(written))
written.seek(0)
by_avro = avro.io.DatumReader(official).read(avro.io.BinaryDecoder(written))
print("avro      1.5 ->", by_avro)

other = fastavro.parse_schema(json.loads(SCHEMA))
written = io.BytesIO()
fastavro.schemaless_writer(written, other, Decimal("1.5"))
written.seek(0)
by_fastavro = fastavro.schemaless_reader(written, other)
print("fastavro  1.5 ->", by_fastavro)

assert by_avro == Decimal("0.15"), "avro's answer has changed"
assert by_fastavro == Decimal("1.50"), "fastavro's answer has changed"
PYTHON
