#!/bin/sh
# datasketches 5.2.0 counts distinct unsigned integers of 2^63 and more as if they were floats: its
# theta and HLL sketches round them to 53 bits first, so that 2,000 neighbours are two values. The
# same sketches count integers below 2^63 as integers, and the CPC sketch counts both rightly.
# Hashes of 64 bits (xxhash, addresses of IPv6 cut in half) are such integers, half of the time.
#
# Seen, of 2,000 distinct values each:
#   theta  from 2^62: 2000  from 2^63: 2
#   hll    from 2^62: 1997  from 2^63: 2
#   cpc    from 2^62: 1995  from 2^63: 2010
# Consequence: give theta and HLL such integers as signed ones, or as bytes.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" --quiet --disable-pip-version-check install 'datasketches==5.2.0'
"$folder/venv/bin/python" - <<'PYTHON'
import datasketches

MANY = 2_000
SKETCHES = {
    "theta": lambda: datasketches.update_theta_sketch(12),
    "hll": lambda: datasketches.hll_sketch(12),
    "cpc": lambda: datasketches.cpc_sketch(12),
}


def count(name, first):
    sketch = SKETCHES[name]()
    for value in range(first, first + MANY):
        sketch.update(value)
    return round(sketch.get_estimate())


counts = {name: (count(name, 2**62), count(name, 2**63)) for name in SKETCHES}
for name, (below, above) in counts.items():
    print(f"{name:6} from 2^62: {below}  from 2^63: {above}")
for name in ("theta", "hll"):
    assert abs(counts[name][0] - MANY) < 60, f"{name} below 2^63 has changed"
    assert counts[name][1] == 2, f"{name} from 2^63 has changed"
assert all(abs(counted - MANY) < 120 for counted in counts["cpc"]), "cpc has changed"
PYTHON
