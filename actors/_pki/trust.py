"""Makes contexts of TLS clients. They trust the same servers with any Python, and the ones that Go trusts.

Python 3.13 made `ssl.create_default_context` stricter (its `verify_flags`). It refuses certificates without an
Authority Key Identifier, which many private authorities issue. The kubelet takes them, since Go's crypto/x509 does.
"""

from __future__ import annotations

import ssl


def client_context(authority: str | None = None) -> ssl.SSLContext:
    """A client's context that trusts the certificates of `authority`, in PEM; None: those of the system.

    An intermediate certificate may be the authority without its root, as in Go. Raises ssl.SSLError and ValueError for
    an unusable authority.
    """
    context = ssl.create_default_context(cadata=authority)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return context
