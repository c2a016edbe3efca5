"""Tokens of clients allow their scopes until they end; the tests check the holders' connections,
too."""

from __future__ import annotations

import hashlib
import time
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field

import pytest
import trio
from msgspec import Struct

from medusa.overlay.client_tokens import ClientToken, Scope, proof_of, shown_by
from medusa.overlay.clients import LOOK_S, Clients, open_client, open_client_listener
from medusa.overlay.connection import Connection
from medusa.overlay.errors import NotAuthorisedError
from medusa.overlay.events import Events
from medusa.overlay.identity import Identity, Root
from medusa.overlay.rpc import Caller, Service

NOW = time.time()
LOCAL = ("127.0.0.1", 0)
MINE, THEIRS = b"m" * 64, b"t" * 64
READ = frozenset({Scope.READ})


class Word(Struct):
    text: str


@dataclass
class Desk:
    """A listener whose tokens and clock a test changes. served: the callers of its methods."""

    now: float = NOW
    tokens: list[ClientToken] = field(default_factory=list)
    events: Events = field(default_factory=Events)
    served: list[Caller] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.root = Root.create("mit.edu", NOW)
        self.clients = Clients(lambda: self.tokens, lambda: self.now)
        self.service = Service({"look": READ, "change": frozenset({Scope.DEFINE})})

        async def answer(caller: Caller, request: Word, _: bytes) -> Word:
            await trio.lowlevel.checkpoint()
            self.served.append(caller)
            return request

        for method in ("look", "change", "unclassified"):
            self.service.unary(method, Word, answer, clients=True)

    def listener(self) -> AbstractAsyncContextManager[tuple[str, int]]:
        identity = Identity.issue(self.root, NOW)
        return open_client_listener(identity, self.clients, self.service, LOCAL, self.events)

    def client(
        self, address: tuple[str, int], token: bytes
    ) -> AbstractAsyncContextManager[Connection]:
        return open_client(address, "mit.edu", self.root.certificate, token)


async def test_a_call_takes_the_scope_of_its_method() -> None:
    desk = Desk(tokens=[ClientToken.of("owner", MINE), ClientToken.of("eye", THEIRS, READ)])
    async with desk.listener() as address:
        async with desk.client(address, THEIRS) as client:
            assert await client.call("look", Word("x"), Word) == Word("x")
            with pytest.raises(
                NotAuthorisedError, match=r"change needs the scope define.*'eye' has read.*--scope"
            ):
                await client.call("change", Word("x"), Word)
            # A method without a classification is only for clients with all rights.
            with pytest.raises(
                NotAuthorisedError, match=r"unclassified needs every scope.*--scope read,post"
            ):
                await client.call("unclassified", Word("x"), Word)
        async with desk.client(address, MINE) as client:
            for method in ("look", "change", "unclassified"):
                assert await client.call(method, Word("y"), Word) == Word("y")
    assert [(caller.token, caller.scopes == READ) for caller in desk.served] == [
        ("eye", True),
        *[("owner", False)] * 3,
    ]
    told = [event.text for event in desk.events.recent() if event.level == "info"]
    assert told == ["got change from client owner"], "who changed what is told, and no more"


@pytest.mark.parametrize("how", ["revoked", "expired", "rotated"])
async def test_a_token_that_counts_no_more_ends_its_connections(how: str) -> None:
    eye = ClientToken.of("eye", THEIRS, READ, NOW, NOW + 100)
    desk = Desk(tokens=[ClientToken.of("owner", MINE), eye])
    async with desk.listener() as address, desk.client(address, MINE) as owner:
        async with desk.client(address, THEIRS) as client:
            await client.call("look", Word("x"), Word)
            assert [session.token.name for session in desk.clients.connected()] == ["owner", "eye"]
            if how == "revoked":
                revoked = ClientToken(
                    eye.name, eye.proof_hash, eye.scopes, NOW, NOW + 100, revoked_at=NOW + 5
                )
                desk.tokens[1] = revoked
            elif how == "rotated":
                desk.tokens[1] = ClientToken.of("eye", b"other" * 20, READ, NOW)
            else:
                desk.now = NOW + 100
            began = trio.current_time()
            await client.closed.wait()
            assert trio.current_time() - began < 20 * LOOK_S
        reason = "wrong token: it may have been rotated, or revoked" if how == "rotated" else how
        with pytest.raises(NotAuthorisedError, match=f"{reason}.*ask who runs.*token add NAME"):
            async with desk.client(address, THEIRS):
                raise AssertionError
        assert [session.token.name for session in desk.clients.connected()] == ["owner"]
        assert await owner.call("look", Word("x"), Word) == Word("x")
    assert any(
        f"client token 'eye' was {how}" in event.text or f"'eye' {how}" in event.text
        for event in desk.events.recent()
    )


def test_neither_the_proof_nor_its_hash_is_a_token() -> None:
    kept = ClientToken.of("eye", THEIRS)
    assert shown_by(proof_of(THEIRS), [ClientToken.of("owner", MINE), kept]) == kept
    assert shown_by(kept.proof_hash, [kept]) is None, "what is stored is no proof"
    assert shown_by(THEIRS, [kept]) is None
    assert kept.proof_hash == hashlib.sha256(hashlib.sha256(THEIRS).digest()).digest()
