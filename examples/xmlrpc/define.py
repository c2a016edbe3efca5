"""The first paper's appendix, 6.1 and 6.2: create a schema and a stream.

python define.py https://TOKEN@HOST:PORT ROOT.CRT
"""

import ssl
import sys
import xml.etree.ElementTree as ET
from xmlrpc.client import ServerProxy

url, root = sys.argv[1:]
peers_of_ours = ssl.create_default_context(cafile=root)
peers_of_ours.check_hostname = False  # the certificate has the peer's name, not the host's
client = ServerProxy(url, context=peers_of_ours)

schema_xml = """
<schema name="medusa://nms.lcs.mit.edu/locator/person">
 <field name="person_name" type="string" size="32"/>
 <field name="person_id" type="int"/>
</schema>
"""
document = ET.fromstring(schema_xml)  # noqa: S314 - our own text
schema = {**document.attrib, "fields": [dict(field.attrib) for field in document]}
client.create_schema(schema)

stream_def = {"name": "medusa://nms.lcs.mit.edu/locator/people", "schema": schema["name"]}
print(client.create_stream(stream_def)["names"])
