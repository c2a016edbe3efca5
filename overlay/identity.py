"""Identities on disk and in memory: a participant's root, and one of its peers."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import NameOID

from medusa.overlay.certificates import (
    MAX_CERTIFICATE,
    PeerName,
    check_certificate,
    check_issued,
    check_root,
    load_certificate_pem,
    make_peer_certificate,
    make_root_certificate,
    peer_id_of,
    peer_of,
    public_key_of,
)
from medusa.overlay.errors import DecodeError, InvalidInputError, UntrustedError
from medusa.overlay.files import mended_by, read_public, read_secret, write_atomically, write_secret
from medusa.overlay.names import NO_PEER, PEER_ID_BYTES, PeerId, check_participant

__all__ = ["Identity", "PeerName", "Root", "check_certificate", "parse_peer_id", "peer_id_of"]

ROOT_KEY: Final = "root.key"
ROOT_CERTIFICATE: Final = "root.crt"
PEER_KEY: Final = "peer.key"
PEER_CERTIFICATE: Final = "peer.crt"

REQUEST_MARK: Final = b"CERTIFICATE REQUEST-----"
"""A mark in a file that the holder of the root is to sign."""

MAX_PEM: Final = 2 * MAX_CERTIFICATE
"""Bytes of a certificate file: base64 adds a third."""


@dataclass(frozen=True)
class Root:
    """A participant's root: the key that signs its peers and the members it admits."""

    participant: str
    private_key: Ed25519PrivateKey
    certificate: x509.Certificate

    @classmethod
    def create(cls, participant: str, now: float) -> Self:
        """A new participant. now: seconds since the epoch.

        Raises:
            InvalidInputError: that is no participant's name.
        """
        key = Ed25519PrivateKey.generate()
        certificate = make_root_certificate(key, check_participant(participant), now)
        return cls(participant, key, certificate)

    def save(self, folder: Path) -> None:
        """Write root.key (0600) and root.crt."""
        write_secret(folder / ROOT_KEY, _key_pem(self.private_key))
        write_atomically(folder / ROOT_CERTIFICATE, certificate_pem(self.certificate))

    @classmethod
    def load(cls, folder: Path) -> Self:
        """
        Raises:
            NotFoundError, NotAuthorisedError: a file is missing, or open to others.
            DamagedError: a file is malformed, or key and certificate do not belong together.
        """
        key = _read_key(folder / ROOT_KEY)
        with _kept(folder / ROOT_CERTIFICATE) as path:
            certificate = read_certificate(path)
            participant = check_root(certificate)
            _check_pair(key, certificate)
        return cls(participant, key, certificate)


@dataclass(frozen=True)
class Identity:
    """One peer's identity: its key, and its certificate from its participant's root."""

    participant: str
    peer_id: PeerId
    private_key: Ed25519PrivateKey
    certificate: x509.Certificate
    root_certificate: x509.Certificate

    @property
    def name(self) -> PeerName:
        return PeerName(self.participant, self.peer_id)

    @property
    def expires(self) -> float:
        """When the certificate ends, seconds since the epoch."""
        return self.certificate.not_valid_after_utc.timestamp()

    def renewed(self, certificate: x509.Certificate) -> Self:
        """The same peer with that certificate.

        Raises:
            UntrustedError: our root did not sign it, or it is of another key.
        """
        check_issued(certificate, self.root_certificate)
        _check_pair(self.private_key, certificate)
        return dataclasses.replace(self, certificate=certificate)

    @classmethod
    def issue(cls, root: Root, now: float, key: Ed25519PrivateKey | None = None) -> Self:
        """A new peer of that participant, or with `key` an existing peer with a new certificate."""
        key = key or Ed25519PrivateKey.generate()
        public = key.public_key()
        certificate = make_peer_certificate(root.private_key, root.certificate, public, now)
        return cls(root.participant, peer_id_of(public), key, certificate, root.certificate)

    def save(self, folder: Path) -> None:
        """Write peer.key (0600), peer.crt and root.crt."""
        write_secret(folder / PEER_KEY, _key_pem(self.private_key))
        write_atomically(folder / PEER_CERTIFICATE, certificate_pem(self.certificate))
        write_atomically(folder / ROOT_CERTIFICATE, certificate_pem(self.root_certificate))

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Load the identity in that folder. Its dates are not checked.

        Raises:
            NotFoundError, NotAuthorisedError: a file is missing, or open to others.
            DamagedError: a file is malformed, or key, certificate and root do not belong together.
        """
        key = _read_key(folder / PEER_KEY)
        with _kept(folder / ROOT_CERTIFICATE) as path:
            root = read_certificate(path)
            check_root(root)
        with _kept(folder / PEER_CERTIFICATE) as path:
            certificate = read_certificate(path)
            name = check_issued(certificate, root)
            _check_pair(key, certificate)
        return cls(name.participant, name.peer_id, key, certificate, root)


def parse_peer_id(text: str) -> PeerId:
    """Parse a peer id.

    Raises:
        InvalidInputError: it is not 40 hexadecimal digits.
    """
    if len(text) != 2 * PEER_ID_BYTES or not set(text) <= set("0123456789abcdef"):
        raise InvalidInputError(
            f"peer id {text[:80]!a}: must be {2 * PEER_ID_BYTES} lower-case hexadecimal digits"
        )
    return PeerId(bytes.fromhex(text))


def parse_optional_peer_id(text: str) -> PeerId:
    """As `parse_peer_id`; NO_PEER for an empty text."""
    return parse_peer_id(text) if text else NO_PEER


def certificate_pem(certificate: x509.Certificate) -> bytes:
    """The certificate in PEM."""
    return certificate.public_bytes(Encoding.PEM)


def read_certificate(path: Path) -> x509.Certificate:
    """
    Raises:
        NotFoundError, InvalidInputError: no such file, or no certificate in it.
    """
    try:
        return load_certificate_pem(read_public(path, MAX_PEM))
    except DecodeError as error:
        if REQUEST_MARK in read_public(path, MAX_PEM):
            raise DecodeError(
                f"{path}: a request for a certificate; first, where the root's key is: "
                f"medusa-peer sign {path}"
            ) from None
        raise DecodeError(f"{path}: {error}") from None


def read_root_certificate(path: Path) -> x509.Certificate:
    """Read the root certificate file of another participant.

    Raises:
        NotFoundError: there is no such file.
        InvalidInputError: it has something else; the message names it.
    """
    mend = "a root's certificate is root.crt of the home that `medusa-peer init` made"
    try:
        certificate = read_certificate(path)
    except DecodeError:
        if b"PRIVATE KEY-----" in read_public(path, MAX_PEM):
            raise InvalidInputError(
                f"{path}: a private key, which nobody else should have: {mend}"
            ) from None
        raise InvalidInputError(f"{path}: is no certificate: {mend}") from None
    try:
        check_root(certificate)
    except UntrustedError as error:
        owner = peer_of(certificate)
        what = f"the certificate of a peer of {owner}, not of its root" if owner else str(error)
        raise InvalidInputError(f"{path}: {what}: {mend}") from None
    return certificate


def _key_pem(key: Ed25519PrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _read_key(path: Path) -> Ed25519PrivateKey:
    with _kept(path):
        return parse_key(read_secret(path))


def parse_key(pem: bytes) -> Ed25519PrivateKey:
    """The private key in the content of a key file.

    Raises:
        InvalidInputError: it holds none of ours.
    """
    try:
        key = load_pem_private_key(pem, None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise DecodeError("it holds no private key in PEM") from None
    if not isinstance(key, Ed25519PrivateKey):
        raise InvalidInputError("it holds no Ed25519 key")
    return key


@contextmanager
def _kept(path: Path) -> Iterator[Path]:
    """Turn the block's errors about a key or certificate file of a home into `DamagedError`."""
    with mended_by(path, "restore it from a copy, or make another peer: medusa-peer init"):
        yield path


def _check_pair(key: Ed25519PrivateKey, certificate: x509.Certificate) -> None:
    if public_key_of(certificate).public_bytes_raw() != key.public_key().public_bytes_raw():
        raise UntrustedError("it certifies another key than the one beside it")


def make_request(identity: Identity) -> bytes:
    """A peer's request for a certificate, in PEM, for a root that is kept elsewhere (PKCS #10, RFC
    2986). The peer's key signs it; nothing in it is secret."""
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, identity.participant)])
    builder = x509.CertificateSigningRequestBuilder().subject_name(name)
    return builder.sign(identity.private_key, None).public_bytes(Encoding.PEM)


def read_request(pem: bytes) -> tuple[PeerName, Ed25519PublicKey]:
    """The asker's name, and the key to be certified. The signature proves that the asker has the
    key.

    Raises:
        DecodeError: no request, or not signed by its own key. No bytes raise another error.
    """
    if len(pem) > MAX_PEM:
        raise DecodeError(f"certificate request: {len(pem)} bytes, at most {MAX_PEM} are accepted")
    try:
        request = x509.load_pem_x509_csr(pem)
        key = request.public_key()
        names = request.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
        is_signed = request.is_signature_valid
    except (ValueError, TypeError, UnsupportedAlgorithm, x509.InvalidVersion):
        raise DecodeError("certificate request: not well formed; copy it whole") from None
    if not isinstance(key, Ed25519PublicKey) or not is_signed:
        raise DecodeError("certificate request: not signed by the Ed25519 key in it")
    if len(names) != 1 or not isinstance(names[0].value, str):
        raise DecodeError("certificate request: must name exactly one participant")
    try:
        return PeerName(check_participant(names[0].value), peer_id_of(key)), key
    except InvalidInputError as error:
        raise DecodeError(f"certificate request: {error}") from None
