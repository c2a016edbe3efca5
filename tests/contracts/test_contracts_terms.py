"""Terms: what a contract may say, and what is refused by name."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.terms import (
    MAX_PRICE,
    ContentTerms,
    LoadTerms,
    Menu,
    SuggestedTerms,
    Terms,
    amount_of,
    check_terms,
)
from overlay.errors import InvalidInputError

SOME = Menu(most_load=10)
STREAM = "medusa://mit.edu/conns"
PEER = "ab" * 20


def check(terms: Terms) -> None:
    check_terms(terms, "mit.edu", "utah.edu")


@pytest.mark.parametrize(
    "terms",
    [
        LoadTerms(0, 0, SOME),
        LoadTerms(5, MAX_PRICE, SOME, SOME, False, MAX_PRICE, 60, 2),
        LoadTerms(1, 1, Menu(("filter",), ("medusa://mit.edu/*", "medusa://a-b.c/x_?.1"), 1)),
        ContentTerms(STREAM, "mit.edu", 5, 10, 60, 30),
        ContentTerms(STREAM, "utah.edu"),
        SuggestedTerms(STREAM, PEER),
        SuggestedTerms(STREAM, "", "medusa://utah.edu/conns"),
        SuggestedTerms(STREAM, PEER, STREAM),
    ],
)
def test_good_terms(terms: Terms) -> None:
    check(terms)


@pytest.mark.parametrize(
    ("terms", "told"),
    [
        (LoadTerms(-1, 1, SOME), "min_price: -1 is not within 0"),
        (LoadTerms(1, MAX_PRICE + 1, SOME), "max_price"),
        (LoadTerms(2, 1, SOME), "the least is above the most"),
        (LoadTerms(1, 1, SOME, migration_cost=-1), "migration_cost"),
        (LoadTerms(1, 1, SOME, availability_s=2**40), "availability_s"),
        (LoadTerms(1, 1, SOME, replicas=99), "replicas"),
        (LoadTerms(1, 1), "neither side runs anything"),
        (LoadTerms(1, 1, Menu(most_load=-1)), "what the proposer runs: most_load"),
        (LoadTerms(1, 1, SOME, Menu(most_load=2**40)), "what the accepter runs: most_load"),
        (LoadTerms(1, 1, Menu(("java",), most_load=1)), "'java' is no box kind"),
        (LoadTerms(1, 1, Menu((), most_load=1)), "at least one"),
        (LoadTerms(1, 1, Menu(("map", "map"), most_load=1)), "each box kind once"),
        (LoadTerms(1, 1, Menu(streams=(), most_load=1)), "1 to 16 stream patterns"),
        (LoadTerms(1, 1, Menu(streams=("*",) * 17, most_load=1)), "1 to 16 stream patterns"),
        (LoadTerms(1, 1, Menu(streams=("[a-z]*",), most_load=1)), "is no stream pattern"),
        (LoadTerms(1, 1, Menu(streams=("",), most_load=1)), "is no stream pattern"),
        (LoadTerms(1, 1, Menu(streams=("a" * 257,), most_load=1)), "is no stream pattern"),
        (ContentTerms("conns", "mit.edu"), "must look like medusa://"),
        (ContentTerms(STREAM, "evil.org"), "must be a party"),
        (ContentTerms(STREAM, "mit.edu", -1), "per_message"),
        (ContentTerms(STREAM, "mit.edu", 0, 5), "belong together"),
        (ContentTerms(STREAM, "mit.edu", 0, 0, 5), "belong together"),
        (ContentTerms(STREAM, "mit.edu", 0, 5, -5), "period_s"),
        (ContentTerms(STREAM, "mit.edu", availability_s=-1), "availability_s"),
        (SuggestedTerms(STREAM), "nothing is suggested"),
        (SuggestedTerms("x", PEER), "must look like medusa://"),
        (SuggestedTerms(STREAM, "not hex"), "peer id"),
        (SuggestedTerms(STREAM, "", "y"), "must look like medusa://"),
        (SuggestedTerms(STREAM, "", STREAM), "is the same stream"),
    ],
)
def test_bad_terms_are_named(terms: Terms, told: str) -> None:
    with pytest.raises(InvalidInputError) as refused:
        check(terms)
    assert told in str(refused.value)
    assert "\n" not in str(refused.value)


@given(
    st.builds(
        LoadTerms,
        st.integers(),
        st.integers(),
        st.builds(
            Menu,
            st.lists(st.text(max_size=9)).map(tuple),
            st.lists(st.text()).map(tuple),
            st.integers(),
        ),
        migration_cost=st.integers(),
        replicas=st.integers(),
    )
    | st.builds(ContentTerms, st.text(), st.text(), st.integers(), st.integers(), st.integers())
    | st.builds(SuggestedTerms, st.text(), st.text(), st.text())
)
def test_whatever_they_say_there_is_one_error(terms: Terms) -> None:
    try:
        check(terms)
    except InvalidInputError:
        return
    if isinstance(terms, LoadTerms):
        assert 0 <= terms.min_price <= terms.max_price <= MAX_PRICE


def test_an_hour_of_one_unit_costs_3600_prices() -> None:
    # 1 unit = 10 ms of CPU a second; 1,000 tuples a second at 10 us each use just that
    assert amount_of(3_600_000, 10_000, 250) == 3600 * 250
