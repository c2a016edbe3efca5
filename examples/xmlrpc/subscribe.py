"""The first paper's appendix, 6.4 and 6.5: subscribe to a stream, and start the query.

python subscribe.py https://TOKEN@HOST:PORT ROOT.CRT

The peer runs on the same machine: docs/xmlrpc.md has what other machines need.
"""

import ssl
import sys
from xmlrpc.client import ServerProxy
from xmlrpc.server import SimpleXMLRPCServer

url, root = sys.argv[1:]
peers_of_ours = ssl.create_default_context(cafile=root)
peers_of_ours.check_hostname = False  # the certificate has the peer's name, not the host's
client = ServerProxy(url, context=peers_of_ours)


def print_event(batch: dict) -> bool:
    """Called every time a set of tuples appears on the stream."""
    for event in batch["events"]:
        print(event["person_name"], event["person_id"], flush=True)
    return True


acceptor = SimpleXMLRPCServer(("127.0.0.1", 0), logRequests=False)
acceptor.register_function(print_event, "MyTCPSink.receive_events")
my_address = "{}:{}".format(*acceptor.server_address)

client.subscribe("medusa://nms.lcs.mit.edu/locator/MrX", "tcp", my_address, "MyTCPSink", "ADD")

client.set_query_status("medusa://nms.lcs.mit.edu/locator/FindMrX", "RUNNING")
acceptor.serve_forever()
