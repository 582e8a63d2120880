"""Reads the CA certificates that verify the API server, and reads their file again when it has changed.

Each call of the API server looks at the file, as for client certificates. New connections trust the new certificates.
Connections in use go on, and idle ones are closed. Source: client-go's transport/ca_rotation.go, which looks every five
minutes; the gate is ClientsAllowCARotation.
"""

from __future__ import annotations

import logging
import ssl

from actors._host.files.stamp import Stamp, stamp
from actors._kube.connection.kubeconfig import Access, KubeconfigError
from actors._pki.trust import client_context

log = logging.getLogger(__name__)


class CertificateAuthority:
    """The CA certificates of one session. Not thread-safe: the caller holds a lock."""

    def __init__(self, *, follow: bool) -> None:
        """`follow`: read a changed file again. Without it, only another file in the kubeconfig is read."""
        self._follow = follow
        self._source: tuple[str, str] | None = None
        """Data and path of the certificates, as the kubeconfig has them. None until they were usable."""
        self._stamp: Stamp | None = None
        self._pem = b""
        self._problem = ""
        """Why the changed file cannot be used, as it was logged last."""

    def certificates(self, access: Access) -> bytes:
        """The CA certificates of `access` in PEM; empty for those of the system.

        While a changed file is missing, empty or broken, the certificates that were read before count. Raises
        KubeconfigError when none were.
        """
        cluster = access.cluster
        if not cluster.server.startswith("https://"):
            return b""
        source = (cluster.certificate_authority_data, cluster.certificate_authority)
        known = source == self._source
        # Before the file is read: if it changes meanwhile, the next call reads it again.
        found = None if cluster.certificate_authority_data else stamp(cluster.certificate_authority)
        if known and (not self._follow or found in (None, self._stamp)):
            return self._pem
        try:
            pem = _read(access)
            if known and not pem:
                raise KubeconfigError(f"cannot use certificate-authority of {access.path}: {source[1]} is empty")
        except KubeconfigError as error:
            if not known:
                raise
            if str(error) != self._problem:  # the file is read again with each call, until it can be used
                log.warning("%s; using the certificates that were read before; correct the file", error)
            self._problem = str(error)
            return self._pem
        if known and pem != self._pem:
            log.info("new connections to %s trust the changed certificates of %s", cluster.server, source[1])
        self._source, self._stamp, self._pem, self._problem = source, found, pem, ""
        return pem


def _read(access: Access) -> bytes:
    """Read and parse the certificates. Raises KubeconfigError, also for a file that is not PEM certificates."""
    cluster = access.cluster
    pem = access.data(cluster.certificate_authority_data, cluster.certificate_authority, "certificate-authority")
    try:
        if pem:
            client_context(pem.decode())
    except (ssl.SSLError, ValueError) as error:
        file = "" if cluster.certificate_authority_data else f"{cluster.certificate_authority}: "
        raise KubeconfigError(f"cannot use certificate-authority of {access.path}: {file}{error}") from error
    return pem
