"""Makes contexts of TLS clients. They trust the same servers with any Python, and the ones that Go trusts.

Python 3.13 made `ssl.create_default_context` stricter (its `verify_flags`). It refuses certificates without an
Authority Key Identifier, which many private authorities issue. The kubelet takes them, since Go's crypto/x509 does.
"""

from __future__ import annotations

import ssl


def client_context(authority: str | None = None) -> ssl.SSLContext:
    """A client's context that trusts the certificates of `authority`, in PEM; None: those of the system.

    As in Go, an intermediate certificate may be the authority without its root, and a server's names are those of its
    Subject Alternative Name alone. Raises ssl.SSLError and ValueError for an unusable authority.
    """
    context = ssl.create_default_context(cadata=authority)
    context.hostname_checks_common_name = False
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return context
