#!/bin/sh
# syslog-rfc5424-parser 0.3.2 keeps the escapes of a structured-data value, and one value of a
# parameter that comes twice. RFC 5424 (section 6.3.3) escapes `"`, `\` and `]` in the text only:
# the value of q below is a]b"c. The same section lets a name come more than once in an element.
#
# Seen, of [ex@32473 ip="192.0.2.1" ip="192.0.2.2" q="a\]b\"c"]:
#   ip = 192.0.2.2      (192.0.2.1 is gone)
#   q  = a\]b\"c
# Consequence: unescape values oneself; elements with repeated names need another reader.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" --quiet --disable-pip-version-check install 'syslog-rfc5424-parser==0.3.2'
"$folder/venv/bin/python" - <<'PYTHON'
from syslog_rfc5424_parser import SyslogMessage

LINE = (
    "<165>1 2026-11-28T00:00:00Z host.example app 1 ID "
    r'[ex@32473 ip="192.0.2.1" ip="192.0.2.2" q="a\]b\"c"] text'
)

element = SyslogMessage.parse(LINE).sd["ex@32473"]
for name, value in element.items():
    print(f"{name:2} = {value}")
assert element == {"ip": "192.0.2.2", "q": r"a\]b\"c"}, "the answers have changed"
PYTHON
