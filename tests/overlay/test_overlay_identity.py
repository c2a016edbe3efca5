"""Certificates of ours are believed, and every other kind is refused with one error that says
why."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.x509.oid import NameOID
from hypothesis import given
from hypothesis import strategies as st

from medusa.overlay.certificates import (
    check_root,
    der,
    load_certificate,
    load_certificate_pem,
    make_peer_certificate,
)
from medusa.overlay.errors import (
    DamagedError,
    DecodeError,
    InvalidInputError,
    NotAuthorisedError,
    UntrustedError,
)
from medusa.overlay.identity import (
    Identity,
    Root,
    certificate_pem,
    check_certificate,
    parse_peer_id,
    peer_id_of,
)
from medusa.overlay.tls import PeerContexts

NOW = 1_700_000_000.0
YEAR = 365 * 86400.0
MIT = Root.create("mit.edu", NOW)
UTAH = Root.create("utah.edu", NOW)
PEER = Identity.issue(MIT, NOW)


def craft(
    issuer: Root = MIT,
    *,
    signer: Ed25519PrivateKey | None = None,
    common_name: str = "mit.edu",
    uri: str | None = None,
    names: int = 1,
    authority: bool = False,
    ec_key: bool = False,
) -> x509.Certificate:
    """Return a certificate that differs from a good one in the given ways."""
    key = ec.generate_private_key(ec.SECP256R1()) if ec_key else Ed25519PrivateKey.generate()
    public = key.public_key()
    peer = bytes(20) if ec_key else peer_id_of(public)  # type: ignore[arg-type]
    uri = uri or f"medusa://mit.edu/peer/{peer.hex()}"
    start = datetime.fromtimestamp(NOW, UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(
            x509.Name(
                [
                    x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, "medusa peer"),
                    x509.NameAttribute(NameOID.COMMON_NAME, common_name),
                ]
            )
        )
        .issuer_name(issuer.certificate.subject)
        .public_key(public)
        .serial_number(1)
        .not_valid_before(start)
        .not_valid_after(start + timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
    )
    if names:
        uris = [x509.UniformResourceIdentifier(uri)] * names
        builder = builder.add_extension(x509.SubjectAlternativeName(uris), critical=False)
    return builder.sign(signer or issuer.private_key, None)


def retagged(root: Root, tag: int) -> x509.Certificate:
    """Return the root's certificate, validly signed, whose unit has another ASN.1 type of string:
    `cryptography` reads it, OpenSSL refuses the whole certificate."""

    def tlv(kind: int, content: bytes) -> bytes:
        size = len(content)
        long = bytes([0x82]) + size.to_bytes(2, "big")
        return bytes([kind]) + (bytes([size]) if size < 128 else long) + content

    unit, ed25519 = bytes.fromhex("060355040b"), tlv(0x30, bytes.fromhex("06032b6570"))
    good = root.certificate.tbs_certificate_bytes
    tbs = good.replace(unit + b"\x0c", unit + bytes([tag]))
    assert tbs.count(unit + bytes([tag])) == 2
    signature = tlv(0x03, b"\0" + root.private_key.sign(tbs))
    return load_certificate(tlv(0x30, tbs + ed25519 + signature))


@pytest.mark.parametrize("tag", [0x04, 0x17, 0x18, 0x1A])
def test_a_root_that_openssl_cannot_read_is_refused(tag: int) -> None:
    hostile = retagged(MIT, tag)
    with pytest.raises(ssl.SSLError):
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=der(hostile))
    with pytest.raises(UntrustedError, match="subject is not that of a medusa root"):
        check_root(hostile)
    # if a wrong statement is stored all the same, the check skips it, and the others still count
    contexts = PeerContexts(PEER)
    contexts.context([hostile, UTAH.certificate], server_side=True)
    loaded = contexts.context([], server_side=True).get_ca_certs(binary_form=True)
    assert loaded == [der(UTAH.certificate)]


def test_a_good_peer() -> None:
    name = check_certificate(PEER.certificate, MIT.certificate, NOW)
    assert name == PEER.name
    assert (name.participant, len(name.peer_id)) == ("mit.edu", 20)
    assert str(name) == f"medusa://mit.edu/peer/{PEER.peer_id.hex()}"
    assert check_certificate(craft(), MIT.certificate, NOW).participant == "mit.edu"


def test_the_form_of_certificates() -> None:
    constraints = MIT.certificate.extensions.get_extension_for_class(x509.BasicConstraints).value
    assert (constraints.ca, constraints.path_length) == (True, 0)
    root_life = MIT.certificate.not_valid_after_utc.timestamp() - NOW
    peer_life = PEER.certificate.not_valid_after_utc.timestamp() - NOW
    assert 9.9 * YEAR < root_life < 10.1 * YEAR
    assert peer_life == YEAR
    assert check_root(MIT.certificate) == "mit.edu"


@pytest.mark.parametrize(
    ("certificate", "reason"),
    [
        (Identity.issue(UTAH, NOW).certificate, "foreign|not signed|issuer"),
        (craft(signer=Ed25519PrivateKey.generate()), "not signed by that participant's root"),
        (Identity.issue(Root.create("mit.edu", NOW), NOW).certificate, "not signed"),
        (MIT.certificate, "a CA"),
        (craft(authority=True), "a CA"),
        (craft(uri="medusa://utah.edu/peer/" + "0" * 40), "its name is not exactly"),
        (craft(uri="medusa://mit.edu/peer/" + "0" * 40), "its name is not exactly"),
        (craft(names=2), "its name is not exactly"),
        (craft(names=0), "SubjectAlternativeName|subjectAltName"),
        (craft(common_name="utah.edu"), "common name"),
        (craft(common_name="MIT!"), "participant name"),
        (craft(ec_key=True), "not an Ed25519 key"),
    ],
)
def test_all_others_are_refused(certificate: x509.Certificate, reason: str) -> None:
    with pytest.raises(UntrustedError, match=reason):
        check_certificate(certificate, MIT.certificate, NOW)


def test_dates() -> None:
    for when, reason in [
        (NOW + YEAR, "expired"),
        (NOW - 7200, "not valid before"),
        (NOW + 20 * YEAR, "expired"),
    ]:
        with pytest.raises(UntrustedError, match=reason):
            check_certificate(PEER.certificate, MIT.certificate, when)
    old = Identity.issue(MIT, NOW + 9.9 * YEAR)
    with pytest.raises(UntrustedError, match=r"root certificate of mit\.edu: expired"):
        check_certificate(old.certificate, MIT.certificate, NOW + 10.5 * YEAR)


def self_made(
    *, path_length: int | None, ec_key: bool = False, foreign: bool = False
) -> x509.Certificate:
    key = ec.generate_private_key(ec.SECP256R1()) if ec_key else Ed25519PrivateKey.generate()
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "mit.edu")])
    start = datetime.fromtimestamp(NOW, UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(start)
        .not_valid_after(start + timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=path_length), critical=True)
        .sign(MIT.private_key if foreign else key, hashes.SHA256() if ec_key else None)
    )


@pytest.mark.parametrize(
    ("certificate", "reason"),
    [
        (PEER.certificate, "root certificate"),
        (self_made(path_length=None), "path length 0"),
        (self_made(path_length=1), "path length 0"),
        (self_made(path_length=0, ec_key=True), "Ed25519"),
        (self_made(path_length=0, foreign=True), "not signed"),
    ],
)
def test_invalid_roots_are_refused(certificate: x509.Certificate, reason: str) -> None:
    with pytest.raises(UntrustedError, match=reason):
        check_root(certificate)


@given(st.binary(max_size=300))
def test_any_bytes_are_a_certificate_or_the_one_error(data: bytes) -> None:
    for load in (load_certificate, load_certificate_pem):
        with pytest.raises(DecodeError):
            load(data)


@pytest.mark.filterwarnings("ignore:Parsed a serial number")  # and then the signature is wrong
@given(st.data())
def test_a_damaged_certificate_is_refused(data: st.DataObject) -> None:
    good = bytearray(der(PEER.certificate))
    # every byte but one: the number of unused bits of the signature, which may change without
    # effect if the signature's last bits are 0
    where = data.draw(st.integers(0, len(good) - 1).filter(lambda at: at != len(good) - 65))
    good[where] ^= data.draw(st.integers(1, 255))
    with pytest.raises((DecodeError, UntrustedError)):
        check_certificate(load_certificate(bytes(good)), MIT.certificate, NOW)


def test_save_and_load(tmp_path: Path) -> None:
    MIT.save(tmp_path)
    PEER.save(tmp_path)
    again = Identity.load(tmp_path)
    assert (again.name, again.certificate) == (PEER.name, PEER.certificate)
    assert Root.load(tmp_path).certificate == MIT.certificate
    assert Identity.issue(Root.load(tmp_path), NOW).participant == "mit.edu"
    renewed = Identity.issue(MIT, NOW + YEAR, again.private_key)
    assert renewed.name == PEER.name
    check_certificate(renewed.certificate, MIT.certificate, NOW + 1.5 * YEAR)


@pytest.mark.parametrize("file", ["peer.key", "root.key"])
def test_keys_open_to_others_are_refused(tmp_path: Path, file: str) -> None:
    MIT.save(tmp_path)
    PEER.save(tmp_path)
    (tmp_path / file).chmod(0o644)
    load = Identity.load if file == "peer.key" else Root.load
    with pytest.raises(NotAuthorisedError, match=f"chmod 600 .*{file}"):
        load(tmp_path)


def test_files_that_do_not_belong_together(tmp_path: Path) -> None:
    PEER.save(tmp_path)
    (tmp_path / "peer.crt").write_bytes(certificate_pem(Identity.issue(MIT, NOW).certificate))
    with pytest.raises(DamagedError, match="another key"):
        Identity.load(tmp_path)
    (tmp_path / "root.crt").write_bytes(certificate_pem(UTAH.certificate))
    with pytest.raises(DamagedError):
        Identity.load(tmp_path)
    (tmp_path / "peer.crt").write_bytes(b"junk")
    with pytest.raises(DamagedError, match=r"peer\.crt"):
        Identity.load(tmp_path)
    (tmp_path / "peer.key").write_bytes(b"junk")
    with pytest.raises(DamagedError, match=r"peer\.key"):
        Identity.load(tmp_path)


def test_peer_ids_in_text() -> None:
    assert parse_peer_id(PEER.peer_id.hex()) == PEER.peer_id
    for text in ["", "0" * 39, "G" * 40, "0" * 42, "A" * 40, " " + "0" * 39]:
        with pytest.raises(InvalidInputError, match="peer id"):
            parse_peer_id(text)


def test_a_peers_key_issues_no_certificates() -> None:
    with pytest.raises(UntrustedError):
        make_peer_certificate(
            PEER.private_key, PEER.certificate, Ed25519PrivateKey.generate().public_key(), NOW
        )
