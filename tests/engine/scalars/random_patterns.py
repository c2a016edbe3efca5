"""Draws regular expressions of the subset, and texts that nearly match them."""

from __future__ import annotations

from hypothesis import strategies as st

LETTERS = "abé😀.\n-_1 "

SINGLE = [
    "a",
    "b",
    "é",
    "😀",
    ".",
    r"\.",
    r"\d",
    r"\w",
    r"\s",
    r"\D",
    r"\W",
    r"\S",
    "_",
    " ",
    r"\n",
]
SETS = ["[ab]", "[^ab]", "[a-z_]", "[^\\n]", r"[\w.]", r"[^\s]", "[é😀]", "[^😀-]", "[a\\-1]"]
ATOMS = st.sampled_from([*SINGLE, *SETS])

QUANTIFIERS = st.sampled_from(
    [
        "",
        "",
        "",
        "?",
        "*",
        "+",
        "{2}",
        "{1,}",
        "{0,3}",
        "{1,2}",
        "??",
        "*?",
        "+?",
        "{1,3}?",
        "{2,}?",
    ]
)

BOUNDED = st.sampled_from(["", "", "?", "??"])


def pieces(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    single = st.tuples(ATOMS, QUANTIFIERS).map("".join)
    captured = st.tuples(inner, BOUNDED).map(lambda each: f"({each[0]}){each[1]}")
    plain = st.tuples(inner, BOUNDED | st.sampled_from(["{2}", "{1,3}"])).map(
        lambda each: f"(?:{each[0]}){each[1]}"
    )
    return single | single | single | captured | plain


def sequences(piece: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    branch = st.lists(piece, max_size=4).map("".join)
    return branch | st.lists(branch, min_size=2, max_size=3).map("|".join)


PATTERNS = st.tuples(
    st.sampled_from(["", "", "^"]),
    st.recursive(
        sequences(st.tuples(ATOMS, QUANTIFIERS).map("".join)),
        lambda inner: sequences(pieces(inner)),
        max_leaves=6,
    ),
    st.sampled_from(["", "", "$"]),
).map("".join)
"""Patterns, some of which are refused."""

TEXTS = st.text(st.sampled_from(LETTERS), max_size=14)
