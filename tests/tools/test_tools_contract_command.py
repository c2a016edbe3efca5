"""`medusa-peer contract`: over files, over the overlay, its output, its refusals."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import pytest
import trio
from deadline import DEADLINE_S
from owner import owner_clients
from tools_prompt import entered
from watched import Watched

from medusa.contracts.balances import Balance, BalanceQuery, Balances
from medusa.contracts.book import FOLDER, SUFFIX
from medusa.contracts.config import MarketTiming
from medusa.contracts.delivery import open_contracts
from medusa.contracts.ledger import LEDGER_FILE
from medusa.overlay.clients import open_client_listener
from medusa.overlay.files import read_secret
from medusa.overlay.gossip.config import Preset
from medusa.overlay.identity import Identity
from medusa.overlay.membership_file import load_membership
from medusa.overlay.node.config import OverlayConfig
from medusa.overlay.node.node import Overlay, open_overlay
from medusa.overlay.rpc import Caller, Service
from medusa.tools.commands.peer.contract_command import contract
from medusa.tools.commands.peer.peer_command import peer
from medusa.tools.home.folder import Home, Running
from medusa.tools.home.messages import BALANCE


@click.group()
def command() -> None:
    """Return the command in the form in which `medusa-peer` has it."""


command.add_command(contract)
for _other in ("init", "invite", "join", "revoke"):
    command.add_command(peer.commands[_other])


Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("COLUMNS", "80")

    def call(*arguments: str, home: Home | None = None) -> tuple[int, str, str]:
        place = () if home is None else ("--home", str(home.folder))
        return entered(capfd, command, *arguments, *place)

    return call


@pytest.fixture
def homes(tmp_path: Path, run: Run) -> tuple[Home, Home]:
    """Give homes: mit.edu founded the federation and admitted utah.edu."""
    mit, utah = Home(tmp_path / "mit"), Home(tmp_path / "utah")
    run("init", "--participant", "mit.edu", "--found", "demo", home=mit)
    run("init", "--participant", "utah.edu", home=utah)
    root = str(utah.root_certificate)
    _, token, _ = run("invite", "utah.edu", "--root", root, "--address", "127.0.0.1:1", home=mit)
    assert run("join", token.strip(), home=utah)[0] == 0
    return mit, utah


PROPOSE = ("contract", "propose", "--to", "utah.edu", "--min-price", "0.8", "--max-price", "1")
RUNS = ("--runs", "40", "--they-run", "20:filter,map:medusa://mit.edu/*")


def ask(run: Run, home: Home, *arguments: str) -> Any:
    """Return the JSON answer of a successful command."""
    code, out, err = run("contract", *arguments, "--json", home=home)
    assert (code, err) == (0, "")
    return json.loads(out)


def test_a_contract_by_exchanging_files(homes: tuple[Home, Home], run: Run, tmp_path: Path) -> None:
    mit, utah = homes
    offer, answer, end = (str(tmp_path / name) for name in ("offer", "answer", "end"))
    code, out, err = run(*PROPOSE, *RUNS, "--out", offer, home=mit)
    assert (code, err) == (0, "")
    assert "proposed by us" in out
    assert "0.8 to 1" in out
    assert "up to 20 units of filter, map over medusa://mit.edu/*" in out
    assert "it tells utah.edu once it does" in out
    assert Path(offer).stat().st_mode & 0o777 == 0o600
    (listed,) = ask(run, mit, "list")
    id_ = listed["contract"]
    assert (listed["state"], listed["kind"]) == ("proposed by us", "load")
    assert listed["terms"]["min_price"] == 800_000
    assert listed["terms"]["accepter_runs"]["kinds"] == ["filter", "map"]
    assert listed["valid_until"] - listed["valid_from"] == 30 * 86_400
    # the other party signs, and the file returns
    taken = ask(run, utah, "accept", offer, "--out", answer)
    assert (taken["contract"], taken["state"]) == (id_, "in force")
    code, out, err = run("contract", "accept", answer, home=mit)
    assert (code, err) == (0, "")
    assert "in force" in out
    assert "delivered" not in out
    for home in homes:
        assert [each["state"] for each in ask(run, home, "list")] == ["in force"]
    # the contract is revoked by a beginning of its id, and only after a question
    code, out, err = run("contract", "revoke", id_[:7], home=mit)
    assert (code, out) == (1, "")
    assert f"this revokes contract {id_[:8]} with utah.edu (in force: load at 0.8 to 1)" in err
    assert "nobody can be asked here: say --yes" in err
    assert ask(run, mit, "revoke", id_[:7], "--yes", "--out", end)["state"] == "revoked"
    assert ask(run, utah, "accept", end)["state"] == "revoked"
    for home in homes:
        assert ask(run, home, "list") == []
        assert [each["contract"] for each in ask(run, home, "list", "--all")] == [id_]
        assert "mit.edu, 20" in run("contract", "list", id_[:5], home=home)[1]
    # a replay of the acceptance changes nothing
    assert ask(run, mit, "accept", answer)["state"] == "revoked"
    code, _, err = run("contract", "accept", id_, home=utah)
    assert (code, err.count("\n")) == (1, 1)
    assert "is revoked: there is nothing to accept" in err


def test_the_other_kinds_of_contract(
    homes: tuple[Home, Home], run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    mit, utah = homes
    stream = "medusa://mit.edu/conns"
    content = ("propose", "--to", "utah.edu", "--content", stream)
    prices = ("--per-message", "0.000002", "--per-period", "5", "--period", "1h")
    made = ask(run, mit, *content, *prices, "--availability", "30s", "--from", "2030-01-02T03:04Z")
    assert (made["kind"], made["valid_from"]) == ("content", 1_893_553_440)
    assert made["terms"] == {
        "stream": stream,
        "sender": "mit.edu",
        "per_message": 2,
        "per_period": 5_000_000,
        "period_s": 3600,
        "availability_s": 30,
    }
    suggest = ("propose", "--to", "mit.edu", "--suggest", stream, "--valid-for", "1y")
    made = ask(run, utah, *suggest, "--peer", "ab" * 20, "--alternative", stream)
    assert made["terms"] == {"stream": stream, "peer": "ab" * 20, "alternative": stream}
    computed = ("propose", "--to", "utah.edu", "--price", "1", "--tasks", "2", "--runs", "5")
    terms = ask(run, mit, *computed, "--no-sublet", "--migration-cost", "0.5", "--replicas", "2")[
        "terms"
    ]
    # two tasks of 1 of 80 units: 17 % (NSDI 2004, section 3.3)
    assert terms["max_price"] == 1_000_000
    assert terms["min_price"] == pytest.approx(830_000, abs=5_000)
    assert (terms["sublet"], terms["migration_cost"], terms["replicas"]) == (False, 500_000, 2)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("TERM", "dumb")  # a terminal of 80 columns, without colours
    for arguments in (["list"], ["list", "--all"], *(["list", i] for i in _ids(run, mit))):
        code, out, err = run("contract", *arguments, home=mit)
        assert (code, err) == (0, "")
        assert all(len(line) <= 80 and line == line.rstrip() for line in out.splitlines())


def _ids(run: Run, home: Home) -> list[str]:
    return [each["contract"] for each in ask(run, home, "list")]


def test_invalid_input_is_refused(homes: tuple[Home, Home], run: Run, tmp_path: Path) -> None:
    mit, utah = homes
    offer = str(tmp_path / "offer")
    run(*PROPOSE, *RUNS, "--out", offer, home=mit)
    (id_,) = _ids(run, mit)

    def refused(told: str, *arguments: str, home: Home = mit) -> None:
        code, out, err = run("contract", *arguments, home=home)
        assert (code, out, err.count("\n")) == (1, "", 1)
        assert told in err
        assert len(_ids(run, mit)) == 1

    propose, prices = ("propose", "--to", "utah.edu"), ("--min-price", "1", "--max-price", "2")
    refused("brown.edu is no member", *propose[:2], "brown.edu", *prices, "--runs", "1")
    refused("mit.edu proposes to itself", *propose[:2], "mit.edu", *prices, "--runs", "1")
    refused("expected a number", *propose, *prices[:3], "nan", "--runs", "1")
    refused("expected a number", *propose, *prices[:3], "-1", "--runs", "1")
    refused("least is above the most", *propose, *prices[:3], "0.5", "--runs", "1")
    refused("neither side runs anything", *propose, *prices, "--runs", "0")
    refused("'java' is no box kind", *propose, *prices, "--runs", "4:java")
    refused("expected LOAD", *propose, *prices, "--runs", "1.5")
    refused("expected a number and one of", *propose, *prices, "--runs", "1", "--valid-for", "x")
    refused("within 3660 days", *propose, *prices, "--runs", "1", "--valid-for", "11y")
    refused("do not fit", *propose, "--price", "1", "--tasks", "90", "--runs", "1")
    refused("not known here", "accept", "abcdef")
    refused("no such file", "accept", str(tmp_path / "none"))
    refused("no contract document in it", "accept", str(mit.config))
    refused("is proposed by us: utah.edu accepts it", "accept", id_)
    refused("not known here", "list", "abc" + "0" * 29)
    # the root key is missing, or belongs to another participant
    mit.root_key.rename(tmp_path / "root.key")
    refused("say where it is with --root HOME", *propose, *prices, "--runs", "1")
    refused(
        "holds the root of utah.edu", *propose, *prices, "--runs", "1", "--root", str(utah.folder)
    )
    (tmp_path / "safe").mkdir()
    (tmp_path / "root.key").rename(tmp_path / "safe" / "root.key")
    (tmp_path / "safe" / "root.crt").write_bytes(mit.root_certificate.read_bytes())
    safe = str(tmp_path / "safe")
    assert ask(run, mit, *propose, *prices, "--runs", "1", "--root", safe)["with"] == "utah.edu"
    # an altered file, and a truncated file
    text = Path(offer).read_text()
    middle = len(text) // 2
    other = "A" if text[middle] != "A" else "B"
    Path(offer).write_text(text[:middle] + other + text[middle + 1 :])
    code, out, err = run("contract", "accept", offer, home=utah)
    assert (code, out, err.count("\n")) == (1, "", 1)
    Path(offer).write_text(text[:middle])
    assert run("contract", "accept", offer, home=utah)[0] == 1
    assert _ids(run, utah) == []


@pytest.mark.parametrize(
    ("told", "arguments"),
    [
        ("--min-price and --max-price", ("--runs", "1", "--min-price", "1")),
        (
            "--min-price and --max-price",
            ("--runs", "1", "--price", "1", "--tasks", "1", "--min-price", "1"),
        ),
        ("say who runs what", ("--min-price", "1", "--max-price", "1")),
        ("--runs does not go with --content", ("--content", "medusa://a.b/c", "--runs", "1")),
        ("--period does not go with --suggest", ("--suggest", "medusa://a.b/c", "--period", "1h")),
        ("--peer does not go with a contract about load", ("--peer", "x", "--runs", "1")),
        ("different contracts", ("--suggest", "medusa://a.b/c", "--content", "medusa://a.b/c")),
        ("say who sends it", ("--content", "medusa://a.b/c")),
    ],
)
def test_options_that_do_not_belong_together(
    homes: tuple[Home, Home], run: Run, told: str, arguments: tuple[str, ...]
) -> None:
    code, _, err = run("contract", "propose", "--to", "utah.edu", *arguments, home=homes[0])
    assert code == 2
    assert told in err


def test_a_damaged_file_is_reported_beside_the_others(homes: tuple[Home, Home], run: Run) -> None:
    mit, _ = homes
    run(*PROPOSE, *RUNS, home=mit)
    run(*PROPOSE, *RUNS, home=mit)
    first = min((mit.folder / FOLDER).glob("*" + SUFFIX))
    first.write_bytes(first.read_bytes()[:-1])
    code, out, err = run("contract", "list", home=mit)
    assert (code, len(out.splitlines()), err.count("\n")) == (0, 2, 1)
    assert str(first) in err


def test_no_home_and_no_federation(run: Run, tmp_path: Path) -> None:
    alone = Home(tmp_path / "alone")
    code, _, err = run("contract", "list", home=alone)
    assert code == 1
    assert "no peer lives in" in err
    run("init", "--participant", "mit.edu", home=alone)
    code, _, err = run("contract", "list", home=alone)
    assert code == 1
    assert "is in no federation" in err


# -- with running peers ----------------------------------------------------------------------------


@contextmanager
def running(home: Home, join: tuple[Overlay, ...] = ()) -> Iterator[Overlay]:
    """Run the overlay and the contracts of that home, in a thread, until the block ends."""
    ready, overlays, scope = threading.Event(), [], trio.CancelScope()
    tokens: list[trio.lowlevel.TrioToken] = []

    async def main() -> None:
        tokens.append(trio.lowlevel.current_trio_token())
        identity, service, events = Identity.load(home.folder), Service(), Watched()
        addresses = tuple(other.address for other in join)
        config = OverlayConfig(bootstrap=addresses, preset=Preset.LOCAL)
        membership = load_membership(home.folder)

        async def balance(_: Caller, query: BalanceQuery, __: bytes) -> Balances:
            return Balances("ab", (Balance(query.contract or "cd" * 16, 5, 7, 100, 2, 1),), 3)

        service.unary(BALANCE, BalanceQuery, balance, clients=True, peers=False)
        with home.lock(), scope:
            async with (
                open_overlay(
                    identity, membership, home.folder, config, service, events=events
                ) as overlay,
                open_contracts(overlay, home.folder, MarketTiming()),
                open_client_listener(
                    identity,
                    owner_clients(read_secret(home.token)),
                    service,
                    ("127.0.0.1", 0),
                    events,
                ) as client,
            ):
                name, peer_id = identity.participant, identity.peer_id.hex()
                home.write_run(Running(os.getpid(), name, peer_id, overlay.address, client))
                for other in join:
                    await events.saw(other.identity.peer_id.hex())
                overlays.append(overlay)
                ready.set()
                await trio.sleep_forever()

    thread = threading.Thread(target=trio.run, args=(main,))
    thread.start()
    try:
        assert ready.wait(DEADLINE_S)
        yield overlays[0]
    finally:
        trio.from_thread.run_sync(scope.cancel, trio_token=tokens[0])
        thread.join()


def test_over_the_overlay(homes: tuple[Home, Home], run: Run) -> None:
    mit, utah = homes
    early = ask(run, mit, *PROPOSE[1:], *RUNS)  # while no peer runs
    with running(mit) as one:
        code, out, err = run(*PROPOSE, *RUNS, home=mit)
        assert (code, err) == (0, "")
        assert "no peer of utah.edu was reached; this peer goes on trying" in out
        with running(utah, (one,)):
            made = ask(run, mit, *PROPOSE[1:], *RUNS)
            assert [holder["participant"] for holder in made["holders"]] == ["utah.edu"]
            assert made["contract"] in _ids(run, utah)
            code, out, err = run("contract", "accept", made["contract"][:8], home=utah)
            assert (code, err) == (0, "")
            assert "delivered to 1 peer of mit.edu" in out
            states = {each["contract"]: each["state"] for each in ask(run, mit, "list")}
            assert states[made["contract"]] == "in force"
            # proposals that were made while one or both did not run have arrived as well
            ended = ask(run, mit, "revoke", early["contract"], "--yes")
            assert [holder["participant"] for holder in ended["holders"]] == ["utah.edu"]
            everything = {
                each["contract"]: each["state"] for each in ask(run, utah, "list", "--all")
            }
            assert everything[early["contract"]] == "revoked"
            for _ in range(8):
                ask(run, mit, *PROPOSE[1:], *RUNS)
            code, out, _ = run(*PROPOSE, *RUNS, home=mit)
            assert code == 0
            assert "too many proposals wait for utah.edu" in out


def test_balances(homes: tuple[Home, Home], run: Run, tmp_path: Path) -> None:
    mit, _ = homes
    made = ask(run, mit, *PROPOSE[1:], *RUNS)
    code, out, err = run("contract", "balance", home=mit)
    assert (code, out, err) == (0, "nothing was settled yet\n", "")
    alone = ask(run, mit, "balance", made["contract"][:8])
    assert [(b["earned"], b["spent"]) for b in alone["contracts"]] == [(0, 0)]
    with running(mit):
        got = ask(run, mit, "balance", made["contract"][:8])
        assert got["contracts"][0]["contract"] == made["contract"]
        assert got["contracts"][0]["net"] == -2
        code, out, err = run("contract", "balance", home=mit)
        assert (code, err) == (0, "")
        assert out.split()[-8:] == [
            "cdcdcdcd",
            "-",
            "0.000005",
            "0.000007",
            "-0.000002",
            "100",
            "2",
            "1",
        ]
    (mit.folder / LEDGER_FILE).write_bytes(b"no ledger" * 1000)
    code, out, err = run("contract", "balance", home=mit)
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert LEDGER_FILE in err
