"""Keys and certificates of a private control plane, valid for a day. Made in this process, so nothing waits for it."""

import base64
import datetime
import ipaddress
import json
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

SERVER_NAMES = (
    x509.IPAddress(ipaddress.ip_address("127.0.0.1")),
    x509.DNSName("localhost"),
    x509.DNSName("kubernetes.default.svc"),
)
Key = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey


class Authority:
    """A certificate authority in a directory; every key stays there."""

    def __init__(self, directory: Path, key: Key | None = None, name: x509.Name | None = None) -> None:
        self.directory = directory
        directory.mkdir(mode=0o700)
        self.path = directory / "ca.crt"
        self._key, self._name = key or new_key(), name or name_of("nodevisor-test-ca")
        constraints = x509.BasicConstraints(ca=True, path_length=None)
        builder = (
            unsigned(self._name, self._name, self._key, 1)
            .add_extension(constraints, critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False)
            .add_extension(_signs_certificates(), critical=True)
        )
        write(directory / "ca", self._key, builder.sign(self._key, hashes.SHA256()))

    def issue(self, name: str, user: str, *groups: str, days: int = 1) -> tuple[Path, Path]:
        """Certificate and key files NAME.crt and NAME.key, for client and server use. `days`: -1 for an expired one."""
        key = new_key()
        usages = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH])
        builder = (
            unsigned(name_of(user, *groups), self._name, key, days)
            .add_extension(x509.SubjectAlternativeName(SERVER_NAMES), critical=False)
            .add_extension(usages, critical=False)
            .add_extension(self._identifier(), critical=False)
        )
        return write(self.directory / name, key, builder.sign(self._key, hashes.SHA256()))

    def _identifier(self) -> x509.AuthorityKeyIdentifier:
        """Strict clients, as Python's from 3.13 on, ask for it."""
        return x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())

    def sign(self, name: str, subject: x509.Name, key: Key, *extensions: x509.ExtensionType) -> tuple[Path, Path]:
        """Certificate and key files NAME.crt and NAME.key of any subject, with these critical extensions alone."""
        builder = unsigned(subject, self._name, key, 1)
        for extension in extensions:
            builder = builder.add_extension(extension, critical=True)
        return write(self.directory / name, key, builder.sign(self._key, hashes.SHA256()))

    def signing_key(self, name: str) -> None:
        """NAME.key alone, in the form that the API server takes for tokens."""
        encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL
        content = new_key().private_bytes(encoding, form, serialization.NoEncryption())
        (self.directory / f"{name}.key").write_bytes(content)


def _signs_certificates() -> x509.KeyUsage:
    others = ("content_commitment", "data_encipherment", "key_encipherment", "key_agreement", "encipher_only")
    signs = {"digital_signature": True, "key_cert_sign": True, "crl_sign": True, "decipher_only": False}
    return x509.KeyUsage(**signs, **dict.fromkeys(others, False))


def new_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def name_of(user: str, *groups: str) -> x509.Name:
    """As Kubernetes reads a client's: the common name is the user, each organization a group."""
    organizations = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
    return x509.Name([*organizations, x509.NameAttribute(NameOID.COMMON_NAME, user)])


def unsigned(subject: x509.Name, issuer: x509.Name, key: Key, days: int) -> x509.CertificateBuilder:
    """Return a certificate for `key` that expires in `days`; a negative number gives an expired one."""
    end = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=days)
    begin = end - datetime.timedelta(days=1, minutes=1)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(end)
    )


def self_signed(path: Path, subject: x509.Name, key: Key) -> tuple[Path, Path]:
    """Write the files of a self-signed certificate."""
    return write(path, key, unsigned(subject, subject, key, 1).sign(key, hashes.SHA256()))


def write(path: Path, key: Key, certificate: x509.Certificate) -> tuple[Path, Path]:
    """PATH.crt and PATH.key."""
    pem, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    files = path.with_name(f"{path.name}.crt"), path.with_name(f"{path.name}.key")
    files[0].write_bytes(certificate.public_bytes(pem))
    files[1].touch(0o600)
    files[1].write_bytes(key.private_bytes(pem, form, serialization.NoEncryption()))
    return files


def kubeconfig(server: str, authority: Path, certificate: Path, key: Path) -> str:
    """A file that has everything in it. JSON is YAML, too."""

    def inline(path: Path) -> str:
        return base64.b64encode(path.read_bytes()).decode()

    cluster = {"server": server, "certificate-authority-data": inline(authority)}
    user = {"client-certificate-data": inline(certificate), "client-key-data": inline(key)}
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
            "clusters": [{"name": "test", "cluster": cluster}],
            "users": [{"name": "test", "user": user}],
        },
        indent=1,
    )
