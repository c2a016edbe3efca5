"""Receipts, disputes and rates: the tests say which receipts are believed, which are refused, and
what an interval costs."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import msgspec
import pytest
from contracts_settling import (
    AC,
    FEDERATION,
    NOW,
    PEERS,
    RATE,
    TASK,
    A,
    C,
    D,
    S,
    deal_of,
    key_of,
    load_terms,
)
from hypothesis import given
from hypothesis import strategies as st

from medusa.contracts.audit import open_entry
from medusa.contracts.balances import Balance, Balances
from medusa.contracts.deals import MAX_PRICE, ContentRate, LoadRate, check_rate, content_rate
from medusa.contracts.receipts import (
    MAX_AMOUNT,
    MAX_ENTRY,
    MAX_RECEIPT,
    RECEIPT_DOMAIN,
    Dispute,
    Letter,
    Objection,
    Proposal,
    Receipt,
    Refusal,
    Settled,
    countersign,
    decode_entry,
    digest_of,
    dispute,
    make_receipt,
    open_dispute,
    open_proposal,
    open_settled,
    propose,
    read_receipt,
)
from medusa.contracts.terms import ContentTerms, SuggestedTerms
from medusa.overlay.encoding import decode, encode
from medusa.overlay.errors import DecodeError, InvalidInputError, UntrustedError
from medusa.overlay.signing import sign

AT = int(NOW * S)


def receipt_of(**changes: Any) -> Receipt:
    made = make_receipt(deal_of(), FEDERATION, (0, b""), 40 * S, 1_000, after=10 * S, at=AT)
    return msgspec.structs.replace(made, **changes)


def proposal_of(receipt: Receipt) -> Proposal:
    return propose(PEERS["c"].private_key, receipt)


def test_a_receipt_is_signed_by_both_and_read_back() -> None:
    receipt = receipt_of()
    # 1,000 tuples of 50 us each: 0.05 s of CPU, 5 unit-seconds, at 2,000 micros
    assert receipt.amount == 10_000
    proposal = proposal_of(receipt)
    assert open_proposal(proposal, FEDERATION, key_of) == receipt
    settled = countersign(PEERS["a"].private_key, proposal)
    assert open_settled(settled, FEDERATION, key_of) == receipt
    assert decode_entry(encode(settled)) == settled


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"amount": 10_001}, "by its rate it is 10000"),
        ({"rows": 2_000}, "by its rate it is 20000"),
        ({"rows": -1}, "not well formed"),
        ({"amount": -10_000}, "not well formed"),
        ({"rate": LoadRate(50_000, -2_000)}, "not well formed"),
        ({"rate": LoadRate(50_000, MAX_PRICE + 1)}, "not well formed"),
        ({"after": 40 * S}, "is empty"),
        ({"upto": 2**63}, "not well formed"),
        ({"number": 0}, "not well formed"),
        ({"number": 2}, "0 bytes of the previous one's digest"),
        ({"previous": b"x" * 32}, "32 bytes of the previous one's digest"),
        ({"payee": A}, "does not pay itself"),
        ({"payer": b"short"}, "not well formed"),
        ({"task": ""}, "not well formed"),
        ({"task": "x" * 300}, "not well formed"),
        ({"rows": float("nan")}, "not well formed"),
        ({"rows": 1_000.0}, "not in the canonical encoding|not well formed"),
    ],
)
def test_a_receipt_that_makes_no_sense_is_refused(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(DecodeError, match=reason):
        open_proposal(proposal_of(receipt_of(**changes)), FEDERATION, key_of)


def test_another_encoding_of_a_receipt_is_refused() -> None:
    payload = encode(receipt_of())
    # a header of an array of 14 in one byte; three bytes could say the same
    assert payload[:1] == b"\x9e"
    longer = b"\xdc\x00\x0e" + payload[1:]
    assert decode(longer, Receipt, limit=MAX_RECEIPT, what="receipt") == receipt_of()
    with pytest.raises(DecodeError, match="canonical"):
        read_receipt(longer)


def test_forged_and_foreign_receipts_are_refused() -> None:
    proposal = proposal_of(receipt_of())
    forged = propose(PEERS["d"].private_key, receipt_of())
    altered = Proposal(encode(receipt_of(rows=1_001, amount=10_010)), proposal.signature)
    for bad in (forged, altered):
        with pytest.raises(UntrustedError, match="bad signature on a medusa receipt"):
            open_proposal(bad, FEDERATION, key_of)
    with pytest.raises(UntrustedError, match="another federation"):
        open_proposal(proposal, "another", key_of)
    with pytest.raises(UntrustedError, match="not known"):
        open_proposal(proposal_of(receipt_of(payee=b"?" * 20)), FEDERATION, key_of)


def test_one_signature_does_not_stand_for_the_other() -> None:
    proposal = proposal_of(receipt_of())
    own_twice = Settled(proposal.payload, proposal.signature, proposal.signature)
    by_payee = countersign(PEERS["c"].private_key, proposal)
    # signed by the payer, but in the place of the payee's signature
    as_payee = sign(PEERS["a"].private_key, RECEIPT_DOMAIN, proposal.payload)
    for bad in (own_twice, by_payee, Settled(proposal.payload, proposal.signature, as_payee)):
        with pytest.raises(UntrustedError, match="countersigned"):
            open_settled(bad, FEDERATION, key_of)
    good = countersign(PEERS["a"].private_key, proposal)
    with pytest.raises(UntrustedError, match="bad signature on a medusa receipt"):
        open_settled(Settled(good.payload, b"\0" * 64, good.payer_signature), FEDERATION, key_of)


def test_a_dispute_holds_both_counts() -> None:
    proposal = proposal_of(receipt_of())
    said = dispute(PEERS["a"].private_key, proposal, 990, AT)
    receipt, objection = open_dispute(said, FEDERATION, key_of)
    assert (receipt.rows, objection.rows) == (1_000, 990)
    assert decode_entry(encode(said)) == said
    with pytest.raises(DecodeError, match="counted the same"):
        open_dispute(dispute(PEERS["a"].private_key, proposal, 1_000, AT), FEDERATION, key_of)
    with pytest.raises(UntrustedError, match="disputed"):
        open_dispute(dispute(PEERS["d"].private_key, proposal, 990, AT), FEDERATION, key_of)
    words = Objection(Proposal(proposal.payload, b"\0" * 64), 990, AT)
    put_in_the_mouth = Dispute(encode(words), dispute_signature(encode(words)))
    with pytest.raises(UntrustedError, match="bad signature on a medusa receipt"):
        open_dispute(put_in_the_mouth, FEDERATION, key_of)


def dispute_signature(payload: bytes) -> bytes:
    return sign(PEERS["a"].private_key, "medusa receipt disputed", payload)


def test_the_chain_of_an_account() -> None:
    first = encode(receipt_of())
    second = make_receipt(
        deal_of(), FEDERATION, (1, digest_of(first)), 70 * S, 5, after=40 * S, at=AT
    )
    assert (second.number, second.previous) == (2, digest_of(first))


def test_an_amount_too_large_for_a_receipt_is_refused_before_signing() -> None:
    dear = deal_of(LoadRate(2**40, MAX_PRICE))
    with pytest.raises(InvalidInputError, match="no receipt holds that much"):
        make_receipt(dear, FEDERATION, (0, b""), 40 * S, 10**6, after=0, at=AT)
    with pytest.raises(InvalidInputError):
        make_receipt(deal_of(), FEDERATION, (0, b""), 40 * S, -1, after=0, at=AT)
    free = deal_of(LoadRate(0, 0))
    made = make_receipt(free, FEDERATION, (0, b""), 40 * S, 10**6, after=0, at=AT)
    assert made.amount == 0


boundaries = st.integers(-(10**9), 10**9)


@given(
    cuts=st.lists(boundaries, min_size=2, max_size=8, unique=True),
    rate=st.builds(
        ContentRate, st.integers(0, 10**6), st.integers(0, 10**6), st.integers(0, 10**8), boundaries
    ),
)
def test_content_costs_the_same_however_it_is_cut(cuts: list[int], rate: ContentRate) -> None:
    cuts.sort()
    parts = [rate.amount(after, upto, 7) for after, upto in pairwise(cuts)]
    assert sum(parts) == rate.amount(cuts[0], cuts[-1], 7 * len(parts))
    assert min(parts) >= 0


def test_only_full_periods_are_paid() -> None:
    rate = content_rate(ContentTerms("medusa://c.edu/s", "c.edu", 3, 100, 60), since=10 * S)
    assert rate.amount(10 * S, 70 * S - 1, 4) == 12
    assert rate.amount(10 * S, 70 * S, 4) == 112
    assert rate.amount(70 * S, 190 * S, 0) == 200


@given(rows=st.integers(0, 2**40), cost=st.integers(0, 2**40), price=st.integers(0, 2**40))
def test_load_costs_cpu_seconds_times_price(rows: int, cost: int, price: int) -> None:
    # the oracle computes with seconds of a core, as exact fractions
    unit_seconds_e7 = rows * cost
    assert LoadRate(cost, price).amount(0, 1, rows) == unit_seconds_e7 * price // 10**7


def test_rates_are_held_to_the_contract() -> None:
    check_rate(LoadRate(1, 1_000), load_terms(), TASK)
    check_rate(LoadRate(1, 3_000), load_terms(), TASK)
    content = ContentTerms("medusa://c.edu/s", "c.edu", 3, 100, 60)
    check_rate(content_rate(content, 5), content, content.stream)
    for rate, terms, task, reason in [
        (LoadRate(1, 999), load_terms(), TASK, "outside the contract's range, 1000 to 3000"),
        (LoadRate(1, 3_001), load_terms(), TASK, "outside"),
        (ContentRate(1), load_terms(), TASK, "for load, not for streams"),
        (content_rate(content, 5), content, TASK, "is for medusa://c.edu/s"),
        (ContentRate(4, 100, 60 * S), content, content.stream, "not what this contract charges"),
        (LoadRate(1, 3), content, content.stream, "not what this contract charges"),
        (RATE, SuggestedTerms(TASK, D.hex()), TASK, "nobody pays"),
    ]:
        with pytest.raises(InvalidInputError, match=reason):
            check_rate(rate, terms, task)


@given(data=st.binary(max_size=300))
def test_decoders_raise_one_error(data: bytes) -> None:
    for read in (read_receipt, decode_entry):
        with pytest.raises(DecodeError):
            read(data)


@given(data=st.data())
def test_no_flipped_bit_passes(data: st.DataObject) -> None:
    settled = encode(countersign(PEERS["a"].private_key, proposal_of(receipt_of())))
    at = data.draw(st.integers(0, len(settled) - 1))
    bit = data.draw(st.integers(0, 7))
    bad = bytearray(settled)
    bad[at] ^= 1 << bit
    with pytest.raises((DecodeError, UntrustedError)):
        open_entry(decode_entry(bytes(bad)), FEDERATION, key_of)


def test_messages_travel_and_are_limited() -> None:
    proposal = proposal_of(receipt_of())
    refusal = Refusal(AC, TASK, 1, 0, "later", 5, final=True, rows=7)
    for message in (proposal, countersign(PEERS["a"].private_key, proposal), refusal):
        sent = encode(Letter(message))
        assert decode(sent, Letter, limit=MAX_ENTRY, what="letter").message == message
    for bad in (
        Proposal(b"x" * (MAX_RECEIPT + 1), b"s" * 64),
        Proposal(b"x", b"short"),
        msgspec.structs.replace(refusal, reason="x" * 501),
        msgspec.structs.replace(refusal, upto=2**63),
        msgspec.structs.replace(refusal, rows=-1),
    ):
        with pytest.raises(DecodeError):
            decode(encode(Letter(bad)), Letter, limit=2**20, what="letter")


def test_the_longest_receipt_fits_its_limit() -> None:
    deal = deal_of(ContentRate(0, 0, 2**62, -(2**62)), task="\N{GRINNING FACE}" * 256)
    long = msgspec.structs.replace(deal, contract="\N{GRINNING FACE}" * 64, term_number=2**62)
    receipt = make_receipt(
        long, "f" * 64, (2**53 - 1, b"x" * 32), 2**62, 2**40, after=-(2**62), at=2**62
    )
    signed = propose(PEERS["c"].private_key, receipt)
    assert len(signed.payload) <= MAX_RECEIPT
    assert open_proposal(signed, "f" * 64, key_of) == receipt
    assert len(encode(dispute(PEERS["a"].private_key, signed, 1, AT))) <= MAX_ENTRY
    assert MAX_AMOUNT < 2**63


def test_balances() -> None:
    balances = Balances(A.hex(), (Balance(AC, earned=3, spent=5),))
    assert balances.of(AC).net == -2
    assert balances.of("unknown") == Balance("unknown")
    assert decode(encode(balances), Balances, limit=1_000, what="balances") == balances
    assert C != D
