"""A peer's request for a certificate, for a root that is kept elsewhere: PKCS #10 (RFC 2986)."""

from __future__ import annotations

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from overlay.certificates import PeerName, peer_id_of
from overlay.errors import DecodeError, InvalidInputError
from overlay.identity import MAX_PEM, Identity
from overlay.names import check_participant


def make_request(identity: Identity) -> bytes:
    """The request, in PEM, signed by the peer's key; nothing in it is secret."""
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, identity.participant)])
    builder = x509.CertificateSigningRequestBuilder().subject_name(name)
    return builder.sign(identity.private_key, None).public_bytes(Encoding.PEM)


def read_request(pem: bytes) -> tuple[PeerName, Ed25519PublicKey]:
    """The asker's name, and the key to be certified; the asker has shown that it holds the key.

    Raises:
        DecodeError: that is no request, or not signed by its own key; nothing else, whatever the
            bytes.
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
