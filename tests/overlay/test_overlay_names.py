"""Names: what is one, what is not, and that the answer is always a name or the one error."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from overlay.errors import InvalidInputError
from overlay.names import MAX_NAME, ObjectName, check_participant

labels = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,8}[a-z0-9])?", fullmatch=True)
participants = st.lists(labels, min_size=1, max_size=4).map(".".join)
segments = st.from_regex(r"[A-Za-z0-9._-]{1,12}", fullmatch=True).filter(
    lambda s: s not in {".", ".."}
)


@given(participants, st.lists(segments, min_size=1, max_size=6))
def test_a_name_survives_writing_and_reading(participant: str, path: list[str]) -> None:
    name = ObjectName(participant, "/".join(path))
    assert ObjectName.parse(str(name)) == name


@given(st.text(max_size=300) | st.text(max_size=40).map(lambda s: "medusa://mit.edu/" + s))
def test_any_text_is_a_name_or_the_one_error(text: str) -> None:
    try:
        name = ObjectName.parse(text)
    except InvalidInputError:
        return
    assert str(name) == text


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("http://mit.edu/a", "medusa://participant/path"),
        ("medusa://mit.edu", "path segment"),
        ("medusa://mit.edu/", "path segment"),
        ("medusa://mit.edu/a//b", "path segment"),
        ("medusa://mit.edu/a/../b", "'..'"),
        ("medusa://mit.edu/.", "'.'"),
        ("medusa://mit.edu/a b", "'a b'"),
        ("medusa://MIT.edu/a", "'MIT'"),
        ("medusa:///a", "0 characters"),
        ("medusa://mit..edu/a", "''"),
        ("medusa://mit.edu/" + "a" * MAX_NAME, "at most 256"),
        ("medusa://mit.edu/a\n", "path segment"),
    ],
)
def test_what_is_wrong_is_said(text: str, reason: str) -> None:
    with pytest.raises(InvalidInputError, match=reason.replace(".", r"\.")):
        ObjectName.parse(text)


@pytest.mark.parametrize(
    "text", ["", "-a", "a-", "a_b", "a.", ".a", "a" * 65, "mit.edu\n", "\u00e9cole.fr", "a/b"]
)
def test_no_participant(text: str) -> None:
    with pytest.raises(InvalidInputError, match="participant name"):
        check_participant(text)


def test_children() -> None:
    name = ObjectName.parse("medusa://mit.edu/conn")
    assert str(name.child("late")) == "medusa://mit.edu/conn/late"
    with pytest.raises(InvalidInputError):
        name.child("..")
