"""Requests certificates for pods by PodCertificateRequests, watches these, and keeps the certificates that are issued.

The private key is made by a helper process of this actor, and leaves the actor only in the answer to volume. One watch
shows all PodCertificateRequests of this node. It begins with the first request.
"""

from __future__ import annotations

import logging
import random
import time
from collections import Counter
from collections.abc import Callable, Container
from typing import Any

import msgspec

from actors._base import Actor, Future, Task, first_of
from actors._events.recorder import Recorder
from actors._kube import shapes
from actors._kube.client import KubeClient
from actors._kube.errors import ApiError
from actors._kube.reflector import Position
from actors._metrics.kubelet import POD_CERTIFICATES
from actors._pki import pki
from actors.objects import certificates
from actors.objects.api.resources import collection_path, object_path, ref_of
from actors.objects.api.retry_forbidden import retry_forbidden
from actors.objects.api.watching import Follow, Followed
from actors.objects.certificates import Certificate, Pending
from proto.common.backoff import Backoff
from proto.pods.objects import GetPodCertificate, ObjectRef, PodCertificate
from proto.v1 import ObjectReference
from proto.wire.errors import AskTimeout, Refused

log = logging.getLogger(__name__)

KIND = "PodCertificateRequest"
CALL_S = 6.0
"""Deadline of a call of the API server."""
WAIT_S = 4.0
"""Longest wait of `get` for the signer. After it, volume asks again."""
LOOK_AGAIN_S = 30.0
"""Time until volume asks again while a refresh is under way or has failed."""
CREATE_AGAIN = Backoff(1.0, cap_s=300.0)
"""From a failed creation to the next. Each one costs a new key, which takes a second of CPU time for RSA4096."""


class _Record:
    """A certificate, and the creation of its next PodCertificateRequest."""

    def __init__(self) -> None:
        self.certificate = Certificate()
        self.creation: Task[None] | None = None
        self.error = ""
        """Reason why the last creation failed."""
        self.failures = 0
        """Failed creations since the last success."""
        self.create_at = 0.0
        """Monotonic time before which no request is created."""
        self.changed: Future[None] = Future()
        """Completed with the next change."""
        self.reported: set[str] = set()
        """Reasons of events about the certificate in use."""

    def notify(self) -> None:
        """Wake the calls of `get` that wait for a change."""
        self.changed, past = Future(), self.changed
        past.set(None)


class PodCertificates:
    """Issues and keeps certificates. Runs in the actor's mailbox thread."""

    def __init__(
        self, actor: Actor, client: KubeClient, follow: Follow, node: Callable[[], dict[str, Any] | None]
    ) -> None:
        """`node` returns this node's Node, once it has been read."""
        self._actor, self._client, self._follow, self._node = actor, client, follow, node
        self._records: dict[GetPodCertificate, _Record] = {}
        self._requests: Followed | None = None

    def __len__(self) -> int:
        return len(self._records)

    async def get(self, request: GetPodCertificate) -> PodCertificate:
        """The certificate in use, also while its refresh is due. Waits for the first one, WAIT_S at most.

        Raises Refused: NotIssued while there is none, CertificateFailed when it cannot be requested or is refused.
        """
        record = self._records.setdefault(request, _Record())
        self._look(request, record)
        self._create_if_due(request, record)
        if not record.certificate.is_answered:
            await self._wait(record)
        found = record.certificate
        if found.ended is not None:
            raise Refused("CertificateFailed", str(found.ended), retry=False)
        if found.issued is None:
            if record.error:
                raise Refused("CertificateFailed", record.error)
            raise Refused("NotIssued", certificates.NOT_ISSUED)
        now = time.time()
        self._report_age(request, record, found.state(now))
        refresh = found.issued.refresh if now < found.issued.refresh else now + LOOK_AGAIN_S
        return PodCertificate(key=found.issued.key, chain=found.issued.chain, refresh=refresh)

    async def _wait(self, record: _Record) -> None:
        """Wait until the certificate is issued or refused, its request cannot be created, or WAIT_S are over."""
        pause = self._actor.sleep(WAIT_S)
        while not pause.done() and not record.error and not record.certificate.is_answered:
            await first_of(record.changed, pause)
        pause.cancel()

    def keep(self, uids: Container[str]) -> None:
        """Drop the certificates of all other pods: they have been removed."""
        for request in [one for one in self._records if one.pod_uid not in uids]:
            record = self._records.pop(request)
            if record.creation is not None:
                record.creation.cancel()
            record.error = "the pod has been removed"
            record.notify()

    def measure(self) -> None:
        """Set the gauge."""
        now = time.time()
        counts = Counter((one.signer_name, record.certificate.state(now)) for one, record in self._records.items())
        POD_CERTIFICATES.replace(((signer, state), count) for (signer, state), count in counts.items())

    # Requests to the API server

    def _create_if_due(self, request: GetPodCertificate, record: _Record) -> None:
        if self._requests is None:
            selector = {"fieldSelector": f"spec.nodeName={self._actor.settings.node_name}"}
            self._requests = Followed(KIND, Position(collection_path(KIND), selector), self._changed)
            self._requests.begin(self._follow)
        under_way = record.creation is not None and not record.creation.done()
        may_create = not under_way and time.monotonic() >= record.create_at
        if may_create and record.certificate.is_due(time.time()):
            record.error = ""
            record.creation = self._actor.spawn(self._create(request, record), "request pod certificate")

    async def _create(self, request: GetPodCertificate, record: _Record) -> None:
        try:
            name, key = await self._post(request)
        except (ApiError, AskTimeout, pki.PkiError, OSError, ValueError) as error:
            record.error = f"cannot request the certificate: {error}"
            record.failures += 1
            record.create_at = time.monotonic() + CREATE_AGAIN.delay_s(record.failures)
            log.warning("cannot request a certificate of %s for pod %s/%s: %s; volume asks again",
                        request.signer_name, request.namespace, request.pod_name, error)  # fmt: skip
        else:
            record.failures = 0
            record.certificate = certificates.requested(record.certificate, name, key, time.time(), random.random())
            self._look(request, record)
        record.notify()

    async def _post(self, request: GetPodCertificate) -> tuple[str, str]:
        """Make a key, and create the PodCertificateRequest. Returns its name and the private key in PEM."""
        account = ObjectRef(kind="ServiceAccount", namespace=request.namespace, name=request.service_account)
        found = await retry_forbidden(
            self._actor, lambda: self._client.request("GET", object_path(account), timeout_s=CALL_S)
        )
        account_uid = _uid("ServiceAccount", found)
        node = self._node()
        if node is None:
            raise ValueError("this node's Node has not been read yet")
        node_uid = _uid("Node", node)
        made = await self._actor.blocking(pki.DEADLINE_S, pki.proven_key, request.key_type, request.pod_uid)
        wanted = certificates.body(
            request,
            account_uid=account_uid,
            node=self._actor.settings.node_name,
            node_uid=node_uid,
            public_key=made.public_key,
            proof=made.proof,
        )
        path = collection_path(KIND, request.namespace)
        answer = await self._client.request("POST", path, obj=wanted, timeout_s=CALL_S)
        return ref_of(KIND, answer).name, made.key

    def _changed(self, refs: tuple[ObjectRef, ...]) -> None:
        changed = frozenset(refs)
        for request, record in list(self._records.items()):
            pending = record.certificate.pending
            if pending is not None and _ref(request, pending) in changed:
                self._look(request, record)

    def _look(self, request: GetPodCertificate, record: _Record) -> None:
        """Update the record from the pending request, as the watch shows it."""
        before = record.certificate
        if before.pending is None or self._requests is None or not self._requests.synced:
            return
        shown = self._requests.objects.get(_ref(request, before.pending))
        document = shown.document if shown is not None else None
        try:
            record.certificate = certificates.seen(before, document, time.time(), random.random())
        except ValueError as error:
            record.error = f"cannot understand {KIND} {request.namespace}/{before.pending.name}: {error}"
            log.error("%s", record.error)
            record.notify()
            return
        if record.certificate == before:
            return
        record.error = ""
        record.reported.clear()
        if (ended := record.certificate.ended) is not None:
            outcome = "was denied" if ended.kind == "Denied" else "failed"
            what = f"{KIND} {request.namespace}/{before.pending.name} {outcome}"
            self._warn(request, ended.kind, f'{what}, reason="{ended.reason}", message="{ended.message}"')
        record.notify()

    def _report_age(self, request: GetPodCertificate, record: _Record, state: certificates.State) -> None:
        """Send an event when the certificate's refresh is overdue, and one when it has expired; each once."""
        for applies, reason, message in (
            (state in ("overdue_for_refresh", "expired"), "CertificateOverdueForRefresh",
             "PodCertificate refresh overdue"),
            (state == "expired", "CertificateExpired", "PodCertificate expired"),
        ):  # fmt: skip
            if applies and reason not in record.reported:
                record.reported.add(reason)
                self._warn(request, reason, message)

    def _warn(self, request: GetPodCertificate, reason: str, message: str) -> None:
        pod = ObjectReference(
            kind="Pod", namespace=request.namespace, name=request.pod_name, uid=request.pod_uid, api_version="v1"
        )
        Recorder(self._actor.peer("events")).object(pod, "Warning", reason, message)


def _ref(request: GetPodCertificate, pending: Pending) -> ObjectRef:
    return ObjectRef(kind=KIND, namespace=request.namespace, name=pending.name)


def _uid(kind: str, item: dict[str, Any]) -> str:
    """Raises ValueError for an object without a UID."""
    meta = msgspec.convert(item, shapes.Answer).metadata
    if meta is None or not meta.uid:
        raise ValueError(f"the {kind} has no UID")
    return meta.uid
