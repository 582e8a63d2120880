"""The print behind a static pod's UID: Go's, as far as it is known here."""

# ruff: noqa: E501 - the prints are long

import hashlib
import time
from typing import Any

import pytest

from actors.config.defaulting.defaults import default_pod
from actors.config.pods.podhash import STRUCTS, printed_pod, static_pod_uid
from actors.config.pods.podhash_quantity import NotPrintable, printed_quantity
from proto import v1
from tests.proto.records import RECORDS


def pod(**spec: Any) -> v1.Pod:
    plain = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": spec}
    return default_pod(v1.from_dict(v1.Pod, plain))


def test_uid_is_md5_of_print_then_node_then_file() -> None:
    text = printed_pod(pod()) + "host:n" + "file:/m/a.yaml"
    assert static_pod_uid(pod(), "/m/a.yaml", "n") == hashlib.md5(text.encode()).hexdigest()


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
        ("1.5", 15, -1, "1.5", "DecimalSI"),
        (2, 2, 0, "2", "DecimalSI"),
        ("1e3", 1, 3, "1e3", "DecimalExponent"),
        ("0.5", 5, -1, "0.5", "DecimalSI"),
        ("1u", 1, -3, "", "DecimalSI"),  # rounded up to milli, which drops the cached text
    ],
)
def test_quantities_are_printed_as_go_keeps_them(quantity: Any, value: int, scale: int, text: str, form: str) -> None:
    printed = printed_quantity(quantity)
    assert printed.startswith(f"{{i:(resource.int64Amount){{value:(int64){value} scale:(resource.Scale){scale}}}")
    assert printed.endswith(f"s:(string){text} Format:(resource.Format){form}}}")


@pytest.mark.parametrize("memory", ["1.5Gi", "100emm", "1e" + "9" * 5000])
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
