"""The print behind a static pod's UID: Go's, as far as it is known here."""

# ruff: noqa: E501 - the prints are long

import time
from typing import Any

import pytest

from actors._host.files.hashing import fnv1a_128
from actors.config.defaulting.defaults import default_pod
from actors.config.pods.podhash import STRUCTS, printed_pod, static_pod_uid
from actors.config.pods.podhash_quantity import NotPrintable, printed_quantity
from proto import v1
from tests.proto.v1.records import RECORDS


def pod(**spec: Any) -> v1.Pod:
    plain = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": spec}
    return default_pod(v1.from_dict(v1.Pod, plain))


def test_uid_is_fnv_of_print_then_node_then_file() -> None:
    text = printed_pod(pod()) + "host:n" + "file:/m/a.yaml"
    assert static_pod_uid(pod(), "/m/a.yaml", "n") == f"{fnv1a_128(text.encode()):032x}"


def test_negative_grace_period_gives_the_uid_of_one_second() -> None:
    uids = {static_pod_uid(pod(terminationGracePeriodSeconds=seconds), "/m/a.yaml", "n") for seconds in (-1, -60, 1)}
    assert len(uids) == 1


PROBE = {
    "httpGet": {"host": "127.0.0.1", "path": "/livez", "port": "probe-port", "scheme": "HTTPS"},
    "timeoutSeconds": 15,
}
SLOW = {"initialDelaySeconds": 10, "periodSeconds": 10}
READY = {"httpGet": PROBE["httpGet"] | {"path": "/readyz"}, "timeoutSeconds": 15}  # type: ignore[operator]
CONFIG = "/etc/kubernetes/scheduler.conf"


def kubeadm_scheduler(command: str, image: str) -> v1.Pod:
    """As kubeadm 1.35 writes its manifest."""
    container = {
        "name": "kube-scheduler",
        "image": f"registry.k8s.io/kube-scheduler:{image}",
        "imagePullPolicy": "IfNotPresent",
        "command": [
            command, f"--authentication-kubeconfig={CONFIG}", f"--authorization-kubeconfig={CONFIG}",
            "--bind-address=127.0.0.1", f"--kubeconfig={CONFIG}", "--leader-elect=true",
        ],
        "livenessProbe": PROBE | SLOW | {"failureThreshold": 8},
        "readinessProbe": READY | {"failureThreshold": 3, "periodSeconds": 1},
        "startupProbe": PROBE | SLOW | {"failureThreshold": 24},
        "ports": [{"containerPort": 10259, "name": "probe-port", "protocol": "TCP"}],
        "resources": {"requests": {"cpu": "100m"}},
        "volumeMounts": [{"mountPath": CONFIG, "name": "kubeconfig", "readOnly": True}],
    }  # fmt: skip
    spec = {
        "containers": [container],
        "hostNetwork": True,
        "priority": 2000001000,
        "priorityClassName": "system-node-critical",
        "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
        "volumes": [{"name": "kubeconfig", "hostPath": {"path": CONFIG, "type": "FileOrCreate"}}],
    }
    labels = {"component": "kube-scheduler", "tier": "control-plane"}
    metadata = {"name": "kube-scheduler", "namespace": "kube-system", "labels": labels}
    plain = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    return default_pod(v1.from_dict(v1.Pod, plain))


@pytest.mark.parametrize(
    ("command", "image", "node", "uid"),
    [
        ("kube-schedulerrrr", "v1.35.0", "controlplane", "186c52b5584d78a99894b5f06124bf5d"),
        ("kube-scheduler", "v1.35.7", "master01", "dcefdf84232060db703cb0098efa5bf6"),
        ("kube-scheduler", "v1.35.0", "kind-control-plane", "b3cae5f340c39f8cecdf0bddc7a4cdf1"),
    ],
)
def test_uid_is_what_kubelets_gave(command: str, image: str, node: str, uid: str) -> None:
    """UIDs of kubelets 1.35 that people published. Their Pod differs in two fields from that of 1.36."""
    text = printed_pod(kubeadm_scheduler(command, image))
    text = text.replace(
        " SchedulingGroup:(*core.PodSchedulingGroup)<nil>", " WorkloadRef:(*core.WorkloadReference)<nil>"
    )
    text = text.replace(" NodeAllocatableResourceClaimStatuses:([]core.NodeAllocatableResourceClaimStatus)<nil>", "")
    source = f"host:{node}file:/etc/kubernetes/manifests/kube-scheduler.yaml"
    assert f"{fnv1a_128((text + source).encode()):032x}" == uid


def test_pod_is_printed_with_its_go_types() -> None:
    text = printed_pod(pod(hostNetwork=True, containers=[{"name": "c", "image": "i:1", "command": ["a", "b"]}]))
    assert text.startswith(
        "(*core.Pod){TypeMeta:(v1.TypeMeta){Kind:(string) APIVersion:(string)} ObjectMeta:(v1.ObjectMeta){Name:(string)a "
    )
    for part in (
        "CreationTimestamp:(v1.Time){Time:(time.Time){wall:(uint64)0 ext:(int64)0 loc:(*time.Location)<nil>}}",
        "Labels:(map[string]string)<nil>",
        "Containers:([]core.Container)[{Name:(string)c Image:(string)i:1 Command:([]string)[a b] Args:([]string)<nil>",
        "ImagePullPolicy:(core.PullPolicy)IfNotPresent",
        "TerminationGracePeriodSeconds:(*int64)30",
        "SecurityContext:(*core.PodSecurityContext){HostNetwork:(bool)true HostPID:(bool)false",
        "EnableServiceLinks:(*bool)true",
        "Status:(core.PodStatus){ObservedGeneration:(int64)0 Phase:(core.PodPhase) Conditions:([]core.PodCondition)<nil>",
    ):
        assert part in text


def test_nested_values_are_printed_too() -> None:
    probe = {"httpGet": {"port": "http"}}
    text = printed_pod(
        pod(
            volumes=[{"name": "v", "hostPath": {"path": "/x"}}],
            containers=[{"name": "c", "image": "i", "livenessProbe": probe, "resources": {"limits": {"cpu": "100m"}}}],
        )
    )
    assert (
        "{Name:(string)v VolumeSource:(core.VolumeSource){HostPath:(*core.HostPathVolumeSource){Path:(string)/x "
        in text
    )
    assert "Port:(intstr.IntOrString){Type:(intstr.Type)1 IntVal:(int32)0 StrVal:(string)http}" in text
    amount = "{i:(resource.int64Amount){value:(int64)100 scale:(resource.Scale)-3}"
    assert f"Limits:(core.ResourceList)map[cpu:{amount} d:(resource.infDecAmount){{Dec:(*inf.Dec)<nil>}}" in text
    assert "s:(string)100m Format:(resource.Format)DecimalSI}] Requests:(core.ResourceList)map[cpu:" in text


@pytest.mark.parametrize(
    ("quantity", "value", "scale", "text", "form"),
    [
        ("1Gi", 2**30, 0, "1Gi", "BinarySI"),
        ("128Mi", 2**27, 0, "", "BinarySI"),  # the text is kept for a number that 8 does not divide
        ("100Mi", 100 << 20, 0, "100Mi", "BinarySI"),
        ("1.5", 15, -1, "", "DecimalSI"),  # and for an exponent that 3 divides
        (2, 2, 0, "2", "DecimalSI"),
        (1.0, 1, 0, "1", "DecimalSI"),
        ("250m", 250, -3, "250m", "DecimalSI"),
        ("1000m", 1000, -3, "", "DecimalSI"),
        ("1e3", 1, 3, "1e3", "DecimalExponent"),
        ("0.5", 5, -1, "", "DecimalSI"),
        ("0", 0, 0, "0", "DecimalSI"),
        (0, 0, 0, "0", "DecimalSI"),
        (None, 0, 0, "", ""),  # an absent one
        ("1u", 1, -3, "", "DecimalSI"),  # rounded up to milli, which drops the cached text
    ],
)
def test_quantities_are_printed_as_go_keeps_them(quantity: Any, value: int, scale: int, text: str, form: str) -> None:
    printed = printed_quantity(quantity)
    assert printed.startswith(f"{{i:(resource.int64Amount){{value:(int64){value} scale:(resource.Scale){scale}}}")
    assert printed.endswith(f"s:(string){text} Format:(resource.Format){form}}}")


@pytest.mark.parametrize(
    ("quantity", "digits", "form"),
    [
        ("1.5Gi", "1610612736000", "BinarySI"),
        ("0.5Ki", "512000", "BinarySI"),
        ("100Ti", "109951162777600000", "BinarySI"),
        ("0.1Ki", "102400", "BinarySI"),
        ("1234567890123456789", "17082781258626382344 66", "DecimalSI"),
    ],
)
def test_large_amounts_and_fractions_are_printed_as_big_decimals(quantity: str, digits: str, form: str) -> None:
    number = f"{{neg:(bool)false abs:(big.nat)[{digits}]}}"
    assert printed_quantity(quantity) == (
        "{i:(resource.int64Amount){value:(int64)0 scale:(resource.Scale)0} d:(resource.infDecAmount){Dec:(*inf.Dec)"
        f"{{unscaled:(big.Int){number} scale:(inf.Scale)3}}}} s:(string) Format:(resource.Format){form}}}"
    )


@pytest.mark.parametrize("memory", ["0.0Gi", "100emm", "1e" + "9" * 5000, "1e-999999999"])
def test_quantity_without_a_print_still_gives_a_uid(memory: str) -> None:
    big = pod(containers=[{"name": "c", "image": "i", "resources": {"limits": {"memory": memory}}}])
    with pytest.raises(NotPrintable):
        printed_pod(big)
    assert len(static_pod_uid(big, "/m", "n")) == 32


def test_text_of_many_zeros_takes_no_quadratic_time() -> None:
    began = time.process_time()
    with pytest.raises(NotPrintable):
        printed_quantity("0" * 200_000 + "!")
    assert time.process_time() - began < 1.0, "seconds of CPU time"


def test_every_api_field_is_in_the_table_of_go_types() -> None:
    """A field that the table lacked would leave a change of it without a new UID."""
    records = {name: RECORDS[name] for name in STRUCTS if name in RECORDS}
    records["v1.ObjectMeta"] = v1.ObjectMeta
    elsewhere = {
        "hostNetwork",
        "hostPID",
        "hostIPC",
        "shareProcessNamespace",
        "hostUsers",
        "serviceAccount",
        "podIP",
        "apiVersion",
        "kind",
    }
    for name, record in records.items():
        if name in ("Pod", "ObjectFieldSelector"):
            continue
        inlined = [inner for field in STRUCTS[name] if field.json == "." for inner in STRUCTS[field.type]]
        known = {field.json for field in (*STRUCTS[name], *inlined)}
        assert set(record.__struct_encode_fields__) - elsewhere <= known, name
