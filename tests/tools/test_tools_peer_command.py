"""`medusa-peer`: init, invite, join, revoke, and their refusals."""

from __future__ import annotations

import json
import stat
from functools import partial
from pathlib import Path

import pytest
from tools_fake_peer import fake_peer_in_thread
from tools_prompt import entered

from medusa.overlay.identity import Identity
from medusa.overlay.invite import decode_invite
from medusa.overlay.membership_file import load_membership
from medusa.tools.commands.peer.peer_command import peer
from medusa.tools.home.config import load_overlay, read_bootstrap
from medusa.tools.home.folder import Home


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str]):  # noqa: ANN201
    return partial(entered, capfd, peer)


def _init(run, folder: Path, participant: str, *more: str) -> Home:  # noqa: ANN001
    code, out, err = run("init", "--participant", participant, "--home", str(folder), *more)
    assert (code, err) == (0, "")
    assert str(folder) in out
    return Home(folder)


def test_init_makes_a_home_that_only_its_owner_reads(tmp_path: Path, run) -> None:  # noqa: ANN001
    home = _init(run, tmp_path / "mit", "mit.edu", "--found", "medusa")
    for secret in (home.root_key, home.folder / "peer.key", home.token):
        assert stat.S_IMODE(secret.stat().st_mode) == 0o600
    assert stat.S_IMODE(home.folder.stat().st_mode) == 0o700
    assert load_membership(home.folder).name == "medusa"
    assert load_overlay(home).listen == ("0.0.0.0", 7654)
    before = home.root_key.read_bytes()
    code, _, err = run("init", "--participant", "mit.edu", "--home", str(home.folder))
    assert code == 1
    assert err.startswith("medusa: ")
    assert "is a peer's home already" in err
    assert home.root_key.read_bytes() == before


def test_an_invited_participant_joins(tmp_path: Path, run) -> None:  # noqa: ANN001
    mit = _init(run, tmp_path / "mit", "mit.edu", "--found", "medusa")
    utah = _init(run, tmp_path / "utah", "utah.edu")
    invite = ("invite", "utah.edu", "--root", str(utah.root_certificate), "--home", str(mit.folder))
    code, token, err = run(*invite, "--address", "10.1.2.3:7654")
    assert (code, err) == (0, "")
    assert decode_invite(token).addresses == (("10.1.2.3", 7654),)
    assert "utah.edu" in load_membership(mit.folder).participants()
    code, out, _ = run("join", token.strip(), "--home", str(utah.folder), "--json")
    assert code == 0
    assert json.loads(out)["name"] == "medusa"
    assert read_bootstrap(utah) == (("10.1.2.3", 7654),)
    assert load_membership(utah.folder).federation == load_membership(mit.folder).federation
    again = run(*invite, "--address", "10.1.2.3:7654")
    assert again[0] == 0, "inviting again gives a token again"
    assert run("join", again[1].strip(), "--home", str(utah.folder))[0] == 0


def test_the_token_names_where_the_inviter_listens(tmp_path: Path, run) -> None:  # noqa: ANN001
    mit = _init(run, tmp_path / "mit", "mit.edu", "--found", "medusa")
    utah = _init(run, tmp_path / "utah", "utah.edu")
    mit.config.write_text('[overlay]\nlisten = "127.0.0.1:7001"\n')
    arguments = ("invite", "utah.edu", "--root", str(utah.root_certificate))
    _, token, _ = run(*arguments, "--home", str(mit.folder))
    assert decode_invite(token).addresses == (("127.0.0.1", 7001),)
    mit.config.write_text('[overlay]\nlisten = "127.0.0.1:0"\n')
    code, _, err = run(*arguments, "--home", str(mit.folder))
    assert code == 1
    assert "--address HOST:PORT" in err


def test_a_running_daemon_receives_admissions_and_revocations(tmp_path: Path, run) -> None:  # noqa: ANN001
    utah = _init(run, tmp_path / "utah", "utah.edu")
    with fake_peer_in_thread(tmp_path / "mit") as fake:
        home = str(fake.home.folder)
        code, token, err = run(
            "invite", "utah.edu", "--root", str(utah.root_certificate), "--home", home
        )
        assert (code, err) == (0, "")
        assert decode_invite(token).addresses == (fake.home.running().overlay,)
        assert len(fake.admitted) == 1
        assert run("revoke", "utah.edu", "--yes", "--home", home)[0] == 0
        assert len(fake.admitted) == 2
        assert load_membership(fake.home.folder).root_of("utah.edu") is None


def test_init_makes_another_peer_of_the_same_participant(tmp_path: Path, run) -> None:  # noqa: ANN001
    mit = _init(run, tmp_path / "mit", "mit.edu", "--found", "medusa")
    second = Home(tmp_path / "mit2")
    code, out, _ = run("init", "--root", str(mit.folder), "--home", str(second.folder), "--json")
    assert code == 0
    assert json.loads(out)["participant"] == "mit.edu"
    assert not second.root_key.exists()
    one, two = Identity.load(mit.folder), Identity.load(second.folder)
    assert (one.participant, one.root_certificate) == (two.participant, two.root_certificate)
    assert one.peer_id != two.peer_id
    assert load_membership(second.folder).federation == load_membership(mit.folder).federation
    assert read_bootstrap(second)[0][1] == 7654
    code, _, err = run("invite", "x.edu", "--root", "none", "--home", str(second.folder))
    assert code == 1
    assert "root key is not in this home" in err
    code, _, _ = run(
        *("revoke", "mit.edu", "--peer", two.peer_id.hex(), "--yes", "--home", str(mit.folder))
    )
    assert code == 0


def test_invalid_input_is_refused(tmp_path: Path, run) -> None:  # noqa: ANN001
    mit = _init(run, tmp_path / "mit", "mit.edu", "--found", "medusa")
    utah = _init(run, tmp_path / "utah", "utah.edu")
    other = _init(run, tmp_path / "other", "utah.edu")
    home, root = ("--home", str(mit.folder)), ("--root", str(utah.root_certificate))
    address = ("--address", "10.1.2.3:1")

    def refused(told: str, *arguments: str) -> None:
        code, out, err = run(*arguments)
        assert (code, out, err.count("\n")) == (1, "", 1)
        assert told in err

    refused("root certificate of utah.edu, not brown.edu", "invite", "brown.edu", *root, *home)
    refused("no such file", "invite", "utah.edu", "--root", str(tmp_path / "none"), *home)
    for file, told in (
        (utah.peer_certificate, "the certificate of a peer of utah.edu, not of its root: "),
        (utah.root_key, "a private key, which nobody else should have: "),
        (utah.config, "is no certificate: a root's certificate is root.crt of the home"),
        (utah.folder, "cannot be read: Is a directory"),
    ):
        refused(f"{file}: {told}", "invite", "utah.edu", "--root", str(file), *home)
    refused("expected HOST:PORT", "invite", "utah.edu", *root, *home, "--address", "x")
    _, token, _ = run("invite", "utah.edu", *root, *home, *address)
    refused("admits another root", "join", token.strip(), "--home", str(other.folder))
    second = ("--root", str(other.root_certificate))
    refused("utah.edu", "invite", "utah.edu", *second, *home, *address)
    brown = _init(run, tmp_path / "brown", "brown.edu")
    refused("does not admit brown.edu", "join", token.strip(), "--home", str(brown.folder))
    refused("invitation token", "join", "rubbish", "--home", str(utah.folder))
    refused("no peer lives in", "join", token.strip(), "--home", str(tmp_path / "none"))
    refused("no peer lives in", "run", "--home", str(tmp_path / "none"))
    refused("brown.edu", "revoke", "brown.edu", "--yes", *home)
    refused("Mit", "init", "--participant", "Mit", "--home", str(tmp_path / "new"))
    assert not (tmp_path / "new").exists(), "what is refused leaves nothing behind"
    mit.root_key.chmod(0o644)
    refused(f"chmod 600 {mit.root_key}", "invite", "utah.edu", *root, *home)
    assert run("init", "--home", str(tmp_path / "new"))[0] == 2
