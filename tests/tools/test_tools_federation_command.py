"""`medusa-peer invite`, `join`, `members`, `policy`, `revoke`: their questions, output and
refusals."""

from __future__ import annotations

import json
import re
import shutil
from contextlib import nullcontext
from pathlib import Path

import pytest
import trio
from tools_prompt import entered

from medusa.overlay.entering import Meeting
from medusa.overlay.errors import RefusedError
from medusa.overlay.membership_file import load_membership
from medusa.tools.commands.peer.peer_command import peer
from medusa.tools.home import federation
from medusa.tools.home.folder import Home

ADDRESS = ("--address", "127.0.0.1:1")


class Cast:
    """Homes by participant, and the command run in them."""

    def __init__(self, folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self._capfd = capfd

    def __call__(self, who: str, *arguments: str) -> tuple[int, str, str]:
        return entered(self._capfd, peer, *arguments, "--home", str(self.folder / who))

    def done(self, who: str, *arguments: str) -> str:
        code, out, err = self(who, *arguments)
        assert (code, err) == (0, "")
        return out

    def refused(self, who: str, *arguments: str) -> str:
        code, out, err = self(who, *arguments)
        assert (code, out, err.count("\n")) == (1, "", 1)
        return err

    def make(self, *who: str, founder: str = "mit.edu", policy: str | None = None) -> str:
        """Make a home; return the founder's further messages."""
        admission = () if policy is None else ("--admission", policy)
        command = ("init", "--participant", founder, "--found", "lab", *admission)
        code, _, told = self(founder, *command)
        assert code == 0
        for name in who:
            self.done(name, "init", "--participant", name)
        return told

    def root(self, name: str) -> tuple[str, str]:
        return "--root", str(Home(self.folder / name).root_certificate)

    def invite(self, by: str, name: str, *more: str) -> str:
        return self.done(by, "invite", name, *self.root(name), *ADDRESS, *more).strip()

    def enter(self, by: str, name: str) -> None:
        code, _, err = self(name, "join", self.invite(by, name))
        assert code == 0
        assert "no member has answered yet" in err
        assert "127.0.0.1:1 cannot be reached" in err

    def goes_away(self, who: str) -> str:
        """Move the key of its root away; return the new folder."""
        vault = self.folder / f"vault of {who}"
        vault.mkdir(mode=0o700)
        for name in ("root.key", "root.crt"):
            shutil.copy(self.folder / who / name, vault / name)
        (self.folder / who / "root.key").unlink()
        return str(vault)

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
    """The daemons would bring each sponsor's statements to the other: the test unites their
    files."""
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
    """Let two running peers meet: both know all statements, and both have entered."""
    from medusa.overlay.events import wall_clock
    from medusa.overlay.identity import Identity
    from medusa.overlay.membership_file import save_membership

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

    told = cast.refused("mit.edu", "invite", "utah.edu", *ADDRESS)
    assert "utah.edu needs no more sponsors: mit.edu signed its admission, and it is a" in told


def test_inviting_a_member_again_says_that_it_is_one(cast: Cast) -> None:
    cast.make("utah.edu")
    cast.enter("mit.edu", "utah.edu")
    _meet(cast, "mit.edu", "utah.edu")
    code, out, err = cast("mit.edu", "invite", "utah.edu", *cast.root("utah.edu"), *ADDRESS)
    assert (code, out.startswith("medusa1-"), err.count("\n")) == (0, True, 1)
    assert "utah.edu was admitted on 2" in err
    assert "and is a member: this is its token again" in err


def test_a_sponsor_without_the_first_approval_reads_what_to_give(cast: Cast) -> None:
    cast.make()
    told = cast.refused("mit.edu", "invite", "cmu.edu", *ADDRESS)
    assert "has heard of no sponsor that has begun to admit cmu.edu: give its root" in told
    assert "`medusa-peer members` then shows cmu.edu as waiting" in told


def test_an_invitation_that_ends_today_is_shown_with_its_time(cast: Cast) -> None:
    cast.make("utah.edu", "brown.edu")
    cast.invite("mit.edu", "utah.edu", "--expires", "0s")
    cast.invite("mit.edu", "brown.edu", "--expires", "30d")
    shown = cast.done("mit.edu", "members")
    assert re.search(
        r"utah\.edu +expired .* until \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC$", shown, re.M
    )
    assert re.search(r"brown\.edu +invited .* until \d{4}-\d\d-\d\d$", shown, re.M)


def test_an_admission_that_is_complete_needs_no_more_sponsors(cast: Cast) -> None:
    cast.make("utah.edu", "brown.edu", "cmu.edu", policy="2 of mit.edu,utah.edu,brown.edu")
    for name in ("utah.edu", "brown.edu"):
        cast.enter("mit.edu", name)
        _meet(cast, "mit.edu", name)
    cast.invite("mit.edu", "cmu.edu")
    _meet(cast, "mit.edu", "utah.edu")
    cast.done("utah.edu", "invite", "cmu.edu", *ADDRESS, "--yes")
    _meet(cast, "utah.edu", "brown.edu")
    told = cast.refused("brown.edu", "invite", "cmu.edu", *ADDRESS)
    assert "cmu.edu needs no more sponsors: mit.edu, utah.edu signed its admission" in told
    assert "`medusa-peer invite cmu.edu --root CERT` prints its token again" in told
    assert cast.invite("brown.edu", "cmu.edu").startswith("medusa1-")


def test_init_names_the_participants_that_a_founder_can_admit(cast: Cast) -> None:
    for policy in (None, "any", "1 of mit.edu,utah.edu"):
        assert cast.make(policy=policy) == ""
        shutil.rmtree(cast.folder / "mit.edu")
    told = cast.make(policy="2 of mit.edu,utah.edu,brown.edu")
    assert "mit.edu alone admits the sponsors brown.edu, utah.edu; nobody else can be" in told
    assert "none of these" not in told
    shutil.rmtree(cast.folder / "mit.edu")
    told = cast.make(policy="2 of utah.edu,brown.edu")
    assert "before 2 of brown.edu, utah.edu are members and sign; mit.edu is none of these" in told


def test_a_root_kept_elsewhere_signs_what_its_participant_says(cast: Cast) -> None:
    cast.make("utah.edu", "brown.edu", policy="any")
    vault = cast.goes_away("mit.edu")
    wanted = cast.refused("mit.edu", "policy", "founder", "--yes")
    assert "root key is not in this home: say where it is with --root HOME" in wanted
    assert "--root HOME" in cast.refused("mit.edu", "revoke", "mit.edu", "--yes")
    cast.done("mit.edu", "policy", "founder", "--yes", "--root", vault)
    assert "where it is with --our-root HOME" in cast.refused("mit.edu", "invite", "utah.edu")
    cast.invite("mit.edu", "utah.edu", "--our-root", vault)
    cast.invite("mit.edu", "brown.edu", "--our-root", vault)
    cast.done("mit.edu", "invite", "brown.edu", "--withdraw", "--our-root", vault)
    cast.done("mit.edu", "revoke", "utah.edu", "--yes", "--root", vault)
    assert cast.members("mit.edu") == {"mit.edu": "founder", "utah.edu": "revoked"}
    other = str(cast.folder / "brown.edu")
    told = cast.refused("mit.edu", "policy", "any", "--yes", "--root", other)
    assert "holds the root of brown.edu, which is not that of this peer of mit.edu" in told


def test_a_refused_command_asks_no_confirmation(
    cast: Cast, monkeypatch: pytest.MonkeyPatch
) -> None:
    cast.make("utah.edu", "brown.edu")
    cast.enter("mit.edu", "utah.edu")
    _meet(cast, "mit.edu", "utah.edu")
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    for who, command, refusal in (
        ("utah.edu", ("policy", "any"), "founder mit.edu alone may change it"),
        ("mit.edu", ("policy", "founder"), "the admission policy is founder already"),
        ("mit.edu", ("policy", "all"), "admission policy 'all': must be"),
        ("utah.edu", ("revoke", "mit.edu"), "utah.edu may not revoke mit.edu"),
        ("mit.edu", ("leave",), "is not running: start it"),
    ):
        assert refusal in cast.refused(who, *command)


def test_giving_the_policy_in_force_again_ends_a_waiting_change(cast: Cast) -> None:
    cast.make("utah.edu", policy="2 of mit.edu,utah.edu")
    cast.enter("mit.edu", "utah.edu")
    _meet(cast, "mit.edu", "utah.edu")
    again = "2 of mit.edu,utah.edu"
    cast.done("mit.edu", "policy", "any", "--yes")
    asked = cast.refused("mit.edu", "policy", "2 of utah.edu, mit.edu")
    assert f"this says the policy of lab, '{again}', again; all members stay" in asked
    assert "the change to 'any', which waits for others, ends" in asked
    cast.done("mit.edu", "policy", again, "--yes")
    _meet(cast, "mit.edu", "utah.edu")
    assert "waiting" not in cast.done("utah.edu", "policy", again, "--yes")
    _meet(cast, "mit.edu", "utah.edu")
    roll = json.loads(cast.done("mit.edu", "members", "--json"))
    assert (roll["policy"], roll["changes"]) == (again, [])
    assert cast.members("mit.edu")["utah.edu"] == "member"


def test_members_has_a_line_a_member_where_it_is_piped(
    cast: Cast, monkeypatch: pytest.MonkeyPatch
) -> None:
    cast.make("utah.edu")
    cast.enter("mit.edu", "utah.edu")
    monkeypatch.setenv("COLUMNS", "40")
    header, _, invited, policy = cast.done("mit.edu", "members").splitlines()
    assert header.split() == ["participant", "standing", "admitted", "by", "since", "root", "note"]
    assert invited.split()[:2] == ["utah.edu", "invited"]
    assert "until 2" in invited
    assert policy.startswith("federation lab:")


def test_roots_and_days_stand_on_one_line_on_a_narrow_terminal(
    cast: Cast, monkeypatch: pytest.MonkeyPatch
) -> None:
    cast.make("utah.edu")
    cast.enter("mit.edu", "utah.edu")
    cast.done("mit.edu", "revoke", "utah.edu", "--yes")
    rows = json.loads(cast.done("mit.edu", "members", "--json"))["members"]
    monkeypatch.setattr("medusa.tools.commands.plain_tables.PIPE_COLUMNS", 80)
    lines = cast.done("mit.edu", "members").splitlines()
    for row in rows:
        (line,) = [line for line in lines if line.startswith(row["participant"])]
        assert row["root"] in line
        assert row["standing"] in line
    assert max(map(len, lines[:-1])) <= 80


def test_an_invitation_is_withdrawn_and_made_anew(cast: Cast) -> None:
    cast.make("utah.edu", "other")
    token = cast.invite("mit.edu", "utah.edu")
    assert cast.done("mit.edu", "invite", "utah.edu", "--withdraw").startswith("the invitation of")
    assert cast.members("mit.edu") == {"mit.edu": "founder"}
    assert "not invited" in cast.refused("mit.edu", "invite", "utah.edu", "--withdraw")
    assert cast.invite("mit.edu", "utah.edu") != token
    assert cast.members("mit.edu")["utah.edu"] == "invited"


def test_invitations_end_after_a_week_or_the_given_time(cast: Cast) -> None:
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


def test_the_policy_is_changed_by_permitted_participants(cast: Cast) -> None:
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


def test_revoking_names_the_member_and_the_consequences_and_asks(
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

        monkeypatch.setattr("medusa.tools.home.federation.meet", found)
        refused = pytest.raises(RefusedError, match="why; ask the participant that invited you")
        with refused if is_refused else nullcontext():
            trio.run(federation.enter, home, federation.load_federation(home), ())
