"""`medusa-peer invite`, `join`, `members`, `policy`, `revoke`: what they ask, say and refuse."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path

import pytest
import trio

from overlay.entering import Meeting
from overlay.errors import RefusedError
from overlay.membership_file import load_membership
from tools import admission, command_line
from tools.home import Home
from tools.peer_command import peer

ADDRESS = ("--address", "127.0.0.1:1")


class Cast:
    """Homes by participant, and the command run in them."""

    def __init__(self, folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self._capfd = capfd

    def __call__(self, who: str, *arguments: str) -> tuple[int, str, str]:
        home = ("--home", str(self.folder / who))
        with pytest.raises(SystemExit) as left:
            command_line.run(peer, (*arguments, *home))
        captured = self._capfd.readouterr()
        assert isinstance(left.value.code, int)
        return left.value.code, captured.out, captured.err

    def done(self, who: str, *arguments: str) -> str:
        code, out, err = self(who, *arguments)
        assert (code, err) == (0, "")
        return out

    def refused(self, who: str, *arguments: str) -> str:
        code, out, err = self(who, *arguments)
        assert (code, out, err.count("\n")) == (1, "", 1)
        return err

    def make(self, *who: str, founder: str = "mit.edu", policy: str | None = None) -> None:
        admission = () if policy is None else ("--admission", policy)
        self.done(founder, "init", "--participant", founder, "--found", "lab", *admission)
        for name in who:
            self.done(name, "init", "--participant", name)

    def root(self, name: str) -> tuple[str, str]:
        return "--root", str(Home(self.folder / name).root_certificate)

    def invite(self, by: str, name: str, *more: str) -> str:
        return self.done(by, "invite", name, *self.root(name), *ADDRESS, *more).strip()

    def enter(self, by: str, name: str) -> None:
        code, _, err = self(name, "join", self.invite(by, name))
        assert code == 0
        assert "no member has answered yet" in err
        assert "127.0.0.1:1 cannot be reached" in err

    def members(self, who: str) -> dict[str, str]:
        roll = json.loads(self.done(who, "members", "--json"))
        return {row["participant"]: row["standing"] for row in roll["members"]}


@pytest.fixture
def cast(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Cast:
    return Cast(tmp_path, capfd)


def test_the_founder_alone_admits_unless_the_charter_says_otherwise(cast: Cast) -> None:
    cast.make("utah.edu", "brown.edu")
    assert json.loads(cast.done("mit.edu", "members", "--json"))["policy"] == "founder"
    cast.enter("mit.edu", "utah.edu")
    told = cast.refused("utah.edu", "invite", "brown.edu", *cast.root("brown.edu"), *ADDRESS)
    assert "has not entered yet" in told or "founder mit.edu alone may admit" in told
    assert cast.members("mit.edu") == {"mit.edu": "founder", "utah.edu": "invited"}
    shown = cast.done("mit.edu", "members")
    assert "federation lab: its founder mit.edu alone may admit (policy founder)" in shown
    assert "invited" in shown


def test_the_policy_is_chosen_when_a_federation_is_founded(cast: Cast) -> None:
    wrong = ("init", "--participant", "mit.edu", "--found", "lab", "--admission", "2 of mit.edu")
    assert "names 1 sponsors, so 1 to 1 of them can be needed" in cast.refused("mit.edu", *wrong)
    assert not (cast.folder / "mit.edu").exists()
    cast.make(policy="any")
    assert "any member may admit" in cast.done("mit.edu", "members")
    code, _, err = cast("other", "init", "--participant", "x.edu", "--admission", "any")
    assert code == 2
    assert "--found" in err


def test_two_sponsors_sign_off_line(cast: Cast) -> None:
    """What the one says reaches the other as the daemons would bring it: by the file's union."""
    cast.make("utah.edu", "brown.edu", policy="2 of mit.edu,utah.edu")
    admitted = cast.invite("mit.edu", "utah.edu", "--expires", "30d")
    assert cast("utah.edu", "join", admitted)[0] == 0
    _meet(cast, "mit.edu", "utah.edu")
    first = cast.invite("mit.edu", "brown.edu")
    assert "signed by mit.edu; 2 of its sponsors mit.edu, utah.edu must sign" in first
    assert cast.members("mit.edu")["brown.edu"] == "waiting"
    _meet(cast, "mit.edu", "utah.edu")
    told = cast.refused("utah.edu", "invite", "brown.edu", *ADDRESS)
    assert "compare that with what brown.edu says" in told
    assert "--yes" in told
    token = cast.done("utah.edu", "invite", "brown.edu", *ADDRESS, "--yes").strip()
    assert cast("brown.edu", "join", token)[0] == 0
    assert cast.members("utah.edu")["brown.edu"] == "invited"


def _meet(cast: Cast, one: str, other: str) -> None:
    """What two peers that run bring about: both know all, and both have entered."""
    from overlay.events import wall_clock
    from overlay.identity import Identity
    from overlay.membership_file import save_membership

    sides = [Home(cast.folder / name) for name in (one, other)]
    views = [load_membership(side.folder) for side in sides]
    for view in views:
        for side, met in zip(sides, (other, one), strict=True):
            identity = Identity.load(side.folder)
            entry = view.welcome(identity, met, wall_clock())
            view.merge([entry] if entry is not None else [], 0.0)
    for side, view, theirs in zip(sides, views, reversed(views), strict=True):
        view.merge(theirs.statements(), 0.0)
        save_membership(side.folder, view, 0.0)


def test_an_invitation_is_withdrawn_and_made_anew(cast: Cast) -> None:
    cast.make("utah.edu", "other")
    token = cast.invite("mit.edu", "utah.edu")
    assert cast.done("mit.edu", "invite", "utah.edu", "--withdraw").startswith("the invitation of")
    assert cast.members("mit.edu") == {"mit.edu": "founder"}
    assert "not invited" in cast.refused("mit.edu", "invite", "utah.edu", "--withdraw")
    assert cast.invite("mit.edu", "utah.edu") != token
    assert cast.members("mit.edu")["utah.edu"] == "invited"


def test_invitations_end_after_a_week_or_as_said(cast: Cast) -> None:
    cast.make("utah.edu", "brown.edu")
    cast.invite("mit.edu", "utah.edu")
    cast.invite("mit.edu", "brown.edu", "--expires", "1d")
    rows = json.loads(cast.done("mit.edu", "members", "--json"))["members"]
    lasts = {row["participant"]: round(row["until"] - row["since"]) for row in rows}
    assert lasts["utah.edu"] == 7 * 86_400
    assert lasts["brown.edu"] == 86_400
    token = cast.invite("mit.edu", "brown.edu", "--expires", "1d")
    cast.done("mit.edu", "invite", "brown.edu", "--withdraw")
    short = cast.done(
        "mit.edu", "invite", "brown.edu", *cast.root("brown.edu"), *ADDRESS, "--expires", "0s"
    ).strip()
    assert short != token
    told = cast.refused("brown.edu", "join", short)
    assert "did not enter before its invitation ended" in told


def test_a_revoked_or_taken_name_is_not_invited(cast: Cast) -> None:
    cast.make("utah.edu")
    cast.done("twin", "init", "--participant", "utah.edu")
    cast.invite("mit.edu", "utah.edu")
    twin = ("--root", str(Home(cast.folder / "twin").root_certificate))
    told = cast.refused("mit.edu", "invite", "utah.edu", *twin, *ADDRESS)
    assert "not admitted with a second root" in told
    assert "`medusa-peer invite utah.edu --withdraw` frees the name" in told
    cast.done("mit.edu", "revoke", "utah.edu", "--yes")
    told = cast.refused("mit.edu", "invite", "utah.edu", *cast.root("utah.edu"), *ADDRESS)
    assert "revoked by mit.edu" in told
    assert "its name stays taken" in told


def test_the_policy_is_changed_by_those_who_may(cast: Cast) -> None:
    cast.make("utah.edu", policy="any")
    cast.enter("mit.edu", "utah.edu")
    _meet(cast, "mit.edu", "utah.edu")
    assert "founder mit.edu alone may change it" in cast.refused(
        "utah.edu", "policy", "any", "--yes"
    )
    assert "say --yes" in cast.refused("mit.edu", "policy", "founder")
    cast.done("mit.edu", "policy", "2 of mit.edu,utah.edu", "--yes")
    waiting = cast.done("mit.edu", "policy", "founder", "--yes")
    assert "waiting for others: founder (signed by mit.edu)" in waiting
    assert "waiting for others: policy founder" in cast.done("mit.edu", "members")
    _meet(cast, "mit.edu", "utah.edu")
    assert "its founder mit.edu alone may admit" in cast.done(
        "utah.edu", "policy", "founder", "--yes"
    )
    assert cast.members("utah.edu")["utah.edu"] == "member"


def test_revoking_says_who_is_meant_and_what_ends_and_asks(
    cast: Cast, monkeypatch: pytest.MonkeyPatch
) -> None:
    cast.make("utah.edu")
    cast.invite("mit.edu", "utah.edu")
    told = cast.refused("mit.edu", "revoke", "utah.edu")
    root = json.loads(cast.done("mit.edu", "members", "--json"))["members"][1]["root"]
    assert f"this revokes utah.edu (invited, root {root}, admitted by mit.edu on" in told
    assert "streams and tasks: not known, since this home's peer does not answer" in told
    assert told.endswith("nobody can be asked here: say --yes\n")
    assert cast.members("mit.edu")["utah.edu"] == "invited"
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    for answer, code in (("n\n", 130), ("y\n", 0)):
        monkeypatch.setattr("click.termui.visible_prompt_func", lambda _="", a=answer: a.strip())
        assert cast("mit.edu", "revoke", "utah.edu")[0] == code
    assert cast.members("mit.edu")["utah.edu"] == "revoked"
    assert "no member" in cast.refused("mit.edu", "revoke", "nobody.org", "--yes")


def test_a_newcomer_that_all_refuse_does_not_run_alone(
    cast: Cast, monkeypatch: pytest.MonkeyPatch
) -> None:
    cast.make("utah.edu")
    cast.enter("mit.edu", "utah.edu")
    home = Home(cast.folder / "utah.edu")
    outcomes = [
        (Meeting(refused=["mit.edu refuses this peer: why"]), True),
        (Meeting(met={"brown.edu"}, refused=["mit.edu refuses this peer: why"]), False),
        (Meeting(silent={("127.0.0.1", 1): "nobody"}), False),
    ]
    for meeting, is_refused in outcomes:

        async def found(*_: object, meeting: Meeting = meeting) -> Meeting:
            return meeting

        monkeypatch.setattr("tools.admission.meet", found)
        refused = pytest.raises(RefusedError, match="why; ask the participant that invited you")
        with refused if is_refused else nullcontext():
            trio.run(admission.enter, home, admission.load_federation(home), ())
