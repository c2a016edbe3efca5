"""Makes and checks the X.509 certificates of roots and peers.

* A root: CN = participant, CA with path length 0, valid for 10 years.
* A peer certificate: CN = participant, no CA, exactly one URI name
  `medusa://participant/peer/<id>`, valid for 1 year.

Both use Ed25519. The `cryptography` package parses untrusted certificates; every exception that it
raises becomes one error here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import (
    Ed25519PrivateKey,
    Ed25519PublicKey,
)
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from medusa.overlay.clock import shown
from medusa.overlay.errors import DecodeError, InvalidInputError, UntrustedError
from medusa.overlay.names import PEER_ID_BYTES, SCHEME, PeerId, check_participant

ROOT_DAYS: Final = 3652
"""Validity of a root, days: ten years. A federation keeps one root for each name."""

PEER_DAYS: Final = 365
"""Validity of a peer's certificate, days: after a year the root signs again."""

CHECKED: Final = 1024
"""Certificates whose signature and form are remembered as right: so a certificate that is shown
again and again, in statements and in handshakes, is checked once."""

BACKDATED: Final = timedelta(hours=1)
"""Certificates begin this long before they are made, because peers' clocks differ."""

MAX_CERTIFICATE: Final = 4096
"""Bytes of a certificate in DER; ours have about 500."""

_ROOT_UNIT: Final = "medusa root"
_PEER_UNIT: Final = "medusa peer"
"""Organizational units keep issuer and subject apart, so that no peer's certificate looks
self-issued."""

FINGERPRINT_DIGITS: Final = 16
"""Hexadecimal digits of a root's fingerprint that people compare: 64 bits."""


@dataclass(frozen=True, order=True, slots=True)
class PeerName:
    """A peer's participant and id."""

    participant: str
    peer_id: PeerId

    def __str__(self) -> str:
        return f"{SCHEME}{self.participant}/peer/{self.peer_id.hex()}"


def peer_id_of(public_key: Ed25519PublicKey) -> PeerId:
    """The first 20 bytes of SHA-256 of the raw 32-byte public key."""
    return PeerId(hashlib.sha256(public_key.public_bytes_raw()).digest()[:PEER_ID_BYTES])


def load_certificate(der: bytes) -> x509.Certificate:
    """
    Raises:
        DecodeError: these bytes are no certificate of the accepted size.
    """
    if len(der) > MAX_CERTIFICATE:
        raise DecodeError(f"certificate: {len(der)} bytes, at most {MAX_CERTIFICATE} are accepted")
    try:
        return x509.load_der_x509_certificate(der)
    except (ValueError, TypeError, x509.InvalidVersion) as error:
        raise DecodeError(f"certificate: not well formed: {_line(error)}") from None


def load_certificate_pem(pem: bytes) -> x509.Certificate:
    """
    Raises:
        DecodeError: this is no PEM certificate.
    """
    try:
        return load_certificate(x509.load_pem_x509_certificate(pem).public_bytes(Encoding.DER))
    except (ValueError, TypeError, x509.InvalidVersion):
        raise DecodeError("is no certificate in PEM") from None


def der(certificate: x509.Certificate) -> bytes:
    """The certificate's bytes, as they travel."""
    return certificate.public_bytes(Encoding.DER)


def fingerprint(certificate: x509.Certificate) -> bytes:
    """SHA-256 of the DER bytes."""
    return hashlib.sha256(der(certificate)).digest()


def short_fingerprint(certificate: x509.Certificate) -> str:
    """The first digits of a root's fingerprint, which people compare."""
    return fingerprint(certificate).hex()[:FINGERPRINT_DIGITS]


def public_key_of(certificate: x509.Certificate) -> Ed25519PublicKey:
    """
    Raises:
        UntrustedError: its key is not an Ed25519 key.
    """
    with _believing("certificate"):
        key = certificate.public_key()
    if not isinstance(key, Ed25519PublicKey):
        raise UntrustedError("certificate: its key is not an Ed25519 key")
    return key


def make_root_certificate(key: Ed25519PrivateKey, participant: str, now: float) -> x509.Certificate:
    """A participant's own certificate, signed with its own key."""
    name = _subject(participant, _ROOT_UNIT)
    builder = _builder(name, name, key.public_key(), now, ROOT_DAYS, authority=True)
    return builder.sign(key, None)


def make_peer_certificate(
    root_key: Ed25519PrivateKey, root: x509.Certificate, public: Ed25519PublicKey, now: float
) -> x509.Certificate:
    """A certificate of that public key as a peer of the root's participant."""
    participant = check_root(root)
    peer = PeerName(participant, peer_id_of(public))
    builder = (
        _builder(
            _subject(participant, _PEER_UNIT),
            root.subject,
            public,
            now,
            PEER_DAYS,
            authority=False,
        )
        .add_extension(
            x509.SubjectAlternativeName([x509.UniformResourceIdentifier(str(peer))]), critical=False
        )
        .add_extension(
            x509.ExtendedKeyUsage(
                [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
            ),
            critical=False,
        )
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(root_key.public_key()),
            critical=False,
        )
    )
    return builder.sign(root_key, None)


@lru_cache(maxsize=CHECKED)
def check_root(certificate: x509.Certificate) -> str:
    """The participant of a root certificate. The caller checks the dates.

    Raises:
        UntrustedError: not self-signed, not a root of ours, or not of a participant.
    """
    with _believing("root certificate"):
        certificate.verify_directly_issued_by(certificate)
        constraints = certificate.extensions.get_extension_for_class(x509.BasicConstraints).value
        if not constraints.ca or constraints.path_length != 0:
            raise UntrustedError("root certificate: must be a CA with path length 0")
        public_key_of(certificate)
        return _check_subject(certificate, _ROOT_UNIT)


def check_certificate(
    certificate: x509.Certificate, root: x509.Certificate, now: float
) -> PeerName:
    """The peer that a certificate names, if that root signed it and both are valid now.

    Raises:
        UntrustedError: expired, not yet valid, foreign, self-made, or not of the form above.
    """
    name = check_issued(certificate, root)
    check_dates(certificate, now, f"certificate of {name}", "`medusa-peer renew` renews it")
    check_dates(root, now, f"root certificate of {name.participant}")
    return name


@lru_cache(maxsize=CHECKED)
def check_issued(certificate: x509.Certificate, root: x509.Certificate) -> PeerName:
    """`check_certificate` without the dates.

    Raises:
        UntrustedError: foreign, self-made, or not of the form above.
    """
    participant = check_root(root)
    with _believing(f"certificate, said to be of a peer of {participant}"):
        certificate.verify_directly_issued_by(root)
        extensions = certificate.extensions
        if extensions.get_extension_for_class(x509.BasicConstraints).value.ca:
            raise UntrustedError(f"certificate: a CA of {participant}'s, not a peer")
        names = extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        expected = PeerName(participant, peer_id_of(public_key_of(certificate)))
        if list(names) != [x509.UniformResourceIdentifier(str(expected))]:
            raise UntrustedError(f"certificate: its name is not exactly {expected}")
        if _check_subject(certificate, _PEER_UNIT) != participant:
            raise UntrustedError(f"certificate: its common name is not {participant}")
    return expected


def claimed_participant(certificate: x509.Certificate) -> str:
    """The participant that a certificate names, unverified: only to find the root that verifies it.

    Raises:
        UntrustedError: it names no participant.
    """
    with _believing("certificate"):
        return _common_name(certificate)


def peer_of(certificate: x509.Certificate) -> str | None:
    """The participant that a peer's certificate names, unverified, for texts only; None if it is
    not a peer's certificate."""
    try:
        with _believing("certificate"):
            return _check_subject(certificate, _PEER_UNIT)
    except UntrustedError:
        return None


def check_dates(
    certificate: x509.Certificate, now: float, what: str, mend: str = "nothing renews a root"
) -> None:
    """
    Raises:
        UntrustedError: expired, or not valid yet.
    """
    begin = certificate.not_valid_before_utc
    end = certificate.not_valid_after_utc
    if now >= end.timestamp():
        raise UntrustedError(
            f"{what}: expired on {end:%Y-%m-%d %H:%M} UTC: {mend}; {_by_clock(now)}"
        )
    if now < begin.timestamp():
        raise UntrustedError(
            f"{what}: not valid before {begin:%Y-%m-%d %H:%M} UTC; {_by_clock(now)}"
        )


def _by_clock(now: float) -> str:
    return f"this machine's clock says {shown(now)}: if that is wrong, set it"


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    public: Ed25519PublicKey,
    now: float,
    days: int,
    *,
    authority: bool,
) -> x509.CertificateBuilder:
    moment = datetime.fromtimestamp(now, UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(moment - BACKDATED)
        .not_valid_after(moment + timedelta(days=days))
        .add_extension(
            x509.BasicConstraints(ca=authority, path_length=0 if authority else None), critical=True
        )
        .add_extension(_usage(authority=authority), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
    )


def _usage(*, authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not authority,
        key_cert_sign=authority,
        crl_sign=False,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _subject(participant: str, unit: str) -> x509.Name:
    return x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, unit),
            x509.NameAttribute(NameOID.COMMON_NAME, check_participant(participant)),
        ]
    )


def _check_subject(certificate: x509.Certificate, unit: str) -> str:
    """The participant in a subject of exactly our form.

    `cryptography` reads subjects that OpenSSL does not: their peers would be admitted and then fail
    every handshake.
    """
    participant = _common_name(certificate)
    if certificate.subject.public_bytes() != _subject(participant, unit).public_bytes():
        raise UntrustedError(f"certificate: its subject is not that of a {unit}")
    return participant


def _common_name(certificate: x509.Certificate) -> str:
    attributes = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    if len(attributes) != 1 or not isinstance(attributes[0].value, str):
        raise UntrustedError("certificate: must have exactly one common name")
    return check_participant(attributes[0].value)


@contextmanager
def _believing(what: str) -> Iterator[None]:
    """Turn every exception of the block, which reads an untrusted certificate, into
    `UntrustedError`."""
    try:
        yield
    except InvalidSignature:
        raise UntrustedError(f"{what}: not signed by that participant's root") from None
    except (
        ValueError,
        TypeError,
        InvalidInputError,
        UnsupportedAlgorithm,
        x509.ExtensionNotFound,
        x509.DuplicateExtension,
        x509.UnsupportedGeneralNameType,
    ) as error:
        raise UntrustedError(f"{what}: {_line(error)}") from None


def _line(error: Exception) -> str:
    """An exception's text on one line; ASN.1 parsers write several lines."""
    return " ".join(str(error).split())[:200] or type(error).__name__
