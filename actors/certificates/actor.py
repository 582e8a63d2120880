"""The certificates actor: requests the node's client and serving certificates, and replaces them in time.

It runs only with --bootstrap-kubeconfig, rotateCertificates or serverTLSBootstrap. All state is on disk, in the
kubelet's layout. The clients of the other actors read their kubeconfig and its files again when they change, and open
new connections with a new certificate.
"""

from __future__ import annotations

import logging
import math
import os
import random
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from actors._base import Actor, Future, handles
from actors._base.messaging.tasks import first_of
from actors._events.recorder import Recorder
from actors._host.system import since_boot
from actors._kube.client import KubeClient, connect, connect_node
from actors._kube.connection import kubeconfig as kube
from actors._kube.connection.kubeconfig import Access, KubeconfigError
from actors._kube.connection.stream import Streams
from actors._kube.errors import ApiError, Unauthorized
from actors._metrics import kubelet as metrics
from actors._pki import pki
from actors._pki.pki import Certificate, Names, PkiError
from actors.certificates import kubeconfig, policy
from actors.certificates.policy import CLIENT, SERVER, Purpose
from actors.certificates.request import DISK_S, NamesChanged, NotSigned, Obtained, Source, obtain
from actors.certificates.store import Store, joined
from proto.common import rfc3339
from proto.node.certificates import SetNodeAddresses
from proto.node.node import Bootstrapped
from proto.wire.errors import AskTimeout

log = logging.getLogger(__name__)

LOOK_S = 300.0
"""Period of checks, since the clock, the addresses and the files may change."""


class Certificates(Actor):
    """State: each of the two certificates, the time of its replacement, and the request in progress."""

    name = "certificates"
    blocking_threads = 2

    async def rebuild(self) -> None:
        """Start empty; the loops read the state from disk."""
        self._events = Recorder(self.peer("events"))
        self._managed: dict[str, _ManagedCertificate] = {}
        self.server_names: Names | None = None
        """None while the Node has no address that suffices, as far as node has told."""
        self.streams = Streams(self.bus)

    def on_ready(self) -> None:
        """Start a loop for each certificate that the settings ask for."""
        settings = self.settings
        if settings.bootstrap_kubeconfig or settings.rotate_certificates:
            self._manage(CLIENT, _ClientCertificate(self, Store(settings.cert_dir, CLIENT.prefix)))
        if settings.server_tls_bootstrap:
            self._manage(SERVER, _ServingCertificate(self, SERVER, Store(settings.cert_dir, SERVER.prefix)))

    def _manage(self, purpose: Purpose, managed: _ManagedCertificate) -> None:
        self._managed[purpose.what] = managed
        self.spawn(managed.run(), purpose.what)

    @handles(SetNodeAddresses)
    def on_node_addresses(self, message: SetNodeAddresses) -> None:
        """From node: the serving certificate is for these."""
        alone = self.settings.dns_only_serving_certificate
        names = policy.server_names(self.settings.node_name, message.addresses, dns_suffices=alone)
        if names != self.server_names:
            self.server_names = names
            if SERVER.what in self._managed:
                self._managed[SERVER.what].names_changed()

    def say(self, kind: Any, reason: str, message: str) -> None:
        """Emit an event of this node."""
        self._events.node(kind, reason, message)

    def describe(self) -> dict[str, Any]:
        """Expiry, replacement time and request in progress of each certificate."""
        return {what: managed.describe() for what, managed in self._managed.items()}

    def measure(self) -> None:
        """Set the remaining life of each certificate."""
        for managed in self._managed.values():
            managed.measure()


class _ManagedCertificate:
    """Keeps one certificate valid."""

    def __init__(self, actor: Certificates, purpose: Purpose, store: Store) -> None:
        self._actor, self._purpose, self._store = actor, purpose, store
        self._client: KubeClient | None = None
        self._certificate: Certificate | None = None
        self._pem: bytes | None = None
        """Certificate and key in use, as last read; None before that."""
        self._chance = random.random()
        self._got: tuple[float, float] | None = None
        """(remaining seconds at the receipt of the present certificate, time of the receipt by `since_boot`)."""
        self._waits_for = ""
        self._waits_for_names = False
        self._changed: Future[None] = Future()
        self._problem = ""
        self._unreadable = b""
        """Certificate and key (PEM) that could not be used, once that is logged."""

    def names_changed(self) -> None:
        """Look at once whether the present certificate has them."""
        self._changed.set(None)

    def describe(self) -> dict[str, Any]:
        """State for consoles."""
        present = self._certificate
        return {
            "file": str(self._store.current),
            "expires_in_s": round(present.not_after - time.time()) if present else None,
            "replaced_in_s": round(self._due_in_s(present)) if present else None,
            "waits_for_request": self._waits_for,
            "waits_for_addresses": self._waits_for_names,
            "problem": self._problem,
        }

    def measure(self) -> None:
        """Set the metric of the remaining life."""
        ttl = metrics.CLIENT_TTL if self._purpose is CLIENT else metrics.SERVER_TTL
        ttl.set(self._certificate.not_after - time.time() if self._certificate else math.inf)

    async def run(self) -> None:
        """Loop forever: check, request a new certificate if it is due, wait."""
        failures = 0
        while True:
            self._changed = Future()
            try:
                wait_s = await self._check()
                failures, self._problem = 0, ""
            except NamesChanged as error:
                log.info("%s; creating a request with the present ones", error)
                continue
            except (ApiError, NotSigned, PkiError, KubeconfigError, OSError, AskTimeout) as error:
                failures += 1
                wait_s = policy.RETRY.delay_s(failures, random.random)
                (metrics.CLIENT_RENEW_ERRORS if self._purpose is CLIENT else metrics.SERVER_RENEW_ERRORS).inc()
                self._report_problem(error)
            finally:
                self._waits_for = ""
            pause = self._actor.sleep(wait_s)
            await first_of(pause, self._changed)
            pause.cancel()

    def _report_problem(self, error: Exception) -> None:
        text = f"cannot get the {self._purpose.what}: {error}"
        if self._certificate is not None and time.time() >= self._certificate.not_after:
            if " expired at " not in text:
                text += f"; the present one expired at {rfc3339.seconds(self._certificate.not_after)}"
            text += self._advice()
        if text != self._problem:
            log.warning("%s; trying again", text)
            self._actor.say("Warning", "CertificateRequestFailed", text)
        self._problem = text

    def _advice(self) -> str:
        """Advice for the operator when the present certificate has expired, appended to a message."""
        return ""

    async def _check(self) -> float:
        """Replace the certificate if it is due. Returns the seconds until the next check."""
        await self._reload()
        wanted = self._wanted_names()
        if wanted is not None and self._is_due(self._certificate, wanted):
            await self._replace(wanted)
        present = self._certificate
        due_s = LOOK_S if present is None else self._due_in_s(present)
        if wanted is None:
            self._note_wait_for_names(needed=present is None or due_s <= 0)
            return LOOK_S
        self._waits_for_names = False
        return max(0.0, min(LOOK_S, due_s))

    async def _reload(self) -> None:
        """Read the certificate in use again, if its file has changed."""
        pem = await self._actor.blocking(DISK_S, self._content)
        if pem != self._pem:
            self._certificate = await self._read(pem)
            self._pem, self._got = pem, None

    def _note_wait_for_names(self, *, needed: bool) -> None:
        if needed and not self._waits_for_names:
            log.info("the %s waits until the Node has an IP address", self._purpose.what)
        self._waits_for_names = needed

    async def _read(self, pem: bytes) -> Certificate | None:
        if not pem:
            return None
        try:
            return await self._actor.blocking(pki.DEADLINE_S, pki.read, pem)
        except PkiError as error:
            if pem != self._unreadable:
                log.warning("cannot use the present %s: %s; asking for another", self._purpose.what, error)
            self._unreadable = pem
            return None

    def _content(self) -> bytes:
        """Certificate and key in use (PEM); empty without any. Blocks."""
        return self._store.read()

    def _wanted_names(self) -> Names | None:
        """None while they are not known: then no certificate is requested."""
        return self._actor.server_names

    def _is_due(self, present: Certificate | None, wanted: Names) -> bool:
        return present is None or self._due_in_s(present) <= 0 or not policy.covers(present.names, wanted)

    def _due_in_s(self, present: Certificate) -> float:
        return policy.due_in_s(present.not_before, present.not_after, self._chance, time.time(), self._receipt())

    def _receipt(self) -> policy.Receipt | None:
        return policy.Receipt(self._got[0], since_boot() - self._got[1]) if self._got is not None else None

    async def _replace(self, wanted: Names) -> None:
        await self._store_new(await self._obtain(connect_node(self._actor, self._actor.settings), wanted, "csr-"))

    async def _obtain(self, client: KubeClient, wanted: Names, prefix: str) -> Obtained:
        source = Source(self._purpose, client, self._actor.streams, self._store, prefix)
        try:
            return await obtain(self._actor, source, wanted, self._waiting, self._changed)
        finally:
            client.close()

    async def _store_new(self, new: Obtained) -> None:
        self._pem = await self._actor.blocking(DISK_S, self._store.replace, new.certificate, new.key, time.time())
        if self._purpose is SERVER and self._certificate is not None:
            metrics.SERVER_ROTATION_SECONDS.observe(time.time() - self._certificate.not_before)
        self._certificate, self._chance = new.facts, random.random()
        self._got = new.facts.not_after - time.time(), since_boot()
        until = rfc3339.seconds(new.facts.not_after)
        log.info("a new %s is in %s, good until %s", self._purpose.what, self._store.current, until)

    def _waiting(self, name: str) -> None:
        self._waits_for = name
        log.info("the %s waits until request %s is approved and signed", self._purpose.what, name)


class _ServingCertificate(_ManagedCertificate):
    """The serving certificate. The configured one is the first, as in the kubelet, and is replaced when it is due."""

    def _content(self) -> bytes:
        settings = self._actor.settings
        paths = Path(settings.tls_cert_file), Path(settings.tls_private_key_file)
        if not (settings.tls_cert_file and settings.tls_private_key_file and all(path.exists() for path in paths)):
            return super()._content()
        return super()._content() or joined(*(path.read_bytes() for path in paths))


class _ClientCertificate(_ManagedCertificate):
    """The client certificate. Without a valid one the bootstrap kubeconfig is used; the kubeconfig has to name it."""

    def __init__(self, actor: Certificates, store: Store) -> None:
        super().__init__(actor, CLIENT, store)
        self._embedded = b""
        """Certificate and key that are in the kubeconfig itself (PEM); looked at with rotation only."""
        self._unwritable = False
        self._broken = self._unusable = ""
        """Why the kubeconfig, or its own certificate, could not be read, once that is logged."""
        self._bootstraps = bool(actor.settings.bootstrap_kubeconfig)
        """As of the last replacement; see `_can_bootstrap`."""

    def _wanted_names(self) -> Names | None:
        return policy.client_names(self._actor.settings.node_name)

    async def _check(self) -> float:
        wait_s = await super()._check()
        if self._certificate is not None:
            await self._actor.blocking(DISK_S, self._write_kubeconfig)
        return wait_s

    async def _reload(self) -> None:
        await super()._reload()
        if self._actor.settings.rotate_certificates:
            await self._store_embedded()

    async def _store_embedded(self) -> None:
        """Store an embedded certificate unless a good one is there. It is replaced at once, as by the kubelet.

        kubeadm init waits for the file. The certificate in its kubeconfig is not to stay in use.
        """
        known = self._embedded
        stored, embedded = await self._actor.blocking(DISK_S, self._stored_and_embedded)
        if not embedded or embedded == stored or (embedded == known and stored and self._valid()):
            self._embedded = embedded
            return
        found = await self._read(embedded)
        self._embedded = embedded  # not before: after PkiUnavailable it is read again
        present = self._certificate
        if found is None or (stored and present and not policy.replaces(found, present, time.time())):
            return
        self._pem = await self._actor.blocking(DISK_S, self._store.keep, self._embedded, time.time())
        self._certificate, self._got = found, None
        log.info("the certificate in %s is stored in %s", self._actor.settings.kubeconfig, self._store.current)

    def _stored_and_embedded(self) -> tuple[bytes, bytes]:
        access = self._access()
        if access is None or not (access.user.client_certificate_data and access.user.client_key_data):
            return self._store.read(), b""
        return self._store.read(), self._certificate_and_key(access)

    def _valid(self) -> bool:
        present = self._certificate
        return present is not None and present.not_before <= time.time() < present.not_after

    def _advice(self) -> str:
        settings = self._actor.settings
        if self._bootstraps:
            return f"; check this machine's clock and the token in {settings.bootstrap_kubeconfig}"
        return (
            f"; check this machine's clock; if it is right, get a new certificate for {settings.kubeconfig}, or start "
            "with --bootstrap-kubeconfig and a token"
        )

    def _content(self) -> bytes:
        """Our file, or the kubeconfig's own certificate. Without rotation the kubeconfig takes precedence."""
        if self._actor.settings.rotate_certificates:
            return super()._content() or self._of_kubeconfig()
        return self._of_kubeconfig() or super()._content()

    def _of_kubeconfig(self) -> bytes:
        access = self._access()
        return self._certificate_and_key(access) if access is not None else b""

    def _certificate_and_key(self, access: Access) -> bytes:
        user = access.user
        try:
            certificate = access.data(user.client_certificate_data, user.client_certificate, "client-certificate")
            key = access.data(user.client_key_data, user.client_key, "client-key")
        except KubeconfigError as error:  # as after the loss of --cert-dir
            if str(error) != self._unusable:
                log.warning("%s; going on without it", error)
            self._unusable = str(error)
            return b""
        self._unusable = ""
        if certificate == key:
            return certificate  # one file has both, as ours: its content is that of the store
        return joined(certificate, key) if certificate else b""

    def _access(self) -> Access | None:
        path = self._actor.settings.kubeconfig
        try:
            access = kube.load(path) if os.path.exists(path) else None
        except KubeconfigError as error:
            if str(error) != self._broken:
                log.warning("%s; bootstrapping", error)
            self._broken = str(error)
            return None
        self._broken = ""
        return access

    def _is_due(self, present: Certificate | None, wanted: Names) -> bool:
        if not self._actor.settings.rotate_certificates:
            return present is None or self._due_in_s(present) <= 0
        return super()._is_due(present, wanted)

    def _due_in_s(self, present: Certificate) -> float:
        if not self._actor.settings.rotate_certificates:
            return policy.end_in_s(present.not_before, present.not_after, time.time(), self._receipt())
        return 0.0 if self._pem and self._pem == self._embedded else super()._due_in_s(present)

    async def _replace(self, wanted: Names) -> None:
        """With the present certificate while it is valid, else with the bootstrap kubeconfig."""
        settings = self._actor.settings
        self._bootstraps = await self._actor.blocking(DISK_S, self._can_bootstrap)
        if self._valid() or not self._bootstraps or await self._is_kubeconfig_good():
            await super()._replace(wanted)
            return
        cluster = await self._actor.blocking(DISK_S, self._bootstrap_access)
        try:
            follow = settings.follow_api_authority
            client = connect(self._actor, settings.bootstrap_kubeconfig, follow_authority=follow)
            new = await self._obtain(client, wanted, "node-csr-")
        except Unauthorized as refused:
            if self._certificate is None:
                raise
            # The token has expired. The present certificate may still be valid, if only this machine's clock is wrong.
            log.warning("%s is refused (%s): trying the present certificate", settings.bootstrap_kubeconfig, refused)
            await super()._replace(wanted)
            return
        if cluster is not None:
            # Before the certificate is stored. After a kill in between, the next incarnation bootstraps again.
            await self._actor.blocking(DISK_S, self._switch_cluster, cluster)
        await self._store_new(new)
        self._actor.peer("node").tell(Bootstrapped())

    async def _is_kubeconfig_good(self) -> bool:
        """By the end of its certificate alone, as in the kubelet: this machine's clock may be behind.

        The one in the store may be older, and of a cluster that the machine has left.
        """
        pem = await self._actor.blocking(DISK_S, self._of_kubeconfig)
        found = await self._read(pem)
        return found is not None and time.time() < found.not_after

    def _bootstrap_access(self) -> Access | None:
        """Read before the request, since the file may be deleted as soon as the node has its certificate."""
        with suppress(KubeconfigError):  # the request fails with it
            return kube.load(self._actor.settings.bootstrap_kubeconfig)
        return None

    def _switch_cluster(self, bootstrap: Access) -> None:
        """Have the kubeconfig name the bootstrap kubeconfig's cluster.

        An old kubeconfig may name a cluster that the machine has left. That one does not know the new certificate.
        """
        path, access = self._actor.settings.kubeconfig, self._access()
        if access is None or access.cluster == bootstrap.cluster:
            return  # see _write_kubeconfig
        server = bootstrap.cluster.server
        try:
            self._write(kubeconfig.bootstrapped(bootstrap, str(self._store.current)))
        except OSError as error:  # it may be mounted read-only, and may mean the same cluster by another name
            was = access.cluster.server
            log.warning("cannot change the kubeconfig %s to %s: %s; it keeps %s", path, server, error.strerror, was)
            return
        log.info("the kubeconfig %s names the API server %s of the bootstrap kubeconfig", path, server)

    def _can_bootstrap(self) -> bool:
        """False without the bootstrap kubeconfig, which kubeadm deletes after joining.

        True when both files are missing: then the error names the bootstrap kubeconfig.
        """
        settings = self._actor.settings
        path = settings.bootstrap_kubeconfig
        return bool(path) and (os.path.exists(path) or not os.path.exists(settings.kubeconfig))

    def _write_kubeconfig(self) -> None:
        """Point the kubeconfig at our file, if that is in use. An operator's kubeconfig keeps everything else."""
        path, ours = self._actor.settings.kubeconfig, str(self._store.current)
        if self._pem != self._store.read():
            return
        access = self._access()
        if access is None:
            bootstrap = kube.load(self._actor.settings.bootstrap_kubeconfig or path)
            self._write(kubeconfig.bootstrapped(bootstrap, ours))
        elif (access.user.client_certificate, access.user.client_key) == (ours, ours):
            return
        elif self._got is None and self._actor.settings.rotate_certificates and self._has_others(access):
            return  # our certificate may be another cluster's: the clients fall back on what the operator gave
        else:
            try:
                self._write(kubeconfig.pointed_at(path, ours))
            except OSError as error:  # it may be mounted read-only, or alone
                self._cannot_write(error)
                return
        log.info("the kubeconfig %s names the certificate %s", path, ours)

    def _write(self, config: dict[str, Any]) -> None:
        """Write to the target of a link, as the kubelet: it may outlive /etc, as in an image-based system."""
        kubeconfig.write(os.path.realpath(self._actor.settings.kubeconfig), config)

    def _has_others(self, access: Access) -> bool:
        user, ours = access.user, self._store.current.parent
        is_others = bool(user.client_certificate) and Path(user.client_certificate).parent != ours
        return is_others or bool(user.token or user.token_file or user.exec or user.auth_provider or user.username)

    def _cannot_write(self, error: OSError) -> None:
        """Log it with rotation, else raise it.

        With rotation our file counts before the kubeconfig for the clients of this agent; see _kube's credentials.
        """
        if not self._actor.settings.rotate_certificates:
            raise error
        if not self._unwritable:
            log.warning(
                "cannot change the kubeconfig %s: %s; the agent uses %s, others may find an old certificate in it",
                self._actor.settings.kubeconfig, error.strerror, self._store.current,
            )  # fmt: skip
        self._unwritable = True


ACTOR = Certificates
