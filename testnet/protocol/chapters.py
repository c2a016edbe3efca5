"""The chapters on the protocol: connections, calls, datagrams, signed objects, limits."""

from __future__ import annotations

import dataclasses
import inspect
import tempfile
import textwrap
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Final, get_type_hints

from msgspec import Struct

from medusa.contracts import documents, receipts
from medusa.contracts.config import ContractsConfig
from medusa.dht import records, wire
from medusa.engine.objects import catalog_records
from medusa.engine.replication.queries import digests as stream_digests
from medusa.engine.streams import messages as tuples
from medusa.overlay import (
    client_tokens,
    datagrams,
    frames,
    greeting,
    invite,
    multiplex,
    peer_records,
    rpc,
    signing,
    statements,
    streams,
    tls,
)
from medusa.overlay.gossip import claims, digests, messages
from medusa.overlay.rpc import Method
from medusa.testnet.protocol.page import Page, closure, names_of
from medusa.testnet.protocol.words import limit_words, messages_in
from medusa.testnet.simulation.federation import Federation, build, config_of
from medusa.tools.daemon.peer import open_peer
from medusa.tools.daemon.scopes import SCOPES
from medusa.tools.home.folder import Home

LOCAL: Final = ("127.0.0.1", 0)

LIMITS: Final[tuple[tuple[ModuleType, tuple[str, ...]], ...]] = (
    (frames, ("FRAME_BYTES", "MAX_FRAME_BYTES", "MAX_CONTROL_BYTES")),
    (multiplex, ("MAX_STREAMS", "MAX_CONTROL_FRAMES", "CONNECTION_BYTES", "STREAM_BYTES")),
    (rpc, ("MAX_STRUCT_BYTES", "REQUEST_BYTES", "MAX_BODY_BYTES", "MAX_METHOD")),
    (tuples, ("MAX_BATCH_BYTES",)),
    (datagrams, ("MAX_PAYLOAD", "MAX_DATAGRAM", "MAX_AGE_US")),
    (messages, ("MAX_PACKET", "MAX_STATE")),
    (digests, ("MAX_DIGEST",)),
    (wire, ("MAX_VALUES", "MAX_NODES")),
    (records, ("MAX_RECORD_BYTES", "MAX_INLINE_BYTES", "MAX_BODY_BYTES", "MAX_SKEW_US")),
    (statements, ("MAX_STATEMENT", "MAX_KEPT")),
    (peer_records, ("MAX_RECORD", "MAX_ADDRESSES")),
    (invite, ("MAX_TOKEN",)),
    (documents, ("MAX_DOCUMENT", "MAX_PROPOSAL")),
    (receipts, ("MAX_RECEIPT", "MAX_ENTRY")),
)
"""The limits of messages, by module."""

INTRODUCTION: Final = """\
All messages that Medusa's programs exchange, with their fields and limits. `make protocol` writes
this page from the types: mend a text in the docstring of its type.

Structs are encoded as MessagePack, as arrays or maps of their fields, in the order given here. A
field with a default may be missing. A type in a table has the limits to which the decoder holds it;
other limits stand in the text. Peer ids are 20 bytes, or 40 hexadecimal digits as text. Times and
boundaries are microseconds since 1970 (UTC) unless the text says seconds; BEGINNING and END are the
least and the greatest integer of 64 bits."""

CONNECTIONS: Final = f"""\
A connection is TLS 1.3 over TCP. Its ALPN name is `{tls.PEER_PROTOCOL}` between peers, where both
sides show certificates, and `{tls.CLIENT_PROTOCOL}` for clients, who know the peer's root and show
a token. Its first bytes are a greeting. Hello and verdict begin with the number of the sender's
protocol, u16, here {greeting.PROTOCOL}. A side that receives another number sends its own and
ends the connection:

* The side that dialled sends a hello: the {greeting.INSTANCE_BYTES} random bytes of its peer's
  start, or, as a client, the {client_tokens.PROOF_BYTES} bytes of SHA-256 of its token.
* The other side answers with a verdict: u8 answer, the {greeting.INSTANCE_BYTES} bytes of its own
  start, u16 length, and the reason, of that length in bytes (at most {greeting.MAX_TEXT:,})."""

CALLS: Final = """\
A call is one stream of a connection. The caller sends the request. The peer answers with one
message, or, in a streaming call, both sides send the messages of the table. A peer asks its
membership and its tokens who calls, before it receives the request. Each message is a u32 length of
its struct, a u32 length of its body, the struct, and the body. Bodies are Arrow IPC, the bytes of
an object of the catalog, or empty."""

DATAGRAMS: Final = """\
Gossip and the DHT share one UDP socket. A datagram is a `Signed` whose payload is this struct, and
whose domain is "medusa datagram of " with the federation's id. A peer drops a datagram of another
minute, of no peer that it knows, or with a wrong signature."""

DIGEST: Final = """\
A digest is the author's peer id (20 bytes), its incarnation (u64), a version that counts within the
incarnation (u64), the content, and 64 bytes of signature. The content is a `Digest`:"""

DHT: Final = """\
A frame is one byte (0 asks, 1 answers), 20 random bytes that name the call, and an array of one
message. The sender's id is in the datagram's envelope. The values are catalog records."""

FILES: Final = """\
Signed objects travel and rest as the same bytes. Each has its domain: a text that is signed with
the payload, so that a signature for one purpose is worth nothing for another. The signature is
Ed25519 over `medusa`, a zero byte, the u16 length of the domain, the domain, and the payload."""

SIGNED: Final[tuple[tuple[str, str, tuple[type[Struct], ...]], ...]] = (
    (
        "Membership",
        f'The charter has the domain "{statements.CHARTER_DOMAIN}", each statement has'
        f' "{statements.STATEMENT_DOMAIN}". They are signed by root keys; an entry is signed by the'
        " key of the peer that is its witness. Every peer keeps all of them in `federation`.",
        (
            statements.Charter,
            statements.Admission,
            statements.Approval,
            statements.Entry,
            statements.PolicyChange,
            statements.Revocation,
        ),
    ),
    (
        "Peer records",
        f'Each peer signs its own with the domain "{peer_records.DOMAIN}". '
        "The file `peers` has them.",
        (peer_records._Body,),
    ),
    (
        "Invitations",
        "The token of `medusa-peer invite` is this struct, in base64. What it holds is signed.",
        (invite.Invite,),
    ),
    (
        "Catalog records",
        f"The publisher's peer signs, with the domain \"{records.DOMAIN}\" and the federation's"
        " id. The body is an object of the catalog; a larger one is fetched from its publisher by"
        " `catalog.body`.",
        (
            records.Record,
            *(
                each.type
                for each in (
                    catalog_records.STREAM,
                    catalog_records.QUERY,
                    catalog_records.SCHEMA,
                    catalog_records.VIEW,
                )
            ),
            catalog_records.PRODUCER.type,
        ),
    ),
    (
        "Contracts",
        f'Signed by the root of the participant that speaks, with the domain "{documents.DOMAIN}".'
        " A file of `contracts/` has one document.",
        (documents.Proposal, documents.Acceptance, documents.Revocation),
    ),
    (
        "Receipts",
        f'Signed by the keys of the two peers: the payee\'s with "{receipts.RECEIPT_DOMAIN}", the'
        f' payer\'s with "{receipts.COUNTERSIGN_DOMAIN}" or "{receipts.DISPUTE_DOMAIN}". The ledger'
        " has them.",
        (receipts.Receipt, receipts.Settled, receipts.Objection, receipts.Dispute),
    ),
)


async def read_methods() -> Mapping[str, Method]:
    """The methods of a running peer."""
    federation = Federation({"example.org": 1})
    with tempfile.TemporaryDirectory() as folder:
        ((name, place),) = build(federation, Path(folder)).items()
        home = Home(place)
        config = config_of(federation, name, home)
        config = dataclasses.replace(
            config,
            overlay=dataclasses.replace(config.overlay, listen=LOCAL),
            client=dataclasses.replace(config.client, listen=LOCAL),
            contracts=ContractsConfig(trade=True),
        )
        async with open_peer(home, config) as peer:
            return dict(peer.engine.overlay.service.methods)


def write(methods: Mapping[str, Method]) -> str:
    """The whole page."""
    told = messages_of(methods)
    made = Page(names_of(told))
    made.heading(1, "The protocol")
    made.prose(INTRODUCTION)
    _connections(made)
    _calls(made, methods)
    _datagrams(made)
    _files(made)
    made.heading(2, "Parts of messages")
    for kind in closure(told):
        made.message(kind)
    _limits(made)
    return made.text


def messages_of(methods: Mapping[str, Method]) -> list[type[Struct]]:
    """All messages that are no mere parts of others: of calls, signed, of datagrams."""
    return [
        *(each for _, method in sorted(methods.items()) for each in _of(method)),
        *(each for _, _, group in SIGNED for each in group),
        streams.Opening,
        streams.Failure,
        datagrams._Body,
        messages.Packet,
        messages.State,
        stream_digests.Digest,
        signing.Signed,
        *messages_in(wire.Request),
        *messages_in(wire.Reply),
    ]


def _connections(made: Page) -> None:
    made.heading(2, "Connections")
    made.prose(CONNECTIONS)
    made.table(("answer", "number"), ((each.name, str(each.value)) for each in greeting.Answer))
    made.prose("Then both sides send frames.")
    text = inspect.cleandoc(frames.__doc__ or "").partition("\n\n")[2]
    prose, _, kinds_of_frames = text.partition("\n\n")
    made.prose(prose)
    made.code(textwrap.dedent(kinds_of_frames))
    made.table(
        ("frame", "number", "least bytes", "most bytes"),
        (
            (each.name, str(each.value), *(f"{size:,}" for size in frames.LENGTHS[each]))
            for each in frames.Kind
        ),
    )
    made.message(streams.Opening)
    made.message(streams.Failure)


def _calls(made: Page, methods: Mapping[str, Method]) -> None:
    made.heading(2, "Calls")
    made.prose(CALLS)
    made.table(
        ("method", "request", "answer", "who may call it", "a client's scope", "most bytes"),
        (
            (
                f"`{name}`",
                made.link(method.request_type),
                answers_in_words(method, made.link),
                callers_in_words(method),
                scopes_in_words(name) if method.clients else "",
                f"{method.limit:,}",
            )
            for name, method in sorted(methods.items())
        ),
    )
    for _, method in sorted(methods.items()):
        for kind in _of(method):
            made.message(kind)


def _datagrams(made: Page) -> None:
    made.heading(2, "Datagrams")
    made.prose(DATAGRAMS)
    made.message(datagrams._Body)
    made.heading(2, "Gossip")
    made.prose(inspect.cleandoc(messages.__doc__ or ""))
    made.message(messages.Packet)
    made.message(messages.State)
    text, _, layout = inspect.cleandoc(claims.__doc__ or "").partition("\n\n    ")
    made.prose(text)
    made.code(textwrap.dedent("    " + layout))
    made.table(("claim", "number"), ((each.name, str(each.value)) for each in claims.Word))
    made.prose(DIGEST)
    made.message(stream_digests.Digest)
    made.heading(2, "The DHT")
    made.prose(DHT)
    for kind in (*messages_in(wire.Request), *messages_in(wire.Reply)):
        made.message(kind)


def _files(made: Page) -> None:
    made.heading(2, "Signed objects")
    made.prose(FILES)
    made.message(signing.Signed)
    for title, text, group in SIGNED:
        made.heading(3, title)
        made.prose(text)
        for kind in group:
            made.message(kind, 4)


def _limits(made: Page) -> None:
    made.heading(2, "Limits")
    made.table(
        ("limit", "of", "value", "meaning"),
        (
            (f"`{name}`", f"`{module.__name__}`", *limit_words(module, name))
            for module, constants in LIMITS
            for name in constants
        ),
    )


def _of(method: Method) -> Iterator[type[Struct]]:
    """The messages of a call, the request first."""
    yield method.request_type
    yield from method.takes
    yield from method.sends or _returned(method)


def _returned(method: Method) -> Iterator[type[Struct]]:
    yield from messages_in(get_type_hints(method.handler).get("return"))


def answers_in_words(method: Method, name_of: Callable[[type[Struct]], str]) -> str:
    """The peer's answers in words, or the messages of both sides in a streaming call."""
    if not method.sends and not method.takes:
        return " or ".join(map(name_of, _returned(method)))
    takes = ", ".join(map(name_of, method.takes))
    sends = ", ".join(map(name_of, method.sends))
    return f"sends {sends}" + (f"; takes {takes}" if takes else "")


def callers_in_words(method: Method) -> str:
    """The callers of a call, for people."""
    peers_words = "peers of its participant" if method.own else "peers"
    who = [("clients", method.clients), (peers_words, method.peers)]
    return ", ".join(words for words, may in who if may)


def scopes_in_words(name: str) -> str:
    """The scopes of a client's token that allow the call."""
    scopes = SCOPES[name]
    return "any" if scopes == client_tokens.EVERY_SCOPE else ", ".join(sorted(scopes))
