"""Signatures made here are not verified again; all others are."""

from __future__ import annotations

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from medusa.overlay.errors import UntrustedError
from medusa.overlay.signing import sign, verify
from medusa.testnet.simulation.determinism import MOST_REMEMBERED, Signatures

KEY = Ed25519PrivateKey.from_private_bytes(bytes(32))
OTHER = Ed25519PrivateKey.from_private_bytes(bytes(31) + b"1")


@pytest.fixture
def signatures(monkeypatch: pytest.MonkeyPatch) -> Signatures:
    made = Signatures()
    monkeypatch.setattr("medusa.overlay.signing._sign", made.sign)
    monkeypatch.setattr("medusa.overlay.signing._verify", made.verify)
    return made


def test_signatures_are_the_real_ones(signatures: Signatures) -> None:
    made = signatures.sign(KEY, b"message")
    assert made == KEY.sign(b"message")


def test_own_signatures_are_believed_without_verifying(signatures: Signatures) -> None:
    verify(KEY.public_key(), "claim", b"text", sign(KEY, "claim", b"text"))
    assert signatures.verified == 0


def test_foreign_signatures_are_verified(signatures: Signatures) -> None:
    signature = Signatures().sign(KEY, b"message")
    signatures.verify(KEY.public_key(), signature, b"message")
    assert signatures.verified == 1


@pytest.mark.parametrize(
    ("key", "domain", "payload"),
    [(OTHER, "claim", b"text"), (KEY, "other", b"text"), (KEY, "claim", b"Text")],
)
def test_another_key_purpose_or_text_is_refused(
    signatures: Signatures, key: Ed25519PrivateKey, domain: str, payload: bytes
) -> None:
    signature = sign(KEY, "claim", b"text")
    with pytest.raises(UntrustedError):
        verify(key.public_key(), domain, payload, signature)


def test_an_altered_signature_is_refused(signatures: Signatures) -> None:
    signature = bytearray(sign(KEY, "claim", b"text"))
    signature[0] ^= 1
    with pytest.raises(UntrustedError):
        verify(KEY.public_key(), "claim", b"text", bytes(signature))


def test_a_forgotten_signature_is_verified_again(
    signatures: Signatures, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("medusa.testnet.simulation.determinism.MOST_REMEMBERED", 2)
    assert MOST_REMEMBERED > 2
    first, *_ = [sign(KEY, "claim", bytes([number])) for number in range(3)]
    verify(KEY.public_key(), "claim", bytes([0]), first)
    assert signatures.verified == 1
