"""Invitation tokens."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from medusa.overlay.admission_policy import ANY
from medusa.overlay.errors import InvalidInputError, NotFoundError
from medusa.overlay.identity import Root
from medusa.overlay.invite import PREFIX, Invite, decode_invite, encode_invite
from medusa.overlay.membership import Membership

NOW = 1_700_000_000.0
MIT, UTAH, BROWN, OREGON = (
    Root.create(name, NOW) for name in ("mit.edu", "utah.edu", "brown.edu", "oregon.edu")
)
MEMBERS = Membership.found(MIT, NOW, admission=ANY)
for sponsor, guest in [(MIT, UTAH), (MIT, BROWN), (UTAH, OREGON)]:
    MEMBERS.admit(sponsor, guest.certificate, NOW)
TOKEN = encode_invite(MEMBERS, "oregon.edu", [("10.0.0.1", 7654), ("peer.mit.edu", 7655)])


def test_a_token_is_all_that_a_guest_needs() -> None:
    invite = decode_invite(f"  {TOKEN[:50]}\n{TOKEN[50:]} \n")
    assert invite.addresses == (("10.0.0.1", 7654), ("peer.mit.edu", 7655))
    membership = invite.membership("oregon.edu")
    assert membership.federation == MEMBERS.federation
    # the token has only the chain; the rest comes from the peers
    assert membership.participants() == ("mit.edu", "oregon.edu", "utah.edu")
    assert len(TOKEN) < 4000


def test_a_token_for_somebody_else() -> None:
    with pytest.raises(InvalidInputError, match=r"does not admit brown\.edu"):
        decode_invite(TOKEN).membership("brown.edu")
    with pytest.raises(InvalidInputError):
        Invite(b"junk", (), ()).membership("brown.edu")


def test_invalid_invitations_are_refused() -> None:
    with pytest.raises(NotFoundError):
        encode_invite(MEMBERS, "nobody.org", [("10.0.0.1", 1)])
    for addresses in ([], [("", 1)], [("a b", 1)], [("10.0.0.1", 0)], [("::1", 65536)]):
        with pytest.raises(InvalidInputError):
            encode_invite(MEMBERS, "oregon.edu", addresses)


@given(st.text(max_size=200) | st.binary(max_size=200).map(lambda b: b.decode("latin-1")))
def test_any_text_is_the_one_error(text: str) -> None:
    for token in (text, PREFIX + text):
        with pytest.raises(InvalidInputError, match="invitation token"):
            decode_invite(token)


@given(st.data())
def test_a_damaged_token_never_gives_a_wrong_federation(data: st.DataObject) -> None:
    where = data.draw(st.integers(0, len(TOKEN) - 1))
    letter = data.draw(st.sampled_from("ABCxyz019-_=!\u00e9"))
    try:
        membership = decode_invite(TOKEN[:where] + letter + TOKEN[where + 1 :]).membership(
            "oregon.edu"
        )
    except InvalidInputError:
        return
    assert membership.federation == MEMBERS.federation


def test_letters_that_do_not_belong_are_not_skipped() -> None:
    with pytest.raises(InvalidInputError, match="damaged"):
        decode_invite(TOKEN[:40] + "!!!!" + TOKEN[40:])


def test_a_token_cut_short_or_too_long() -> None:
    with pytest.raises(InvalidInputError):
        decode_invite(TOKEN[:-9])
    with pytest.raises(InvalidInputError, match="longer"):
        decode_invite(PREFIX + "A" * 300_000)
