"""Certificates of pods by the objects actor, from an API server with a signer.

Debian's API server has no PodCertificateRequests, so a function stands in for it.
"""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from msgspec.structs import replace

from proto.agent.actor import Describe
from proto.common import rfc3339
from proto.pods.events import RecordEvent
from proto.pods.objects import GetPodCertificate, ObjectRef, PodCertificate, PodObjects, SetPodObjects
from proto.wire.errors import Refused
from tests.harness import ActorProcess, wait_for
from tests.kube.faulty_server import Call, FaultyServer, Reply, failure

PATH = "/apis/certificates.k8s.io/v1beta1"
PEERS = ("events", "pod_workers", "volume")
WATCH_S = 2.0
"""Longest time without an answer to a watch."""
WISH = GetPodCertificate(
    namespace="ns", service_account="web", pod_name="p", pod_uid="u1", volume="v", source=0,
    signer_name="example.com/s", key_type="ECDSAP256",
)  # fmt: skip
ACCOUNT = ObjectRef(kind="ServiceAccount", namespace="ns", name="web")
QUICK = """
from actors.objects import certificates
from actors.objects.api import pod_certificates
certificates.JITTER_S = 0.0
pod_certificates.WAIT_S = 1.0
"""


class Signer:
    """An API server's PodCertificateRequests, and the signer that answers them with `outcome`."""

    def __init__(self) -> None:
        self.outcome: dict[str, Any] | None = None
        """Status of each further request; None: the signer is silent."""
        self.requests: dict[str, dict[str, Any]] = {}
        self._events: list[dict[str, Any]] = []
        self._changed = threading.Condition()

    def __call__(self, call: Call) -> Reply:
        """Answer a call."""
        with self._changed:
            if call.method == "POST" and call.path == f"{PATH}/namespaces/ns/podcertificaterequests":
                return Reply(201, self._created(call.body))
            if call.path == f"{PATH}/podcertificaterequests":
                assert call.query["fieldSelector"] == "spec.nodeName=n"
                return self._watch(call) if "watch" in call.query else self._list(list(self.requests.values()))
        if call.path == "/api/v1/namespaces/ns/serviceaccounts/web":
            return Reply(body={"metadata": {"name": "web", "namespace": "ns", "uid": "sa-1"}})
        if call.path == "/api/v1/nodes" and "watch" not in call.query:
            return self._list([{"metadata": {"name": "n", "uid": "n-1", "resourceVersion": "1"}}])
        time.sleep(WATCH_S if "watch" in call.query else 0)
        return Reply(body=b"") if "watch" in call.query else failure(404, "NotFound")

    def _list(self, items: list[dict[str, Any]]) -> Reply:
        return Reply(body={"metadata": {"resourceVersion": str(len(self._events) + 1)}, "items": items})

    def _created(self, item: dict[str, Any]) -> dict[str, Any]:
        name = f"req-{len(self.requests)}"
        self.requests[name] = {**item, "metadata": {**item["metadata"], "name": name}}
        self._tell("ADDED", name)
        if self.outcome is not None:
            self.requests[name] = {**self.requests[name], "status": self.outcome}
            self._tell("MODIFIED", name)
        return self.requests[name]

    def answer(self, name: str, status: dict[str, Any]) -> None:
        """Have the signer answer a request."""
        with self._changed:
            self.requests[name] = {**self.requests[name], "status": status}
            self._tell("MODIFIED", name)

    def _tell(self, kind: str, name: str) -> None:
        item = self.requests[name]
        item["metadata"] = {**item["metadata"], "resourceVersion": str(len(self._events) + 2)}
        self._events.append({"type": kind, "object": json.loads(json.dumps(item))})
        self._changed.notify_all()

    def _watch(self, call: Call) -> Reply:
        seen = int(call.query["resourceVersion"]) - 1
        self._changed.wait_for(lambda: len(self._events) > seen, WATCH_S)
        return Reply(body="".join(json.dumps(one) + "\n" for one in self._events[seen:]).encode())


def issued(chain: str = "CHAIN", refresh_in_s: float = 3600.0, ends_in_s: float = 7200.0) -> dict[str, Any]:
    now = time.time()
    return {
        "conditions": [{"type": "Issued", "status": "True"}],
        "certificateChain": chain,
        "beginRefreshAt": rfc3339.seconds(now + refresh_in_s),
        "notAfter": rfc3339.seconds(now + ends_in_s),
    }


class World:
    """The objects actor, its API server and the signer."""

    def __init__(self, process: ActorProcess, server: FaultyServer, signer: Signer) -> None:
        self.process, self.server, self.signer = process, server, signer

    def ask(self, wish: GetPodCertificate = WISH) -> PodCertificate:
        return self.process.ask(wish, 20)

    def issued(self, wish: GetPodCertificate = WISH) -> PodCertificate:
        """The certificate, or the refusal, once there is one."""

        def found() -> PodCertificate | None:
            try:
                return self.ask(wish)
            except Refused as refusal:
                if refusal.reason != "NotIssued":
                    raise
                return None

        return wait_for(found, 20, "an answer of the signer")

    def issued_after_error(self) -> PodCertificate | None:
        """The certificate; None while it is refused."""
        try:
            return self.ask()
        except Refused:
            return None

    def events(self) -> list[tuple[str, str]]:
        return [(one.reason, one.message) for one in self.process.peers["events"].of(RecordEvent)]


@contextmanager
def world(tmp_path: Path, *, gate: bool = True) -> Iterator[World]:
    signer = Signer()
    with FaultyServer(signer) as server:
        path = str(server.kubeconfig(tmp_path / "config"))
        settings = {"kubeconfig": path, "node_name": "n", "pod_certificate_request": gate}
        with ActorProcess("objects", None, PEERS, prelude=QUICK, **settings) as process:
            wait_for(lambda: process.ask(Describe()).state["api"]["node"], 20, "the Node is read")
            process.tell(SetPodObjects(pods=(PodObjects(pod_uid="u1", refs=(ACCOUNT,)),)))
            yield World(process, server, signer)


@pytest.fixture
def one(tmp_path: Path) -> Iterator[World]:
    with world(tmp_path) as made:
        yield made


def test_issued_certificate_comes_with_the_key_of_its_request(one: World) -> None:
    one.signer.outcome = issued()
    found = one.issued()
    assert found.chain == "CHAIN"
    assert found.refresh == pytest.approx(time.time() + 3600, abs=60)
    spec = one.signer.requests["req-0"]["spec"]
    public = serialization.load_der_public_key(base64.b64decode(spec["pkixPublicKey"]))
    assert serialization.load_pem_private_key(found.key.encode(), None).public_key() == public
    assert (spec["nodeUID"], spec["serviceAccountUID"], spec["podUID"]) == ("n-1", "sa-1", "u1")
    assert one.ask() == found
    assert one.issued(replace(WISH, source=1)).key != found.key, "each source has a certificate of its own"
    assert len(one.signer.requests) == 2


def test_silent_signer_is_waited_for_with_one_request(one: World) -> None:
    for _ in range(2):
        with pytest.raises(Refused, match="credential bundle is not issued yet") as caught:
            one.ask()
        assert caught.value.retry
    one.signer.answer("req-0", issued())
    assert one.issued().chain == "CHAIN"
    assert list(one.signer.requests) == ["req-0"]


@pytest.mark.parametrize(("kind", "words"), [("Denied", "was denied"), ("Failed", "failed")])
def test_refusal_is_final_and_an_event_tells_the_reason(one: World, kind: str, words: str) -> None:
    one.signer.outcome = {"conditions": [{"type": kind, "status": "True", "reason": "Bad", "message": "no such name"}]}
    text = f'PodCertificateRequest was permanently {kind.lower()}: reason="Bad" message="no such name"'
    for _ in range(2):
        with pytest.raises(Refused, match=text) as caught:
            one.issued()
        assert not caught.value.retry
    assert list(one.signer.requests) == ["req-0"]
    message = f'PodCertificateRequest ns/req-0 {words}, reason="Bad", message="no such name"'
    assert wait_for(one.events, 20, "the event") == [(kind, message)]


def test_certificate_is_refreshed_and_used_until_then(one: World) -> None:
    one.signer.outcome = issued("OLD", refresh_in_s=-700)
    first = one.issued()
    assert first.refresh == pytest.approx(time.time() + 30, abs=20), "volume asks again soon"
    assert wait_for(one.events, 20, "the event") == [("CertificateOverdueForRefresh", "PodCertificate refresh overdue")]
    one.signer.outcome = None
    assert one.ask() == replace(first, refresh=pytest.approx(time.time() + 30, abs=20))
    wait_for(lambda: "req-1" in one.signer.requests, 20, "the refresh is requested")
    one.signer.answer("req-1", issued("NEW"))
    second = wait_for(lambda: (new := one.ask()).chain == "NEW" and new, 20, "it is refreshed")
    assert second.key != first.key
    assert len(one.signer.requests) == 2
    assert len(one.events()) == 1, "each event is recorded once"


def test_error_of_the_api_server_is_told_and_tried_again(one: World) -> None:
    one.signer.outcome = issued()
    refused = failure(422, "Invalid", "signerName: no such signer")
    one.server.on("POST", f"{PATH}/namespaces/ns/podcertificaterequests", refused)
    with pytest.raises(Refused, match=r"cannot request the certificate: .*no such signer") as caught:
        one.issued()
    assert caught.value.retry
    with pytest.raises(Refused, match="no such signer"):
        one.ask()
    assert not one.signer.requests, "each try costs a key, so a second one comes later"
    assert wait_for(one.issued_after_error, 20, "the request is created").chain == "CHAIN"


@pytest.mark.parametrize("account", [{}, {"metadata": None}, {"metadata": {"name": "web"}}])
def test_account_without_a_uid_is_an_error_and_read_again(one: World, account: dict[str, Any]) -> None:
    one.signer.outcome = issued()
    one.server.on("GET", "/api/v1/namespaces/ns/serviceaccounts/web", Reply(body=account))
    with pytest.raises(Refused, match="cannot request the certificate: the ServiceAccount has no UID") as caught:
        one.issued()
    assert caught.value.retry
    assert wait_for(one.issued_after_error, 20, "the request is created").chain == "CHAIN"


@pytest.mark.parametrize("removal", [PodObjects(pod_uid="u1", refs=()), None])
def test_removed_pods_certificates_are_dropped_and_not_requested_again(one: World, removal: PodObjects | None) -> None:
    one.signer.outcome = issued()
    one.issued()
    assert one.process.ask(Describe()).state["api"]["certificates"] == 1
    one.process.tell(SetPodObjects(pods=(removal,) if removal is not None else (), full=removal is None))
    wait_for(lambda: one.process.ask(Describe()).state["api"]["certificates"] == 0, 20, "it is dropped")
    with pytest.raises(Refused, match="pod ns/p is not known") as caught:
        one.ask()
    assert caught.value.retry, "pod_workers may tell of the pod later"
    assert one.process.ask(Describe()).state["api"]["certificates"] == 0
    assert list(one.signer.requests) == ["req-0"]


def test_partial_report_of_pods_keeps_the_certificates_of_others(one: World) -> None:
    one.signer.outcome = issued()
    found = one.issued()
    one.process.tell(SetPodObjects(pods=(PodObjects(pod_uid="u2", refs=(ACCOUNT,)),)))
    assert one.ask() == found


def test_without_the_gate_nothing_is_requested(tmp_path: Path) -> None:
    with world(tmp_path, gate=False) as one:
        with pytest.raises(Refused, match="the gate is off"):
            one.ask()
        assert not one.signer.requests
