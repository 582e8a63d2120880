"""The certificates that the API server is verified by, as the file that the kubeconfig names has them now.

Each call looks whether the file has changed, as for client certificates. New connections trust the new certificates.
Connections in use go on, and idle ones are closed. Source: client-go's transport/ca_rotation.go, which looks each five
minutes; the gate is ClientsAllowCARotation.
"""

from __future__ import annotations

import logging
import ssl

from actors._host.files.stamp import Stamp, stamp
from actors._kube.connection.kubeconfig import Access, KubeconfigError
from actors._pki.trust import client_context

log = logging.getLogger(__name__)


class Authority:
    """The certificates of one session. Its caller lets one thread in at a time."""

    def __init__(self, *, follow: bool) -> None:
        """`follow`: read a changed file again; without it, only a file that another one replaces in the kubeconfig."""
        self._follow = follow
        self._source: tuple[str, str] | None = None
        """Data and path of the certificates, as the kubeconfig has them. None until they were usable."""
        self._stamp: Stamp | None = None
        self._pem = b""
        self._problem = ""
        """Why the changed file cannot be used, once that is logged."""

    def of(self, access: Access) -> bytes:
        """The certificates in PEM; empty for those of the system.

        A changed file that is missing, empty or broken leaves the ones that were read before. Raises KubeconfigError
        without such ones.
        """
        cluster = access.cluster
        if not cluster.server.startswith("https://"):
            return b""
        source = (cluster.certificate_authority_data, cluster.certificate_authority)
        known = source == self._source
        # Taken before reading: a file that changes meanwhile is read again with the next call.
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
                log.warning("%s; using the certificates that were read before", error)
            self._problem = str(error)
            return self._pem
        if known and pem != self._pem:
            log.info("new connections to %s trust the changed certificates of %s", cluster.server, source[1])
        self._source, self._stamp, self._pem, self._problem = source, found, pem, ""
        return pem


def _read(access: Access) -> bytes:
    """Raises KubeconfigError, also for what is no certificate."""
    cluster = access.cluster
    pem = access.data(cluster.certificate_authority_data, cluster.certificate_authority, "certificate-authority")
    try:
        if pem:
            client_context(pem.decode())
    except (ssl.SSLError, ValueError) as error:
        file = "" if cluster.certificate_authority_data else f"{cluster.certificate_authority}: "
        raise KubeconfigError(f"cannot use certificate-authority of {access.path}: {file}{error}") from error
    return pem
