"""Client tokens of a peer are made, listed, rotated and revoked, while clients hold them."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import time
from pathlib import Path

import pytest
import trio
from deadline import DEADLINE_S
from engine_peers import Cluster, make_stream, open_cluster, received, send_rows
from hypothesis import given
from hypothesis import strategies as st
from programs import medusa_command
from tools_prompt import entered

from medusa.contracts.config import ContractsConfig
from medusa.engine.objects.schema import Field, FieldType, Schema
from medusa.overlay.client_tokens import OWNER, Scope
from medusa.overlay.errors import (
    BusyError,
    ConflictError,
    InvalidInputError,
    MedusaError,
    NotAuthorisedError,
    NotFoundError,
)
from medusa.tools.client.async_client import AsyncMedusaClient, Endpoint, open_medusa
from medusa.tools.client.blocking import MedusaClient
from medusa.tools.client.dialling import given_token
from medusa.tools.commands.medusa.medusa_command import medusa
from medusa.tools.commands.peer import tokens
from medusa.tools.commands.peer.peer_command import peer
from medusa.tools.commands.peer.tokens import parse_scopes
from medusa.tools.daemon.scopes import SCOPES
from medusa.tools.home.folder import Home
from medusa.tools.home.founding import make_peer
from medusa.tools.home.token_file import MAX_TOKENS, TokenFile
from medusa.tools.home.token_text import TokenText, parse_token


@pytest.fixture
def home(tmp_path: Path) -> Home:
    place = Home(tmp_path / "home")
    make_peer(place, "mit.edu", "cluster")
    return place


def run(capfd: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Run `medusa-peer token`, as a person runs it."""
    return entered(capfd, peer, "token", *arguments)


def test_a_token_from_beginning_to_end(home: Home, capfd: pytest.CaptureFixture[str]) -> None:
    at = ("--home", str(home.folder))
    code, made, _ = run(capfd, "add", "ci", "--scope", "post,read", "--expires", "90d", *at)
    assert code == 0
    secret = parse_token(made).secret
    stored = home.tokens.read_bytes()
    assert stat.S_IMODE(home.tokens.stat().st_mode) == 0o600
    assert secret not in stored, "only its hash is kept"
    code, out, _ = run(capfd, "list", "--json", *at)
    owner, ci = json.loads(out)
    assert (owner["name"], owner["scopes"]) == ("owner", ["read", "post", "define", "operate"])
    assert (ci["name"], ci["scopes"], ci["state"]) == ("ci", ["read", "post"], "in force")
    assert abs(ci["expires_at"] - time.time() - 90 * 86_400) < 3600
    code, other, _ = run(capfd, "rotate", "ci", *at)
    assert parse_token(other).secret != secret
    assert run(capfd, "revoke", "ci", *at)[:2] == (0, "revoked ci\n")
    header, *lines = run(capfd, "list", *at)[1].splitlines()
    assert header.split() == ["name", "scopes", "made", "expires", "state", "connected"]
    assert [line.split()[0] for line in lines] == ["owner", "ci"]
    assert "revoked" in lines[1]
    before = home.token.read_bytes()
    assert run(capfd, "rotate", "owner", *at)[1] == f"owner: see {home.token}\n"
    assert home.token.read_bytes() != before


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("add", "ci", "--scope", "write"), "scope 'write': expected some of read, post"),
        (("add", "ci", "--scope", "read", "--expires", "soon"), "duration 'soon'"),
        (("add", "ci", "--scope", "read", "--expires", "0d"), "expire at once"),
        (("add", "ci", "--scope", "read", "--address", "here"), "expected HOST:PORT"),
        (("add", "c i", "--scope", "read"), "token name 'c i'"),
        (("add", "owner", "--scope", "read"), "owner is the token in client.token"),
        (("rotate", "ci"), "no client token 'ci'"),
        (("revoke", "ci"), "no client token 'ci'"),
        (("revoke", "owner"), "medusa-peer token rotate owner"),
    ],
)
def test_invalid_input_is_refused(
    home: Home, capfd: pytest.CaptureFixture[str], arguments: tuple[str, ...], reason: str
) -> None:
    code, out, err = run(capfd, *arguments, "--home", str(home.folder))
    assert (code, out) == (1, "")
    assert reason in err
    assert err.count("\n") == 1


def test_a_name_is_taken_while_its_token_counts(home: Home) -> None:
    file, read = TokenFile(home), frozenset({Scope.READ})
    file.add("ci", read, None, 0.0)
    with pytest.raises(ConflictError, match="rotate or revoke it"):
        file.add("ci", read, None, 1.0)
    file.revoke("ci", 2.0)
    for change in (file.revoke, file.rotate):
        with pytest.raises(NotFoundError, match="was revoked"):
            change("ci", 3.0)
    file.add("ci", read, 10.0, 4.0)
    with pytest.raises(NotFoundError, match="expired"):
        file.rotate("ci", 11.0)
    for number in range(MAX_TOKENS - 1):
        file.add(f"t{number}", read, None, 12.0)
    with pytest.raises(BusyError, match=f"{MAX_TOKENS} tokens"):
        file.add("more", read, None, 12.0)
    assert [token.name for token in file.tokens()][:3] == [OWNER, "ci", "t0"]


async def test_every_call_of_clients_has_a_scope(tmp_path: Path) -> None:
    async with open_cluster(tmp_path) as cluster:
        mit = await cluster.settle("mit.edu", contracts=ContractsConfig(trade=True))
        methods = mit.up.engine.overlay.service.methods
    served = {name for name, method in methods.items() if method.clients}
    assert served == set(SCOPES), (
        "tools/daemon/scopes.py has a scope for each call that clients may make"
    )


async def test_each_scope_allows_its_calls_at_a_peer(cluster: Cluster) -> None:
    mit = await cluster.settle("mit.edu")
    file = TokenFile(mit.home)
    tokens = {
        scope: file.add(scope.value, frozenset({scope}), None, time.time()).decode()
        for scope in Scope
    }
    async with mit.client() as owner:
        stream = await make_stream(owner, mit, "s")
    schema = Schema(mit.name("other"), (Field("x", FieldType.INT),))

    async def post_one(client: AsyncMedusaClient) -> None:
        await send_rows(client, stream, [(7, 7)], boundary=8)

    for scope, token in tokens.items():
        async with open_medusa(mit.home.folder, token=token) as client:
            calls = {
                Scope.READ: lambda c=client: c.receive_events(stream),
                Scope.POST: lambda c=client: post_one(c),
                Scope.DEFINE: lambda c=client: c.create_schema(schema),
                Scope.OPERATE: lambda c=client: c.admit(()),
            }
            for needed, call in calls.items():
                if needed is scope:
                    await call()
                else:
                    text = f"needs the scope {needed.value}, and client token '{scope.value}'"
                    with pytest.raises(NotAuthorisedError, match=text):
                        await call()
    async with open_medusa(mit.home.folder, token=tokens[Scope.READ]) as client:
        assert await received(client.subscribe(stream), 1) == [(7, 7)]


async def test_a_revoked_tokens_subscription_ends_with_the_reason(cluster: Cluster) -> None:
    mit = await cluster.settle("mit.edu")
    file = TokenFile(mit.home)
    read = frozenset({Scope.READ})
    revoked = file.add("revoked", read, None, time.time()).decode()
    expiring = file.add("expiring", read, time.time() + 3, time.time()).decode()
    owner = await cluster.client(mit)
    stream = await make_stream(owner, mit, "s")

    async def read_until_refused(token: str, reason: str) -> None:
        async with open_medusa(mit.home.folder, token=token) as client:
            with pytest.raises(NotAuthorisedError, match=reason):
                async for _ in client.subscribe(stream):
                    pass

    with trio.fail_after(DEADLINE_S):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(read_until_refused, revoked, "'revoked' was revoked at")
            nursery.start_soon(read_until_refused, expiring, "'expiring' expired at")
            names: set[str] = set()
            while names != {"owner", "revoked", "expiring"}:
                (status,) = (await owner.status(federation=False)).peers
                names = {client.token for client in status.clients}
            file.revoke("revoked", time.time())
    (status,) = (await owner.status(federation=False)).peers
    assert [client.token for client in status.clients] == ["owner"]
    told = [event.text for event in mit.up.engine.overlay.events.recent()]
    assert any("'revoked' was revoked" in text for text in told)


async def test_the_owners_token_is_rotated_under_a_running_peer(cluster: Cluster) -> None:
    mit = await cluster.settle("mit.edu")
    before = mit.home.client_token()
    held = await cluster.client(mit)
    await held.list_objects()
    TokenFile(mit.home).rotate(OWNER, time.time())
    endpoint = Endpoint.of(mit.home)
    assert endpoint.token != before
    async with open_medusa(endpoint=endpoint) as client:
        await client.list_objects()
    old = mit.home.folder / "old"
    old.write_bytes(before)
    with pytest.raises(NotAuthorisedError, match="wrong token"):
        async with open_medusa(mit.home.folder, token=before.decode()):
            raise AssertionError
    # The holder of the token continues without action: its home has the new token.
    await held.list_objects()


async def test_a_damaged_file_changes_nothing_while_the_peer_runs(cluster: Cluster) -> None:
    mit = await cluster.settle("mit.edu")
    file = TokenFile(mit.home)
    token = file.add("ci", frozenset({Scope.READ}), None, time.time()).decode()
    for content in (mit.home.tokens.read_bytes(), b"{"):
        mit.home.tokens.write_bytes(content)
        async with open_medusa(mit.home.folder, token=token) as client:
            await client.list_objects()
    assert any("tokens.json is damaged" in text for text in mit.errors())
    mit.home.tokens.unlink()
    with pytest.raises(NotAuthorisedError):
        async with open_medusa(mit.home.folder, token=token):
            raise AssertionError


async def test_a_token_with_an_address_needs_no_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MEDUSA_HOME", str(tmp_path / "nowhere"))
    async with open_cluster(tmp_path / "cluster") as cluster:
        (tmp_path / "cluster").mkdir()
        mit = await cluster.settle("mit.edu")
        host, port = mit.up.running.client
        at = ("--home", str(mit.home.folder), "--address", f"{host}:{port}")
        await trio.to_thread.run_sync(run, capfd, "add", "eye", "--scope", "read", *at)
        text = (await trio.to_thread.run_sync(run, capfd, "rotate", "eye", *at))[1]

        def read() -> None:
            with MedusaClient(token=text) as client:
                client.list_objects()
            with monkeypatch.context() as environment:
                environment.setenv("MEDUSA_TOKEN", text)
                with MedusaClient() as client:
                    client.list_objects()
            file = tmp_path / "eye.token"
            file.write_text(text)
            file.chmod(0o600)
            command = medusa_command("--token-file", file, "list")
            assert subprocess.run(command, check=False).returncode == 0
            file.chmod(0o644)
            refused = subprocess.run(command, capture_output=True, check=False)
            assert (refused.returncode, refused.stdout) == (1, b"")
            assert b"chmod 600" in refused.stderr

        await trio.to_thread.run_sync(read)
    assert os.environ.get("MEDUSA_TOKEN") is None


def test_a_token_without_an_address_and_a_home_says_what_is_missing(
    home: Home, tmp_path: Path
) -> None:
    text = tokens.add(home, "eye", "read", None, None)
    with pytest.raises(NotFoundError) as refused:
        Endpoint.of(Home(tmp_path / "nowhere"), text)
    told = str(refused.value)
    assert "does not say where its peer is" in told
    assert "say that peer's home with --home, or have mit.edu put an address into the token" in told
    assert "--address HOST:PORT" in told
    assert "init" not in told


@pytest.mark.parametrize("empty", ["", "\n"])
def test_an_empty_token_is_never_the_owners(
    home: Home, tmp_path: Path, empty: str, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "token"
    file.write_text(empty)
    file.chmod(0o600)
    arguments = ("--token-file", str(file), "status", "--home", str(home.folder))
    code, _, told = entered(capfd, medusa, *arguments)
    assert (code, f"{file}: it is empty" in told) == (1, True)
    with pytest.raises(InvalidInputError, match="token is empty"):
        MedusaClient(home.folder, token=empty)
    with pytest.raises(InvalidInputError, match="MEDUSA_TOKEN is empty"):
        given_token(environment={"MEDUSA_TOKEN": empty})


@given(st.text(max_size=300) | st.binary(max_size=300).map(lambda b: f"medusa-client1-{b.hex()}"))
def test_texts_that_are_no_token(text: str) -> None:
    with pytest.raises(InvalidInputError, match="client token"):
        parse_token(text)


def test_a_token_text_is_read_as_it_was_written(home: Home) -> None:
    from medusa.overlay.identity import read_certificate

    root = read_certificate(home.root_certificate)
    for address in (None, ("127.0.0.1", 7655), ("::1", 1)):
        token = TokenText.of("mit.edu", root, b"s" * 64, address)
        text = str(token)
        assert parse_token(f" {text[:40]}\n{text[40:]}\n") == token
        for cut in (text[:-5], text[:60] + text[64:]):
            with pytest.raises(MedusaError):
                parse_token(cut)
    assert parse_scopes("read, define") == {Scope.READ, Scope.DEFINE}
