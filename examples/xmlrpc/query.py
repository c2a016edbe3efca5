"""The first paper's appendix, 6.3: submit a query.

python query.py https://TOKEN@HOST:PORT ROOT.CRT
"""

import ssl
import sys
from xmlrpc.client import ServerProxy

url, root = sys.argv[1:]
peers_of_ours = ssl.create_default_context(cafile=root)
peers_of_ours.check_hostname = False  # the certificate has the peer's name, not the host's
client = ServerProxy(url, context=peers_of_ours)

query_xml = """
<query name="medusa://nms.lcs.mit.edu/locator/FindMrX">
 <box name="foo" type="filter">
  <input port="1" stream="medusa://nms.lcs.mit.edu/locator/people"/>
  <output port="1" stream="medusa://nms.lcs.mit.edu/locator/MrX"/>
  <param name="nexpression.0" value="person_id = 2"/>
  <param name="pass-on-false-port" value="0"/>
 </box>
</query>
"""
print(client.create_query_xml(query_xml)["names"])
