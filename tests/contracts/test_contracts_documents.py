"""Documents survive a round trip and have one encoding; the tests alter them in every way that
makes one invalid. Terms that a contract may not have are refused by name."""

from __future__ import annotations

import math

import msgspec
import pytest
from contracts_parties import BROWN, DAY, EVIL, LOAD, MIT, NOW, UTAH, federation, proposal, proposed
from hypothesis import given, settings
from hypothesis import strategies as st

from medusa.contracts.documents import (
    DOMAIN,
    MAX_DOCUMENT,
    MAX_PROPOSAL,
    MAX_VALID_S,
    Acceptance,
    Proposal,
    Revocation,
    accept,
    contract_id,
    open_document,
    proposal_of,
    propose,
    revoke,
    verify_document,
)
from medusa.contracts.terms import (
    MAX_PRICE,
    ContentTerms,
    LoadTerms,
    Menu,
    SuggestedTerms,
    Terms,
    amount_of,
    check_terms,
)
from medusa.overlay.encoding import encode
from medusa.overlay.errors import DecodeError, InvalidInputError, MedusaError, UntrustedError
from medusa.overlay.identity import Root
from medusa.overlay.membership import Membership
from medusa.overlay.signing import Signed, signed

ONE = federation()
OTHER = federation("other")
"""A federation with the same members and another charter."""


def sealed(root: Root, body: object, membership: Membership = ONE) -> bytes:
    """Sign a document without checking it, as a forger would."""
    domain = f"{DOMAIN} {membership.federation}"
    return encode(signed(root.private_key, domain, encode(body)))


def believed(data: bytes, membership: Membership = ONE) -> None:
    verify_document(open_document(data), membership)


def refused(data: bytes, told: str, kind: type[MedusaError] = UntrustedError) -> None:
    with pytest.raises(kind) as error:
        believed(data)
    assert told in str(error.value)


@pytest.mark.parametrize(
    "terms",
    [
        LOAD,
        ContentTerms("medusa://mit.edu/conns", "mit.edu", 3, 1_000_000, 3600),
        SuggestedTerms("medusa://mit.edu/conns", "ab" * 20),
    ],
)
def test_propose_accept_revoke(terms: LoadTerms | ContentTerms | SuggestedTerms) -> None:
    offered = proposal(ONE, terms)
    data = propose(MIT, offered)
    opened = open_document(data)
    assert (opened.body, opened.signer, opened.contract) == (offered, "mit.edu", contract_id(data))
    contract = accept(UTAH, data)
    agreed = open_document(contract)
    assert (proposal_of(agreed), agreed.signer) == (offered, "utah.edu")
    assert agreed.contract == opened.contract
    for root in (MIT, UTAH):
        revocation = open_document(revoke(root, ONE.federation, opened.contract, NOW))
        assert revocation.contract == opened.contract
        assert revocation.signer == root.participant
        assert proposal_of(revocation) is None
        verify_document(revocation, ONE)
    believed(data)
    believed(contract)


def test_equal_proposals_are_different_contracts() -> None:
    assert contract_id(proposed(ONE)) != contract_id(proposed(ONE))


def test_forged_and_altered() -> None:
    # evil.org signs in mit.edu's name, and accepts in utah.edu's
    refused(sealed(EVIL, proposal(ONE)), "bad signature")
    refused(sealed(EVIL, Acceptance(proposed(ONE))), "bad signature")
    # a better price, with the old signature
    good = msgspec.msgpack.decode(proposed(ONE), type=Signed)
    body = msgspec.msgpack.decode(good.payload, type=Proposal)
    better = msgspec.structs.replace(body, terms=LoadTerms(1, 1, Menu(most_load=9)))
    altered = encode(Signed(encode(better), good.signature))
    refused(altered, "bad signature")
    # utah.edu accepts a proposal that mit.edu has not signed
    refused(sealed(UTAH, Acceptance(altered)), "bad signature")
    # the proposer signs the acceptance, too
    refused(sealed(MIT, Acceptance(proposed(ONE))), "bad signature")


def test_a_signature_for_another_purpose_is_worth_nothing() -> None:
    payload = encode(proposal(ONE))
    for domain in (DOMAIN, "medusa membership statement", f"{DOMAIN} {OTHER.federation}"):
        refused(encode(signed(MIT.private_key, domain, payload)), "bad signature")


def test_documents_of_another_federation_are_refused() -> None:
    refused(proposed(OTHER), "another federation")
    refused(accept(UTAH, proposed(OTHER)), "another federation")
    refused(revoke(UTAH, OTHER.federation, "ab" * 16, NOW), "another federation")


def test_a_party_that_is_no_member() -> None:
    refused(proposed(ONE, EVIL), "evil.org is no member in good standing")
    stranger = accept(EVIL, proposed(ONE, accepter="evil.org"))
    refused(stranger, "evil.org is no member in good standing")
    left = federation()
    contract = accept(UTAH, proposed(left))
    left.revoke(UTAH, "utah.edu", now=NOW)
    with pytest.raises(UntrustedError, match=r"utah\.edu is no member"):
        believed(contract, left)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"accepter": "mit.edu"}, "proposes to itself"),
        ({"accepter": "MIT"}, "participant name"),
        ({"terms": LoadTerms(2, 1, Menu(most_load=1))}, "the least is above the most"),
        ({"terms": LoadTerms(-1, 1, Menu(most_load=1))}, "min_price"),
        ({"terms": ContentTerms("medusa://a.b/c", "brown.edu")}, "must be a party"),
        ({"nonce": b"short"}, "a nonce has 16 bytes"),
        ({"valid_from": math.nan}, "valid_from nan"),
        ({"valid_until": math.nan}, "valid_until nan"),
        ({"valid_until": math.inf}, "valid_until inf"),
        ({"proposed_at": -1.0}, "proposed_at -1.0"),
        ({"valid_until": NOW}, "must end after it begins"),
        ({"valid_until": NOW + MAX_VALID_S + 1}, "within 3660 days"),
    ],
)
def test_invalid_terms_of_contracts_are_refused(changes: dict[str, object], told: str) -> None:
    body = proposal(ONE, **changes)
    refused(sealed(MIT, body), told, DecodeError)
    with pytest.raises(InvalidInputError):
        propose(MIT, body)


def test_prices_are_whole_numbers() -> None:
    for price in (1.5, math.nan, "1", None, 2**63):
        body = list(msgspec.msgpack.decode(encode(proposal(ONE))))
        body[4][1] = price
        refused(sealed(MIT, body), "is not within" if price == 2**63 else "not well", DecodeError)


def test_revocations_are_checked() -> None:
    for revocation, told in [
        (Revocation(ONE.federation, "xyz", "mit.edu", NOW), "is no contract id"),
        (Revocation(ONE.federation, "AB" * 16, "mit.edu", NOW), "is no contract id"),
        (Revocation(ONE.federation, "ab" * 16, "MIT", NOW), "participant name"),
        (Revocation(ONE.federation, "ab" * 16, "mit.edu", math.nan), "at nan"),
    ]:
        refused(sealed(MIT, revocation), told, DecodeError)
    forged = sealed(EVIL, Revocation(ONE.federation, "ab" * 16, "mit.edu", NOW))
    refused(forged, "bad signature")


def test_only_the_one_encoding() -> None:
    good = msgspec.msgpack.decode(proposed(ONE), type=Signed)
    # the same values as a 16-bit array header, inside and outside
    outer = proposed(ONE)
    refused(b"\xdc\x00\x02" + outer[1:], "canonical", DecodeError)
    inner = b"\xdc\x00\x09" + good.payload[1:]
    domain = f"{DOMAIN} {ONE.federation}"
    refused(encode(signed(MIT.private_key, domain, inner)), "canonical", DecodeError)
    refused(sealed(MIT, [*msgspec.msgpack.decode(good.payload), 1]), "canonical", DecodeError)


def test_sizes() -> None:
    long = "medusa://mit.edu/" + "x" * 239
    full = Menu(streams=(long,) * 16, most_load=1)
    data = proposed(ONE, terms=LoadTerms(1, 2, full, full))
    assert len(data) < MAX_PROPOSAL
    assert len(accept(UTAH, data)) <= MAX_DOCUMENT
    refused(b"x" * (MAX_DOCUMENT + 1), "at most", DecodeError)
    nested = accept(UTAH, proposed(ONE))
    for _ in range(100):  # a deep value must not exhaust the stack
        nested = sealed(UTAH, Acceptance(nested))
        refused(nested, "contract document", DecodeError)
    with pytest.raises(DecodeError, match="no proposal"):
        accept(UTAH, accept(UTAH, proposed(ONE)))


def test_only_the_named_party_signs() -> None:
    with pytest.raises(InvalidInputError, match=r"mit\.edu proposes, but utah\.edu's root signs"):
        propose(UTAH, proposal(ONE))
    with pytest.raises(InvalidInputError, match=r"proposed to utah\.edu, not to brown\.edu"):
        accept(BROWN, proposed(ONE))


@given(st.binary(max_size=300))
def test_any_bytes_decode_or_raise_one_error(data: bytes) -> None:
    with pytest.raises(DecodeError):
        open_document(data)


@settings(max_examples=300)
@given(
    st.sampled_from(
        [proposed(ONE), accept(UTAH, proposed(ONE)), revoke(MIT, ONE.federation, "ab" * 16, NOW)]
    ),
    st.data(),
)
def test_any_changed_byte_is_refused(document: bytes, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(document) - 1))
    byte = data.draw(st.integers(0, 255).filter(lambda value: value != document[at]))
    changed = document[:at] + bytes([byte]) + document[at + 1 :]
    with pytest.raises((DecodeError, UntrustedError)):
        believed(changed)
    with pytest.raises(DecodeError):
        open_document(document[:at])


NAMES = st.from_regex(r"[a-z0-9]{1,9}\.(edu|org)", fullmatch=True)
MENUS = st.builds(
    Menu,
    st.lists(st.sampled_from(["filter", "map", "union", "aggregate"]), min_size=1, unique=True).map(
        tuple
    ),
    st.lists(st.sampled_from(["*", "medusa://mit.edu/*", "medusa://?.edu/x"]), min_size=1).map(
        lambda patterns: tuple(patterns[:16])
    ),
    st.integers(1, 10_000),
)
PRICES = st.integers(0, 2**40)


PROPOSALS = st.builds(
    lambda parties, prices, menus, sublet, begin, seconds, nonce: Proposal(
        ONE.federation,
        *parties,
        LoadTerms(prices[0], prices[1], *menus, sublet),
        begin,
        begin + seconds,
        begin,
        nonce,
    ),
    st.tuples(NAMES, NAMES).filter(lambda parties: parties[0] != parties[1]),
    st.lists(PRICES, min_size=2, max_size=2).map(sorted),
    st.tuples(MENUS, MENUS),
    st.booleans(),
    st.floats(0, 2.0**32),
    st.floats(1, MAX_VALID_S - 1),
    st.binary(min_size=16, max_size=16),
)


@given(PROPOSALS)
def test_round_trip(body: Proposal) -> None:
    opened = open_document(sealed(MIT, body))
    assert opened.body == body
    again = open_document(sealed(UTAH, Acceptance(opened.data)))
    assert proposal_of(again) == body
    assert again.contract == opened.contract


def test_days_are_days() -> None:
    assert MAX_VALID_S / DAY == 3660


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
        (LoadTerms(1, 1, Menu(("Java 1",), most_load=1)), "'Java 1' is no name of a box kind"),
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
def test_any_terms_are_valid_or_give_the_one_error(terms: Terms) -> None:
    try:
        check(terms)
    except InvalidInputError:
        return
    if isinstance(terms, LoadTerms):
        assert 0 <= terms.min_price <= terms.max_price <= MAX_PRICE


def test_an_hour_of_one_unit_costs_3600_prices() -> None:
    # 1 unit = 10 ms of CPU a second; 1,000 tuples a second at 10 us each use just that
    assert amount_of(3_600_000, 10_000, 250) == 3600 * 250
