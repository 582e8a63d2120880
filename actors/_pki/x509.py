"""The child process of `pki`: a request on stdin, the answer on stdout. No actor imports this module."""

from __future__ import annotations

import hashlib
import ipaddress
import re
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TypeAlias, cast

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
from cryptography.hazmat.primitives.asymmetric.types import CertificateIssuerPrivateKeyTypes
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from actors._pki.pki import (
    Certificate,
    MakeKey,
    MakeRequest,
    Names,
    Pem,
    PkiError,
    Problem,
    ProvenKey,
    Read,
    SelfSign,
    Signing,
)
from proto.wire.message import Record

PrivateKey: TypeAlias = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey

SELF_SIGNED_FOR = timedelta(days=365)
PRIVATE_KEY = re.compile(rb"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?-----END [A-Z ]*PRIVATE KEY-----", re.DOTALL)


KEYS: dict[str, Callable[[], PrivateKey]] = {
    "RSA3072": lambda: rsa.generate_private_key(65537, 3072),
    "RSA4096": lambda: rsa.generate_private_key(65537, 4096),
    "ECDSAP256": lambda: ec.generate_private_key(ec.SECP256R1()),
    "ECDSAP384": lambda: ec.generate_private_key(ec.SECP384R1()),
    "ECDSAP521": lambda: ec.generate_private_key(ec.SECP521R1()),
    "ED25519": ed25519.Ed25519PrivateKey.generate,
}
"""Key types of PodCertificateProjection."""


def main(_: list[str]) -> int:
    """Answer one question."""
    question = msgspec.json.decode(sys.stdin.buffer.read(), type=MakeRequest | Read | SelfSign | MakeKey)
    sys.stdout.buffer.write(msgspec.json.encode(answer_to(question)))
    return 0


def answer_to(question: MakeRequest | Read | SelfSign | MakeKey) -> Record:
    """The answer, or a Problem."""
    try:
        match question:
            case MakeRequest():
                return make_request(question.names, question.key)
            case Read():
                return read(question.pem.encode())
            case SelfSign():
                return self_signed(question.names)
            case MakeKey():
                return proven_key(question.kind, question.text)
    except PkiError as error:
        return Problem(problem=str(error))


def make_request(names: Names, key_pem: str) -> Signing:
    """See pki.request."""
    key = _key(key_pem.encode()) if key_pem else ec.generate_private_key(ec.SECP256R1())
    builder = x509.CertificateSigningRequestBuilder().subject_name(_subject(names))
    if alternatives := _alternatives(names):
        builder = builder.add_extension(alternatives, critical=False)
    made = builder.sign(key, hashes.SHA256())
    public = key.public_key().public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    return Signing(
        key=_pem_of(key),
        request=made.public_bytes(serialization.Encoding.PEM).decode(),
        public_key=hashlib.sha256(public).hexdigest(),
    )


def read(pem: bytes) -> Certificate:
    """See pki.read."""
    try:
        certificate = x509.load_pem_x509_certificate(pem)
    except ValueError as error:
        raise PkiError(f"there is no certificate in it: {error}") from error
    if certificate.public_key() != _key(pem).public_key():
        raise PkiError("its key is not the certificate's")
    return Certificate(
        names=_names(certificate),
        not_before=certificate.not_valid_before_utc.timestamp(),
        not_after=certificate.not_valid_after_utc.timestamp(),
    )


def self_signed(names: Names) -> Pem:
    """See pki.self_signed."""
    key = ec.generate_private_key(ec.SECP256R1())
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(_subject(names))
        .issuer_name(_subject(names))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + SELF_SIGNED_FOR)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(_signs_itself(), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(identifier, critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier), critical=False)
    )
    if alternatives := _alternatives(names):
        builder = builder.add_extension(alternatives, critical=False)
    made = builder.sign(key, hashes.SHA256())
    return Pem(certificate=made.public_bytes(serialization.Encoding.PEM).decode(), key=_pem_of(key))


def proven_key(kind: str, text: str) -> ProvenKey:
    """See pki.proven_key. The signatures are those of PodCertificateRequest.spec.proofOfPossession (KEP-4317)."""
    if kind not in KEYS:
        raise PkiError(f'unknown key type "{kind}"')
    key, data = KEYS[kind](), text.encode()
    match key:
        case rsa.RSAPrivateKey():
            pss = padding.PSS(padding.MGF1(hashes.SHA256()), padding.PSS.MAX_LENGTH)
            proof = key.sign(data, pss, hashes.SHA256())
        case ec.EllipticCurvePrivateKey():
            proof = key.sign(data, ec.ECDSA(hashes.SHA256()))
        case ed25519.Ed25519PrivateKey():
            proof = key.sign(data)
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    public = key.public_key().public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    return ProvenKey(key=pem.decode(), public_key=public, proof=proof)


def _signs_itself() -> x509.KeyUsage:
    """The key usage of a server's certificate that is its own authority. Strict clients ask for it (RFC 5280).

    An EC key enciphers no other key (RFC 8813).
    """
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=True,
        key_encipherment=False,
        content_commitment=False,
        data_encipherment=False,
        key_agreement=False,
        crl_sign=False,
        encipher_only=False,
        decipher_only=False,
    )


def _key(pem: bytes) -> CertificateIssuerPrivateKeyTypes:
    found = PRIVATE_KEY.search(pem)
    try:
        key = serialization.load_pem_private_key(found.group() if found else pem, None)
    except (ValueError, TypeError) as error:
        raise PkiError(f"its key cannot be used: {error}") from error
    return cast(CertificateIssuerPrivateKeyTypes, key)  # other types cannot sign, and fail at that


def _pem_of(key: CertificateIssuerPrivateKeyTypes) -> str:
    """The key as client-go writes it: EC PRIVATE KEY."""
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    ).decode()


def _subject(names: Names) -> x509.Name:
    parts = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, one) for one in names.organizations]
    # Unchecked: a node's name may have 253 characters. RFC 5280 allows 64 here, and Go does not look.
    return x509.Name([*parts, x509.NameAttribute(NameOID.COMMON_NAME, names.common_name, _validate=False)])


def _alternatives(names: Names) -> x509.SubjectAlternativeName | None:
    dns = [x509.DNSName(one) for one in names.dns_names]
    found = [*dns, *(x509.IPAddress(ipaddress.ip_address(one)) for one in names.addresses)]
    return x509.SubjectAlternativeName(found) if found else None


def _names(certificate: x509.Certificate) -> Names:
    subject = certificate.subject
    try:
        alternatives = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        alternatives = x509.SubjectAlternativeName([])
    return Names(
        common_name=next((str(one.value) for one in subject.get_attributes_for_oid(NameOID.COMMON_NAME)), ""),
        organizations=tuple(str(one.value) for one in subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)),
        dns_names=tuple(alternatives.get_values_for_type(x509.DNSName)),
        addresses=tuple(str(one) for one in alternatives.get_values_for_type(x509.IPAddress)),
    )
