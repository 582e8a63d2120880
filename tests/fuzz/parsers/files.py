"""Targets: files that an operator, a template or an attacker writes."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path

from actors._host.files import checkpoint
from actors._kube.connection import kubeconfig
from actors.config.pods import static_pods
from actors.config.validation.problems import ManifestError
from actors.objects.parsing.load import load as load_objects
from actors.objects.parsing.problems import ObjectsError
from actors.resources.cpu import state as cpu_state
from actors.resources.machine import cpusets
from actors.runtime.images.errors import ImageError
from actors.runtime.images.sources import hosts
from actors.runtime.network import cni
from actors.runtime.network.api import NetworkError
from proto.agent.settings import Settings
from proto.waits import table
from proto.waits.record import Wait
from supervisor.config.kubeletconfig import defaults, fields, loading, validation
from tests.fuzz.target import Target
from tests.kubeletconfig.samples import EVERY, KUBEADM

YAML = (
    b"<<: *a\n", b"&a ", b"*a", b"!!python/object:os.system ", b"? ", b"- ", b": ", b"|\n", b"---\n", b"...\n",
    b"<<: [*a, *a, *a, *a]\n", b"!!binary ", b"%YAML 1.2\n", b"{a: &a {b: *a}}", b"~", b"0o7", b"1_000", b"2001-01-01",
)  # fmt: skip

CPU_STATE = (
    b'{"policyName":"static","defaultCpuSet":"1-2","entries":{"pod1":{"container1":"5-6","container2":"3-4"}},'
    b'"podEntries":{"pod2":{"cpuSet":"7-9"}},"checksum":766259872}'
)

POD = b"""\
apiVersion: v1
kind: Pod
metadata:
  name: web
  uid: 0d2f6f4e-0000-4000-8000-000000000001
  labels: &labels {app: web}
  annotations: {note: "a b"}
spec:
  restartPolicy: Always
  terminationGracePeriodSeconds: 2
  volumes:
  - name: work
    emptyDir: {medium: Memory, sizeLimit: 1Mi}
  initContainers:
  - {name: first, image: "registry.test/a:1", command: [sh, -c, "true"]}
  containers:
  - name: main
    image: registry.test/a:1
    ports: [{containerPort: 8080, hostPort: 80}]
    env: [{name: A, value: "1"}, {name: B, valueFrom: {fieldRef: {fieldPath: metadata.uid}}}]
    resources: {limits: {cpu: 100m, memory: 64Mi}}
    volumeMounts: [{name: work, mountPath: /work, subPathExpr: "$(A)/x"}]
    readinessProbe: {httpGet: {path: /, port: 8080}, periodSeconds: 1}
    securityContext: {runAsUser: 1000}
"""
POD_LIST = b"""\
apiVersion: v1
kind: PodList
items:
- {metadata: {name: a}, spec: {containers: [{name: c, image: "a:1"}]}}
- {apiVersion: v1, kind: Pod, metadata: {name: b, namespace: n, uid: u}, spec: {containers: [{name: c, image: "a:1"}]}}
"""
MERGES = b"a: &a {x: 1}\nb: &b {<<: *a}\nc: {<<: [*a, *b]}\n"
MERGE_BOMB = b"".join(
    b"a%d: &a%d {<<: [%s]}\n" % (number, number, b", ".join([b"*a%d" % (number - 1)] * 9) if number else b"{}")
    for number in range(10)
)
"""Merge keys of merge keys: nine times as many steps with each line."""
OBJECTS = b"""\
apiVersion: v1
kind: ConfigMap
metadata: {name: a, namespace: default}
data: {key: value}
binaryData: {raw: AAEC}
---
apiVersion: v1
kind: Secret
metadata: {name: b}
type: Opaque
stringData: {password: x}
---
apiVersion: v1
kind: List
items: [{apiVersion: v1, kind: Service, metadata: {name: s}, spec: {ports: [{port: 80}]}}]
"""
KUBECONFIG = b"""\
apiVersion: v1
kind: Config
current-context: c
clusters: [{name: k, cluster: {server: "https://127.0.0.1:6443", certificate-authority-data: AAEC}}]
contexts: [{name: c, context: {cluster: k, user: u}}]
users: [{name: u, user: {exec: {apiVersion: client.authentication.k8s.io/v1, command: ./p, args: [a]}}}]
"""
CREDENTIAL = {
    "apiVersion": "client.authentication.k8s.io/v1",
    "kind": "ExecCredential",
    "status": {"token": "t", "expirationTimestamp": "2030-01-01T00:00:00Z"},
}
CNI = {
    "cniVersion": "1.0.0",
    "name": "net",
    "plugins": [{"type": "bridge", "ipam": {"type": "host-local"}}, {"type": "portmap", "capabilities": {"a": True}}],
}
CNI_RESULT = {"cniVersion": "1.0.0", "ips": [{"address": "10.0.0.2/24"}, {"address": "fd00::2/64"}], "dns": {}}
HOSTS = b"""\
server = "https://registry.test"
[host."https://mirror.test/v2"]
capabilities = ["pull", "resolve"]
override_path = true
[host."https://mirror.test/v2".header]
x = ["a"]
"""


def _manifest(data: bytes) -> None:
    try:
        loaded = static_pods.load("/manifests/a.yaml", data, "node")
    except ManifestError:
        return
    _check_names(loaded)


def _pods_of_a_url(data: bytes) -> None:
    try:
        found = static_pods.load_answer("http://h/pods", "http://h/pods", data, "node")
    except ManifestError:
        return
    assert len({one.pod.metadata.uid for one in found}) == len(found), "a UID twice"
    for one in found:
        _check_names(one)


def _check_names(loaded: static_pods.StaticPod) -> None:
    for text in (loaded.pod.metadata.uid, loaded.pod.metadata.name, loaded.pod.metadata.namespace):
        assert text, "a pod without UID, name or namespace"
        assert "/" not in text, f"a path separator in {text!r}"
        assert text not in (".", ".."), f"the path component {text!r}"
        assert text.isprintable(), f"control characters in {text!r}"
        assert len(text) <= 253, f"a text of {len(text)} characters"


def _objects(data: bytes) -> None:
    try:
        load_objects("/objects/a.yaml", data)
    except ObjectsError:
        return


def _kubelet_configuration(data: bytes) -> None:
    loaded = loading.parse("/config.yaml", data)
    if loaded.errors:
        return
    config = defaults.apply(loaded.config)
    if not validation.validate(config):
        fields.to_settings(config, Settings(), cores=2)


def _with_file(read: Callable[[Path], None]) -> Callable[[bytes], None]:
    """Feed a parser that reads a file by its path."""

    def feed(data: bytes) -> None:
        with tempfile.TemporaryDirectory(prefix="nv-fuzz-") as directory:
            path = Path(directory, "file")
            path.write_bytes(data)
            read(path)

    return feed


def _checkpoint(path: Path) -> None:
    checkpoint.load(path, 1)


def _checkpoint_seed() -> bytes:
    with tempfile.TemporaryDirectory(prefix="nv-fuzz-") as directory:
        path = Path(directory, "file")
        checkpoint.save(path, 1, {"a": [1, 2.5, None, {"b": "c"}]}, sync=False)
        return path.read_bytes()


def _cpu_manager_state(data: bytes) -> None:
    try:
        cpu_state.encode(cpu_state.decode(data, "static"), "static", pod_level=True)
    except ValueError:
        return


def _cpu_list(data: bytes) -> None:
    try:
        cpus = cpusets.parse(data.decode("ascii", "replace"))
    except cpusets.CpuListError:
        return
    if cpusets.parse(cpusets.printed(cpus)) != cpus:
        raise AssertionError("it is printed as another list")


def _kubeconfig(data: bytes) -> None:
    try:
        kubeconfig.parse(data, "/kubeconfig")
    except kubeconfig.KubeconfigError:
        return


def _exec_credential(data: bytes) -> None:
    from actors._kube.connection.plugin import _status  # noqa: PLC0415

    plugin = kubeconfig.Exec(api_version=str(CREDENTIAL["apiVersion"]), command="plugin")
    try:
        _status(data, plugin, "plugin")
    except kubeconfig.KubeconfigError:
        return


def _cni_configuration(data: bytes) -> None:
    try:
        network = cni.parse(data, "/etc/cni/net.d/a.conflist")
    except NetworkError:
        return
    cni.maps_ports(network)


def _cni_result(data: bytes) -> None:
    cni._error_text(data, b"")
    try:
        result = cni.parse_result(data, "bridge")
    except NetworkError:
        return
    cni.addresses(result or {})


def _registry_hosts(path: Path) -> None:
    directory = path.parent / "registry.test"
    directory.mkdir()
    path.rename(directory / "hosts.toml")
    try:
        hosts.hosts_of("registry.test", str(path.parent))
    except ImageError:
        return


def _wait_table(path: Path) -> None:
    table.read(path)


def _wait_table_seed() -> bytes:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "volume")
        slots = table.Slots(path, "volume", 1, 1)
        for _ in range(3):
            slots.write(slots.take(), Wait(kind="ask", waiter="pod/a/b", target="actor/pleg", ask=("x", 1, 2)))
        slots.close()
        return path.read_bytes()[: table.PAGE + 4 * table.SLOT]


TARGETS = (
    Target(
        "manifest",
        _manifest,
        (POD, MERGES + POD, MERGE_BOMB + POD, json.dumps({"apiVersion": "v1", "kind": "Pod"}).encode()),
        YAML,
    ),
    Target("pods-of-a-url", _pods_of_a_url, (POD, POD_LIST, MERGE_BOMB + POD_LIST), YAML),
    Target("objects", _objects, (OBJECTS, MERGES + OBJECTS, MERGE_BOMB), YAML),
    Target("kubelet-configuration", _kubelet_configuration, (KUBEADM.encode(), EVERY.encode()), YAML),
    Target("checkpoint", _with_file(_checkpoint), (_checkpoint_seed(), b"[" * 5000, b"{}"), (b'"data":', b"null")),
    Target("cpu-manager-state", _cpu_manager_state, (CPU_STATE, b"{}", b"[" * 5000), (b'"entries":', b'"podEntries":')),
    Target("cpu-list", _cpu_list, (b"0-3,8", b"", b"0-65535"), (b"-", b",")),
    Target("kubeconfig", _kubeconfig, (KUBECONFIG, b"{}"), YAML),
    Target("exec-credential", _exec_credential, (json.dumps(CREDENTIAL).encode(),), (b'"status":', b"null")),
    Target("cni-configuration", _cni_configuration, (json.dumps(CNI).encode(),), (b'"type":', b"null")),
    Target("cni-result", _cni_result, (json.dumps(CNI_RESULT).encode(), b'{"msg": "m"}'), (b'"ips":', b"null")),
    Target("wait-table", _with_file(_wait_table), (_wait_table_seed(), b""), (table.MAGIC,)),
    Target("registry-hosts", _with_file(_registry_hosts), (HOSTS,), (b"[host]", b"= [")),
)
