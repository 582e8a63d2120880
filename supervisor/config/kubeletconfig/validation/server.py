"""Rules of the kubelet's server: certificates, cipher suites, key exchanges.

Names and numbers are those of Go's crypto/tls.
"""

from __future__ import annotations

from collections.abc import Iterator

from supervisor.config.kubeletconfig.problems import Problem
from supervisor.config.kubeletconfig.suggestion import suggestion
from supervisor.config.kubeletconfig.typed.types import KubeletConfiguration

SECURE_SUITES = frozenset(
    [
        "TLS_AES_128_GCM_SHA256",
        "TLS_AES_256_GCM_SHA384",
        "TLS_CHACHA20_POLY1305_SHA256",
        "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA",
        "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA",
        "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA",
        "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA",
        "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
        "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
        "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
        "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
        "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
        "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
        "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305",
        "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305",
    ]
)
INSECURE_SUITES = frozenset(
    [
        "TLS_RSA_WITH_RC4_128_SHA",
        "TLS_RSA_WITH_3DES_EDE_CBC_SHA",
        "TLS_RSA_WITH_AES_128_CBC_SHA",
        "TLS_RSA_WITH_AES_256_CBC_SHA",
        "TLS_RSA_WITH_AES_128_CBC_SHA256",
        "TLS_RSA_WITH_AES_128_GCM_SHA256",
        "TLS_RSA_WITH_AES_256_GCM_SHA384",
        "TLS_ECDHE_ECDSA_WITH_RC4_128_SHA",
        "TLS_ECDHE_RSA_WITH_RC4_128_SHA",
        "TLS_ECDHE_RSA_WITH_3DES_EDE_CBC_SHA",
        "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256",
        "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256",
    ]
)
CURVES = {
    23: "CurveP256",
    24: "CurveP384",
    25: "CurveP521",
    29: "X25519",
    4587: "SecP256r1MLKEM768",
    4588: "X25519MLKEM768",
    4589: "SecP384r1MLKEM1024",
}


def rules(config: KubeletConfiguration) -> Iterator[Problem]:
    """Violations in the TLS fields."""
    for index, suite in enumerate(config.tls_cipher_suites or ()):
        if suite not in SECURE_SUITES | INSECURE_SUITES:
            hint = suggestion(suite, SECURE_SUITES)
            yield Problem(f"tlsCipherSuites[{index}]", f"cipher suite {suite[:60]} is not supported{hint}")
    for index, curve in enumerate(config.tls_curve_preferences or ()):
        if curve not in CURVES:
            known = ", ".join(f"{number} ({name})" for number, name in CURVES.items())
            yield Problem(f"tlsCurvePreferences[{index}]", f"must be one of {known}, not {curve}")
    cert, key = config.tls_cert_file, config.tls_private_key_file
    if bool(cert) != bool(key):
        given, missing = ("tlsCertFile", "tlsPrivateKeyFile") if cert else ("tlsPrivateKeyFile", "tlsCertFile")
        yield Problem(given, f"needs {missing} beside it")


def warnings(config: KubeletConfiguration) -> Iterator[Problem]:
    """Warnings of insecure cipher suites that Go still supports."""
    for index, suite in enumerate(config.tls_cipher_suites or ()):
        if suite in INSECURE_SUITES:
            message = f"Use of insecure cipher '{suite}' detected."
            yield Problem(f"tlsCipherSuites[{index}]", message, is_remark=True)
