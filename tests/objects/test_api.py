"""The objects actor against a real API server: strategies, a node's rights, tokens, and a server that is away."""

from __future__ import annotations

import base64
import itertools
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from actors._kube.connection.kubeconfig import load
from actors._kube.connection.session import Session
from proto.agent.actor import Describe
from proto.pods import pod_workers, volume
from proto.pods.objects import (
    CsiDriver,
    DeleteResourceSlices,
    GetCsiNodeState,
    GetObjects,
    GetToken,
    ListObjects,
    ObjectRef,
    Objects,
    PodObjects,
    SetCsiDrivers,
    SetPodObjects,
)
from proto.wire.errors import Refused
from tests.controlplane import ControlPlane
from tests.harness import ActorProcess, wait_for
from tests.kube.faulty_server import FaultyServer, Reply, Reset, Stream, failure

PEERS = ("volume", "pod_workers")
_numbers = itertools.count()


class World:
    """One node, its objects actor, a namespace."""

    def __init__(self, server: ControlPlane, process: ActorProcess, namespace: str) -> None:
        self.server, self.process, self.namespace = server, process, namespace

    @property
    def node(self) -> str:
        return self.process.settings.node_name

    def path(self, plural: str, name: str = "") -> str:
        return f"/api/v1/namespaces/{self.namespace}/{plural}" + (f"/{name}" if name else "")

    def ref(self, kind: str, name: str = "") -> ObjectRef:
        return ObjectRef(kind=kind, namespace=self.namespace, name=name)

    def config_map(self, name: str, value: str, *, method: str = "POST", immutable: bool = False) -> None:
        metadata = {"name": name}
        body = {"metadata": metadata, "data": {"k": value}, **({"immutable": True} if immutable else {})}
        self.server.call(method, self.path("configmaps", name if method == "PUT" else ""), body)

    def secret(self, name: str, value: bytes) -> None:
        data = {"k": base64.b64encode(value).decode()}
        self.server.call("POST", self.path("secrets"), {"metadata": {"name": name}, "data": data})

    def pod(
        self, name: str, account: str = "default", config_maps: tuple[str, ...] = (), secrets: tuple[str, ...] = ()
    ) -> str:
        """Bound to the node, and told to the actor as pod_workers would; its UID."""
        volumes: list[dict[str, Any]] = [{"name": f"c{n}", "configMap": {"name": x}} for n, x in enumerate(config_maps)]
        volumes += [{"name": f"s{n}", "secret": {"secretName": x}} for n, x in enumerate(secrets)]
        spec = {"nodeName": self.node, "serviceAccountName": account, "volumes": volumes}
        spec["containers"] = [{"name": "c", "image": "i"}]
        created = self.server.call("POST", self.path("pods"), {"metadata": {"name": name}, "spec": spec})
        uid: str = created["metadata"]["uid"]
        refs = (*(self.ref("ConfigMap", x) for x in config_maps), *(self.ref("Secret", x) for x in secrets))
        self.uses(uid, *refs)
        return uid

    def uses(self, uid: str, *refs: ObjectRef) -> None:
        self.process.tell(SetPodObjects(pods=(PodObjects(pod_uid=uid, refs=refs),)))

    def get(self, *refs: ObjectRef, fresh: bool = False) -> Objects:
        return self.process.ask(GetObjects(refs=refs, fresh=fresh))

    def value(self, ref: ObjectRef) -> bytes | None:
        found = self.get(ref).found
        return found[0].data["k"] if found else None

    def heard(self, peer: str) -> list[str]:
        kind = volume.ObjectsChanged if peer == "volume" else pod_workers.ObjectsChanged
        return [ref.name for one in self.process.peers[peer].of(kind) for ref in one.refs]

    def watches(self) -> int:
        """Number of open watches, with this node's Node."""
        found: int = wait_for(lambda: self.api()["watches"], 20, "the own Node is watched")
        return found

    def api(self) -> dict[str, Any]:
        state: dict[str, Any] = self.process.ask(Describe()).state["api"]
        return state


@contextmanager
def world(server: ControlPlane, node: str = "", kubeconfig: str = "", **settings: Any) -> Iterator[World]:
    namespace = node = node or f"objects-{next(_numbers)}"
    for path, body in (
        ("/api/v1/namespaces", {"metadata": {"name": namespace}}),
        ("/api/v1/nodes", {"metadata": {"name": node, "labels": {"disk": "fast"}}}),
    ):
        server.call("POST", path, body)
    server.call("POST", f"/api/v1/namespaces/{namespace}/serviceaccounts", {"metadata": {"name": "default"}})
    kubeconfig = kubeconfig or str(server.kubeconfig(node))
    with ActorProcess("objects", None, PEERS, kubeconfig=kubeconfig, node_name=node, **settings) as process:
        yield World(server, process, namespace)


@pytest.fixture(scope="module")
def one(control_plane: ControlPlane) -> Iterator[World]:
    with world(control_plane) as made:
        yield made


def test_a_change_is_told_and_read_within_a_second(one: World) -> None:
    one.config_map("watched", "0")
    one.pod("watching", config_maps=("watched",))
    wait_for(lambda: one.value(one.ref("ConfigMap", "watched")) == b"0", 20, "it is read")
    took = []
    for number in range(1, 21):
        before = one.heard("volume").count("watched")  # the own Node is heard of, too
        one.config_map("watched", str(number), method="PUT")
        began = time.monotonic()  # before that the server's disk takes its time
        wait_for(lambda before=before: one.heard("volume").count("watched") > before, 10, "volume hears of it")
        took.append(time.monotonic() - began)
        assert one.value(one.ref("ConfigMap", "watched")) == str(number).encode()
    assert sorted(took)[len(took) // 2] < 1.0, took
    assert one.heard("pod_workers").count("watched") >= 20


def test_missing_objects_are_reported_with_later_changes(one: World) -> None:
    ref = one.ref("Secret", "late")
    one.pod("waits", secrets=("late",))
    wait_for(lambda: one.get(ref).missing == (ref,), 20, "it is known to be missing")
    one.secret("late", b"\x00bytes")
    wait_for(lambda: one.value(ref) == b"\x00bytes", 10, "it has come")
    wait_for(lambda: "late" in one.heard("volume"), 10, "volume hears of it")
    one.server.call("DELETE", one.path("secrets", "late"))
    wait_for(lambda: one.get(ref).missing == (ref,), 10, "it has gone")


def test_unreferenced_object_is_forbidden_by_the_server(one: World) -> None:
    one.secret("of-others", b"x")
    ref = one.ref("Secret", "of-others")
    (failed,) = one.get(ref).failed
    assert failed.ref == ref
    assert 'secrets "of-others" is forbidden' in failed.message
    one.uses("nobody", ref)

    def unfollowed() -> Any:
        return [failed for failed in one.get(ref).failed if "cannot list" in failed.message]

    (failed,) = wait_for(unfollowed, 20, "it cannot be followed either")
    assert failed.message.startswith("failed to sync secret cache: timed out waiting for the condition")
    wait_for(lambda: any("of-others" in x.file for x in one.process.ask(ListObjects()).problems), 10, "shown")
    one.uses("nobody")


def test_watch_is_open_while_pods_refer_to_the_object(one: World) -> None:
    for name in ("shared", "own"):
        one.config_map(name, "x")
    before = one.watches()
    first = one.pod("first", config_maps=("shared", "own"))
    second = one.pod("second", config_maps=("shared",))
    wait_for(lambda: one.api()["watches"] == before + 2, 20, "one for each object")
    one.uses(first)
    wait_for(lambda: one.api()["watches"] == before + 1, 20, "the second pod needs one of them")
    one.uses(second)
    wait_for(lambda: one.api()["watches"] == before, 20, "nobody needs any")


def test_immutable_objects_are_read_once_and_not_watched(one: World) -> None:
    before = one.watches()
    one.config_map("fixed", "for good", immutable=True)
    one.pod("uses-fixed", config_maps=("fixed",))
    wait_for(lambda: one.value(one.ref("ConfigMap", "fixed")) == b"for good", 20, "it is read")
    wait_for(lambda: one.api()["watches"] == before, 20, "and no longer watched")
    assert one.value(one.ref("ConfigMap", "fixed")) == b"for good"


def test_the_own_node_and_whole_kinds_are_followed(one: World) -> None:
    node = ObjectRef(kind="Node", name=one.node)
    (found,) = one.get(node).found
    assert found.document["metadata"]["labels"] == {"disk": "fast"}
    patch = {"metadata": {"labels": {"disk": "slow"}}, "spec": {"unschedulable": True}}
    one.server.call("PATCH", f"/api/v1/nodes/{one.node}", patch, "application/merge-patch+json")
    wait_for(lambda: one.node in one.heard("volume") and one.node in one.heard("pod_workers"), 10, "both hear")

    def labels() -> Any:
        return one.get(node).found[0].document["metadata"]["labels"]

    wait_for(lambda: labels() == {"disk": "slow"}, 10, "the change: what was heard may be the Node's beginning")
    assert one.get(node, fresh=True).found[0].document["spec"]["unschedulable"] is True
    services = one.get(one.ref("Service"), ObjectRef(kind="Service", namespace="default", name="kubernetes"))
    assert [x.ref.name for x in services.found] == ["kubernetes"]
    service = {"metadata": {"name": "web"}, "spec": {"ports": [{"port": 80}], "selector": {"a": "b"}}}
    one.server.call("POST", one.path("services"), service)
    found_services = wait_for(lambda: one.get(one.ref("Service")).found, 10, "a new Service")
    assert found_services[0].document["spec"]["clusterIP"].startswith("10.96.")
    assert one.get(ObjectRef(kind="RuntimeClass", name="no")).missing


def test_claims_and_volumes_are_read_as_they_are(one: World) -> None:
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    one.server.call("POST", one.path("persistentvolumeclaims"), {"metadata": {"name": "data"}, "spec": claim})
    spec = {
        "nodeName": one.node,
        "containers": [{"name": "c", "image": "i"}],
        "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}],
    }
    one.server.call("POST", one.path("pods"), {"metadata": {"name": "claims"}, "spec": spec})
    ref = one.ref("PersistentVolumeClaim", "data")
    (found,) = wait_for(lambda: one.get(ref).found, 20, "the claim is read")
    assert found.document["spec"]["resources"] == {"requests": {"storage": "1Gi"}}
    assert "managedFields" not in found.document["metadata"]
    answer = one.get(one.ref("PersistentVolumeClaim", "of-others"), ObjectRef(kind="PersistentVolume"))
    assert "is forbidden" in answer.failed[0].message


def test_tokens_are_bound_cached_and_refused_by_the_server(one: World) -> None:
    uid = one.pod("tokens")
    wish = GetToken(namespace=one.namespace, service_account="default", pod_name="tokens", pod_uid=uid)

    def token() -> Any:
        try:
            return one.process.ask(wish)
        except Refused:
            return None  # the server has to have noted the pod first

    issued = wait_for(token, 20, "a token is issued")
    assert one.process.ask(wish) == issued
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": issued.token}}
    reviewed = one.server.call("POST", "/apis/authentication.k8s.io/v1/tokenreviews", review)["status"]
    assert reviewed["user"]["username"] == f"system:serviceaccount:{one.namespace}:default"
    assert reviewed["user"]["extra"]["authentication.kubernetes.io/pod-uid"] == [uid]
    assert 0 < issued.refresh - time.time() < issued.expires - time.time()
    with pytest.raises(Refused, match="failed to fetch token"):
        one.process.ask(
            GetToken(namespace=one.namespace, service_account="nobody", pod_name="tokens", pod_uid=uid)
        )  # fmt: skip


def test_service_account_is_read_and_its_token_is_for_an_audience(one: World) -> None:
    # Servers from 1.34 on let a node read the service accounts of its pods.
    role = {"metadata": {"name": "read-accounts"}, "rules": [
        {"apiGroups": [""], "resources": ["serviceaccounts"], "verbs": ["get"]}]}  # fmt: skip
    group = "/apis/rbac.authorization.k8s.io/v1"
    one.server.call("POST", f"{group}/clusterroles", role)
    one.server.call("POST", f"{group}/clusterrolebindings", {
        "metadata": {"name": "read-accounts"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "read-accounts"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:nodes"}],
    })  # fmt: skip
    account = {"metadata": {"name": "builder", "annotations": {"example.com/role": "push"}}}
    made = one.server.call("POST", f"/api/v1/namespaces/{one.namespace}/serviceaccounts", account)
    ref = one.ref("ServiceAccount", "builder")
    found = wait_for(lambda: one.get(ref).found, 20, "the node may read it")[0].document["metadata"]
    assert (found["uid"], found["annotations"]) == (made["metadata"]["uid"], account["metadata"]["annotations"])
    assert one.get(one.ref("ServiceAccount", "none")).missing
    uid = one.pod("pulls", "builder")
    wish = GetToken(
        namespace=one.namespace, service_account="builder", account_uid=found["uid"], pod_name="pulls", pod_uid=uid,
        audiences=("registry",),
    )  # fmt: skip

    def token() -> Any:
        try:
            return one.process.ask(wish).token
        except Refused:
            return None  # the server has to have noted the pod first

    claims = wait_for(token, 20, "a token is issued").split(".")[1]
    assert json.loads(base64.urlsafe_b64decode(claims + "=="))["aud"] == ["registry"]


def test_unserved_trust_bundles_give_the_kubelets_message(control_plane: ControlPlane) -> None:
    with world(control_plane, cluster_trust_bundle_projection=True) as own:
        (failed,) = own.get(ObjectRef(kind="ClusterTrustBundle", name="roots")).failed
        assert failed.message == "ClusterTrustBundle projection is not supported in static kubelet mode"


def test_served_trust_bundles_are_followed(tmp_path: Path) -> None:
    bundle = {"metadata": {"name": "roots", "resourceVersion": "5"}, "spec": {"trustBundle": "PEM"}}
    with FaultyServer() as server:
        group = "/apis/certificates.k8s.io"
        server.always("GET", f"{group}/v1$", failure(404, "NotFound"))
        server.always("GET", f"{group}/v1beta1$", Reply(body={"resources": [{"name": "clustertrustbundles"}]}))
        server.on("GET", f"{group}/v1beta1/clustertrustbundles", Reply(
            body={"metadata": {"resourceVersion": "5"}, "items": [bundle]}), Stream(objects=()))  # fmt: skip
        server.always("*", "/api/v1/nodes", failure(403, "Forbidden"))
        path = str(server.kubeconfig(tmp_path / "config"))
        settings = {"cluster_trust_bundle_projection": True, "node_name": "n"}
        with ActorProcess("objects", None, PEERS, kubeconfig=path, **settings) as process:
            answer = process.ask(GetObjects(refs=(ObjectRef(kind="ClusterTrustBundle"),)))
            assert [one.document["spec"] for one in answer.found] == [{"trustBundle": "PEM"}]
        server.release()


def test_resource_slices_of_this_node_are_deleted(tmp_path: Path) -> None:
    slices = "/apis/resource.k8s.io/v1/resourceslices"
    with FaultyServer() as server:
        server.always("*", "/api/v1/nodes", failure(403, "Forbidden"))
        server.on("DELETE", slices, Reply(), failure(403, "Forbidden", "not yours"))
        path = str(server.kubeconfig(tmp_path / "config"))
        with ActorProcess("objects", None, PEERS, kubeconfig=path, node_name="n") as process:
            process.ask(DeleteResourceSlices(driver="a.example"), 20)
            with pytest.raises(Refused, match="not yours") as caught:
                process.ask(DeleteResourceSlices(kept=("a.example",)), 20)
            assert caught.value.retry
            process.ask(DeleteResourceSlices(), 20)  # a server without ResourceSlices
            process.ask(DeleteResourceSlices(driver="a,spec.nodeName!=n"), 20)
        selectors = [dict(one.query) for one in server.of("DELETE")]
    assert [one.path for one in server.of("DELETE")] == [slices] * 3
    assert selectors == [
        {"fieldSelector": "spec.nodeName=n,spec.driver=a.example"},
        {"fieldSelector": "spec.nodeName=n,spec.driver!=a.example"},
        {"fieldSelector": "spec.nodeName=n"},
    ]


def csi_node(one: World) -> Any:
    return one.server.get(f"/apis/storage.k8s.io/v1/csinodes/{one.node}")


def drivers_of(one: World) -> dict[str, Any]:
    return {driver["name"]: driver for driver in (csi_node(one) or {"spec": {"drivers": []}})["spec"]["drivers"] or ()}


def test_drivers_are_written_to_the_cluster(control_plane: ControlPlane) -> None:
    with world(control_plane) as own:
        path = f"/api/v1/nodes/{own.node}"
        made = wait_for(lambda: csi_node(own), 20, "there is a CSINode before there is a driver")
        wait_for(lambda: own.process.ask(GetCsiNodeState()).written, 10, "the Node may be Ready")
        node = own.server.call("GET", path)
        assert made["metadata"]["ownerReferences"][0]["uid"] == node["metadata"]["uid"]
        first = CsiDriver(name="a.csi", node_id="n-1", max_volumes=7, topology={"topology.a.csi/zone": "z1"})
        second = CsiDriver(name="b.csi", node_id="n-1")
        own.process.tell(SetCsiDrivers(drivers=(first, second), complete=True))
        wait_for(lambda: len(drivers_of(own)) == 2, 20, "both drivers")
        entry = drivers_of(own)["a.csi"]
        assert (entry["nodeID"], entry["allocatable"], entry["topologyKeys"]) == (
            "n-1", {"count": 7}, ["topology.a.csi/zone"],
        )  # fmt: skip
        node = own.server.call("GET", path)
        assert node["metadata"]["labels"]["topology.a.csi/zone"] == "z1"
        assert node["metadata"]["annotations"]["csi.volume.kubernetes.io/nodeid"] == '{"a.csi":"n-1","b.csi":"n-1"}'
        version = csi_node(own)["metadata"]["resourceVersion"]
        own.process.restart()
        own.process.tell(SetCsiDrivers(drivers=(), complete=False))
        own.process.tell(SetCsiDrivers(drivers=(second, first), complete=True))
        wait_for(lambda: own.api()["node"] and own.api()["csi"] == "written", 20, "the next incarnation has looked")
        assert csi_node(own)["metadata"]["resourceVersion"] == version, "nothing was to be written"
        own.process.tell(SetCsiDrivers(drivers=(second,), complete=True))
        wait_for(lambda: set(drivers_of(own)) == {"b.csi"}, 20, "one has gone")
        annotations = own.server.call("GET", path)["metadata"]["annotations"]
        assert annotations["csi.volume.kubernetes.io/nodeid"] == '{"b.csi":"n-1"}'
        own.server.call("DELETE", path)
        own.server.call("POST", "/api/v1/nodes", {"metadata": {"name": own.node}})
        new = own.server.call("GET", path)["metadata"]["uid"]
        wait_for(
            lambda: (csi_node(own) or made)["metadata"]["ownerReferences"][0]["uid"] == new, 30, "the new Node's"
        )  # fmt: skip
        assert set(drivers_of(own)) == {"b.csi"}


def test_refused_driver_blocks_no_other(control_plane: ControlPlane) -> None:
    """A label's value has at most 63 characters, and a node may not set labels of this prefix."""
    good = CsiDriver(name="good.csi", node_id="n", topology={"t/rack": "r"})
    late = CsiDriver(name="late.csi", node_id="n")
    long = CsiDriver(name="long.csi", node_id="n", topology={"t/zone": "z" * 64})
    forbidden = CsiDriver(name="own.csi", node_id="n", topology={"node-restriction.kubernetes.io/zone": "z"})
    with world(control_plane) as own:
        own.process.tell(SetCsiDrivers(drivers=(long, forbidden, good), complete=True))
        wait_for(lambda: set(drivers_of(own)) == {"good.csi"}, 20, "it is written")
        own.process.tell(SetCsiDrivers(drivers=(long, forbidden, good, late), complete=True))
        wait_for(lambda: set(drivers_of(own)) == {"good.csi", "late.csi"}, 20, "so is a later one")
        assert own.process.ask(GetCsiNodeState()).written
        said = wait_for(lambda: "left out" in own.api()["csi"] and own.api()["csi"], 10, "reported")
        assert "CSI driver long.csi is left out: " in said
        assert "CSI driver own.csi is left out: " in said
        metadata = own.server.call("GET", f"/api/v1/nodes/{own.node}")["metadata"]
        assert metadata["labels"]["t/rack"] == "r"
        assert metadata["annotations"]["csi.volume.kubernetes.io/nodeid"] == '{"good.csi":"n","late.csi":"n"}'
        own.process.tell(SetCsiDrivers(drivers=(good, late), complete=True))
        wait_for(lambda: own.api()["csi"] == "written", 20, "without them")


@pytest.mark.parametrize("size", [1000, 4 << 20], ids=["for the CSINode", "for any request"])
def test_driver_whose_node_id_is_too_long_blocks_no_other(control_plane: ControlPlane, size: int) -> None:
    bad, good = CsiDriver(name="bad.csi", node_id="n" * size), CsiDriver(name="good.csi", node_id="n")
    late = CsiDriver(name="late.csi", node_id="n")
    with world(control_plane) as own:
        own.process.tell(SetCsiDrivers(drivers=(bad,), complete=True))
        wait_for(lambda: own.process.ask(GetCsiNodeState()).written, 20, "the Node may be Ready")
        own.process.tell(SetCsiDrivers(drivers=(bad, good), complete=True))
        wait_for(lambda: set(drivers_of(own)) == {"good.csi"}, 20, "it is written")
        own.process.tell(SetCsiDrivers(drivers=(bad, good, late), complete=True))
        wait_for(lambda: set(drivers_of(own)) == {"good.csi", "late.csi"}, 20, "so is a later one")
        wait_for(lambda: "CSI driver bad.csi is left out: " in own.api()["csi"], 10, "reported")
        version = csi_node(own)["metadata"]["resourceVersion"]
        own.process.tell(SetCsiDrivers(drivers=(bad, late, good), complete=True))
        wait_for(lambda: "CSI driver bad.csi is left out: " in own.api()["csi"], 10, "tried again")
        assert csi_node(own)["metadata"]["resourceVersion"] == version, "entries come and go with no try"
        own.process.tell(SetCsiDrivers(drivers=(late,), complete=True))
        wait_for(lambda: set(drivers_of(own)) == {"late.csi"} and own.api()["csi"] == "written", 20, "without them")


def test_after_kill_9_everything_is_followed_again(one: World) -> None:
    one.config_map("survives", "1")
    uid = one.pod("survivor", config_maps=("survives",))
    ref = one.ref("ConfigMap", "survives")
    wait_for(lambda: one.value(ref) == b"1", 20, "it is read")
    one.process.restart()
    one.config_map("survives", "2", method="PUT")
    assert one.value(ref) == b"2", "also before pod_workers has said who uses it"
    one.process.tell(SetPodObjects(pods=(PodObjects(pod_uid=uid, refs=(ref,)),), full=True))
    wait_for(lambda: one.api()["objects"] == 1, 20, "it is followed")
    before = one.heard("volume").count("survives")
    one.config_map("survives", "3", method="PUT")
    wait_for(lambda: one.heard("volume").count("survives") > before, 10, "changes are told again")
    assert one.value(ref) == b"3"


def test_an_object_of_the_directory_goes_before_the_servers(control_plane: ControlPlane, tmp_path: Path) -> None:
    def in_file(value: str) -> None:
        name = "\nmetadata: {name: both, namespace: " + both.namespace
        tmp_path.joinpath(".new").write_text(f"apiVersion: v1\nkind: ConfigMap{name}}}\ndata: {{k: {value}}}\n")
        tmp_path.joinpath(".new").rename(tmp_path / "both.yaml")

    with world(control_plane, objects_dir=str(tmp_path)) as both:
        both.config_map("both", "server")
        both.pod("p", config_maps=("both",))
        ref = both.ref("ConfigMap", "both")
        wait_for(lambda: both.value(ref) == b"server", 20, "the server's")
        in_file("file")
        wait_for(lambda: both.value(ref) == b"file", 20, "the file's")
        wait_for(lambda: both.api()["objects"] == 0, 20, "the server's is not followed any more")
        (tmp_path / "both.yaml").unlink()
        wait_for(lambda: both.value(ref) == b"server", 20, "the server's again")


@pytest.mark.parametrize("strategy", ["Get", "Cache"])
def test_polling_sees_changes_after_its_period(control_plane: ControlPlane, strategy: str) -> None:
    settings = {"config_map_and_secret_change_detection_strategy": strategy, "sync_frequency_s": 0.2}
    with world(control_plane, **settings) as polled:
        ttl = {"metadata": {"annotations": {"node.alpha.kubernetes.io/ttl": "1"}}}
        path = f"/api/v1/nodes/{polled.node}"
        polled.server.call("PATCH", path, ttl, "application/merge-patch+json")
        polled.config_map("polled", "1")
        polled.pod("p", config_maps=("polled",))
        ref = polled.ref("ConfigMap", "polled")
        wait_for(lambda: polled.value(ref) == b"1", 20, "it is read")
        polled.config_map("polled", "2", method="PUT")
        if strategy == "Get":
            assert polled.value(ref) == b"2"
        wait_for(lambda: "polled" in polled.heard("volume"), 20, "its users hear of it")
        wait_for(lambda: polled.value(ref) == b"2", 20, "and read it")
        assert polled.api()["watches"] <= 1, "the own Node's alone"


def test_without_server_known_objects_stay_and_others_fail(control_plane: ControlPlane, tmp_path: Path) -> None:
    node = f"objects-{next(_numbers)}"
    with (
        FaultyServer(Session(load(str(control_plane.kubeconfig(node))))) as faulty,
        world(control_plane, node=node, kubeconfig=str(faulty.kubeconfig(tmp_path / "config"))) as alone,
    ):
        alone.config_map("known", "x")
        uid = alone.pod("p", config_maps=("known",))
        known, unknown = alone.ref("ConfigMap", "known"), alone.ref("ConfigMap", "unknown")
        wait_for(lambda: alone.value(known) == b"x", 20, "it is read")
        faulty.always("*", "/", Reset())
        assert alone.value(known) == b"x"
        alone.uses(uid, known, unknown)
        # Asked before it knows who uses it, the server's own refusal is the answer.
        begin = "failed to sync configmap cache: timed out waiting for the condition: GET "
        (failed,) = wait_for(
            lambda: [one for one in alone.get(unknown).failed if one.message.startswith(begin)], 20, "the rest is told"
        )
        assert "reset" in failed.message
        wish = GetToken(namespace=alone.namespace, service_account="default", pod_name="p", pod_uid=uid)
        with pytest.raises(Refused, match=r"failed to fetch token: .*reset"):
            alone.process.ask(wish)
        faulty.heal()
        alone.config_map("known", "y", method="PUT")
        wait_for(lambda: alone.value(known) == b"y", 60, "it goes on")


def test_secrets_and_tokens_never_show_in_logs_and_listings(one: World, capfd: pytest.CaptureFixture[str]) -> None:
    canary = "c4n4ry-from-the-server"
    one.secret("canary", canary.encode())
    uid = one.pod("has-canary", secrets=("canary",))
    wait_for(lambda: one.value(one.ref("Secret", "canary")) == canary.encode(), 20, "the Secret is there")
    wish = GetToken(namespace=one.namespace, service_account="default", pod_name="has-canary", pod_uid=uid)
    token = one.process.ask(wish).token
    shown = repr(one.process.ask(ListObjects())) + repr(one.process.ask(Describe()))
    one.process.kill()
    left = b"".join(path.read_bytes() for path in Path(one.process.dir).rglob("*") if path.is_file())
    one.process.start()
    printed = "".join(capfd.readouterr())
    for secret in (canary, base64.b64encode(canary.encode()).decode(), token):
        assert secret not in shown
        assert secret.encode() not in left
        assert secret not in printed
