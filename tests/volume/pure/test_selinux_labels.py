"""The label that each volume is mounted with, conflicts of pods about it, and the kubelet's metrics of them."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from actors._host.selinux import LabelError, SELinux
from actors._metrics import kubelet as metrics
from actors._metrics.registry import Gauge
from actors.volume import selinux_labels
from actors.volume.drivers.labels import Labels
from actors.volume.plugins.base import CannotMount, Claimed, Context
from actors.volume.steps.volumes import Block, EmptyDir, Files, HostPath, Local, Mount
from proto.pods.objects import ApiObject, ObjectRef
from proto.v1 import Pod, Volume
from proto.v1.cluster import PersistentVolume, PersistentVolumeClaim
from proto.v1.codec import from_dict

FILE = "system_u:object_r:container_file_t:s0"
ON = SELinux(enabled=True, process="system_u:system_r:container_t:s0", file=FILE)
A, B = "s0:c1,c2", "s0:c3,c4"
KEY = ("csi.test", "vol-1")


def pod(
    level: str = A, *, uid: str = "a", policy: str | None = None, namespace: str = "ns", levels: tuple[str, ...] = ()
) -> Pod:
    """A pod with a container that mounts the volume `v`, and another one for each of `levels`."""
    mount = [{"name": "v", "mountPath": "/v"}]
    more = [
        {"name": f"c{number}", "volumeMounts": mount, "securityContext": {"seLinuxOptions": {"level": one}}}
        for number, one in enumerate(levels)
    ]
    security: dict[str, Any] = {"seLinuxOptions": {"level": level}} if level else {}
    if policy:
        security["seLinuxChangePolicy"] = policy
    return from_dict(
        Pod,
        {
            "metadata": {"name": f"pod-{uid}", "namespace": namespace, "uid": uid},
            "spec": {
                "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}],
                "securityContext": security,
                "containers": [{"name": "main", "volumeMounts": mount}, *more],
            },
        },
    )


def claimed(*modes: str, **spec: Any) -> Claimed:
    document = {
        "metadata": {"name": "pv-1"},
        "spec": {"accessModes": list(modes), "csi": {"driver": KEY[0], "volumeHandle": KEY[1]}, **spec},
    }
    return Claimed(from_dict(PersistentVolume, document), PersistentVolumeClaim(), ("csi",))


def context(*, by_mount: bool = True) -> Context:
    ref = ObjectRef(kind="CSIDriver", name=KEY[0])
    spec = {"metadata": {"name": KEY[0]}, "spec": {"seLinuxMount": by_mount}}
    return Context(objects={ref: ApiObject(ref=ref, resource_version="1", document=spec)})


class Subject:
    """Labels under test, with the pods that it has told to try again."""

    def __init__(self, selinux: SELinux = ON, *, every_mode: bool = False) -> None:
        self.freed: list[tuple[str, str]] = []
        self.labels = Labels(selinux, lambda uid, name: self.freed.append((uid, name)), every_mode=every_mode)

    def admit(self, pod: Pod, modes: tuple[str, ...] = ("ReadWriteOncePod",), *, by_mount: bool = True) -> str:
        return self.labels.admit(pod, pod.spec.volumes[0], claimed(*modes), context(by_mount=by_mount))


@pytest.fixture(autouse=True)
def _no_samples() -> None:
    for gauge in vars(metrics).values():
        if isinstance(gauge, Gauge) and gauge.name.startswith("volume_manager_selinux"):
            gauge.replace(())


@pytest.mark.parametrize(
    ("modes", "every_mode", "by_mount", "policy", "level", "label"),
    [
        (("ReadWriteOncePod",), False, True, None, A, f"{FILE}:c1,c2"),
        (("ReadWriteOncePod",), False, True, "MountOption", A, f"{FILE}:c1,c2"),
        (("ReadWriteOncePod",), False, True, "Recursive", A, ""),
        (("ReadWriteOncePod",), False, False, None, A, ""),
        (("ReadWriteOncePod",), False, True, None, "", ""),
        (("ReadWriteOnce",), False, True, None, A, ""),
        (("ReadWriteOncePod", "ReadWriteOnce"), False, True, None, A, ""),
        (("ReadWriteOnce",), True, True, None, A, f"{FILE}:c1,c2"),
        (("ReadWriteMany", "ReadOnlyMany"), True, True, None, A, f"{FILE}:c1,c2"),
    ],
)
def test_mode_driver_policy_and_level_decide_about_a_label(
    modes: tuple[str, ...], every_mode: bool, by_mount: bool, policy: str | None, level: str, label: str
) -> None:
    subject = Subject(every_mode=every_mode)
    assert subject.admit(pod(level, policy=policy), modes, by_mount=by_mount) == label
    assert subject.labels.of("a", "v") == label


def test_without_selinux_no_volume_has_a_label() -> None:
    assert Subject(SELinux()).admit(pod()) == ""


def test_devices_and_volumes_without_a_driver_have_no_label() -> None:
    subject = Subject().labels
    one = pod()
    assert subject.admit(one, one.spec.volumes[0], claimed("ReadWriteOncePod", volumeMode="Block"), context()) == ""
    local = claimed("ReadWriteOncePod", csi=None, local={"path": "/d"})
    assert subject.admit(one, one.spec.volumes[0], local, context()) == ""
    assert subject.admit(one, Volume(name="e"), None, context()) == ""


def test_containers_own_options_come_before_the_pods() -> None:
    one = pod("", levels=(A,))
    assert selinux_labels.mount_label(one, "v", ON) == f"{FILE}:c1,c2", "the container without options has no say"
    with pytest.raises(LabelError, match=r"multiple SELinux labels found: .*c1,c2,.*c3,c4"):
        selinux_labels.mount_label(pod(A, levels=(B,)), "v", ON)
    assert selinux_labels.mount_label(pod(A, levels=(A,)), "v", ON) == f"{FILE}:c1,c2"


def test_pod_with_several_labels_waits_only_if_the_mode_counts() -> None:
    subject = Subject()
    with pytest.raises(CannotMount, match="multiple SELinux labels"):
        subject.admit(pod(A, levels=(B,)))
    assert metrics.SELINUX_POD_ERRORS.take() == {("RWOP",): (1.0,)}
    for _ in range(2):
        assert subject.admit(pod(A, levels=(B,)), ("ReadWriteMany", "ReadWriteOnce")) == ""
    assert metrics.SELINUX_POD_WARNINGS.take() == {("RWX",): (1.0,)}


def test_message_about_many_labels_is_short() -> None:
    levels = tuple(f"s0:c{number}" for number in range(500))
    with pytest.raises(LabelError) as caught:
        selinux_labels.mount_label(pod(A, levels=levels), "v", ON)
    assert len(str(caught.value)) < 1000


def test_options_without_a_label_are_an_error_of_the_container() -> None:
    with pytest.raises(CannotMount, match="failed to construct SELinux label"):
        Subject().admit(pod('s0"'))
    assert metrics.SELINUX_CONTAINER_ERRORS.take() == {("RWOP",): (1.0,)}
    assert Subject().admit(pod('s0"'), ("ReadOnlyMany",)) == ""
    assert metrics.SELINUX_CONTAINER_WARNINGS.take() == {("ROX",): (1.0,)}


def test_second_pod_with_another_label_waits_for_the_first() -> None:
    subject = Subject()
    subject.admit(pod(A))
    for _ in range(2):
        with pytest.raises(CannotMount) as caught:
            subject.admit(pod(B, uid="b"))
    both = f'conflicting SELinux labels of volume pv-1: "{FILE}:c1,c2" and "{FILE}:c3,c4"'
    assert str(caught.value) == f"{both}; pod ns/pod-a uses it"
    assert (caught.value.stage, caught.value.retry) == ("", True)
    assert metrics.SELINUX_VOLUME_ERRORS.take() == {("kubernetes.io/csi/csi.test", "RWOP"): (2.0,)}
    assert metrics.SELINUX_ADMITTED.take() == {("kubernetes.io/csi/csi.test", "RWOP"): (1.0,)}
    subject.labels.drop("a")
    assert subject.freed == [("b", "v")]
    assert subject.admit(pod(B, uid="b")) == f"{FILE}:c3,c4"


def test_pod_that_stops_waiting_is_not_tried_again() -> None:
    subject = Subject()
    subject.admit(pod(A))
    with pytest.raises(CannotMount):
        subject.admit(pod(B, uid="b"))
    subject.labels.drop("b")
    subject.labels.drop("a")
    assert subject.freed == []


def test_claim_that_is_bound_anew_leaves_the_volume_of_before() -> None:
    subject = Subject()
    subject.admit(pod(A))
    with pytest.raises(CannotMount):
        subject.admit(pod(B, uid="b"))
    one = pod(A)
    other = claimed("ReadWriteOncePod", csi={"driver": KEY[0], "volumeHandle": "vol-2"})
    subject.labels.admit(one, one.spec.volumes[0], other, context())
    assert subject.freed == [("b", "v")]
    assert subject.admit(pod(B, uid="b")) == f"{FILE}:c3,c4"


def test_pods_with_one_label_share_a_volume() -> None:
    subject = Subject(every_mode=True)
    assert {subject.admit(pod(A, uid=uid), ("ReadWriteMany",)) for uid in "abc"} == {f"{FILE}:c1,c2"}
    subject.labels.drop("a")
    with pytest.raises(CannotMount, match="pod ns/pod-b uses it"):
        subject.admit(pod(B, uid="d"), ("ReadWriteMany",))


def test_recursive_pod_waits_for_one_with_a_mount_option() -> None:
    subject = Subject(every_mode=True)
    subject.admit(pod(A))
    with pytest.raises(CannotMount, match='c1,c2" and ""'):
        subject.admit(pod(A, uid="b", policy="Recursive"))


def test_pod_of_another_namespace_is_not_named() -> None:
    subject = Subject()
    subject.admit(pod(A, namespace="secret"))
    with pytest.raises(CannotMount) as caught:
        subject.admit(pod(B, uid="b"))
    assert "pod-a" not in str(caught.value)


def test_conflict_in_a_mode_without_labels_is_a_warning() -> None:
    subject = Subject()
    subject.admit(pod(A), ("ReadWriteOnce",))
    for _ in range(2):
        assert subject.admit(pod(B, uid="b"), ("ReadWriteOnce",)) == ""
    assert metrics.SELINUX_VOLUME_WARNINGS.take() == {("kubernetes.io/csi/csi.test", "RWO"): (1.0,)}


def test_labels_on_disk_hold_before_their_pods_ask_again() -> None:
    subject = Subject()
    subject.labels.take_over({("a", "v"): (KEY, f"{FILE}:c1,c2")})
    assert subject.labels.of("a", "v") == f"{FILE}:c1,c2"
    with pytest.raises(CannotMount, match="conflicting SELinux labels"):
        subject.admit(pod(B, uid="b"))
    assert subject.admit(pod(A, uid="c")) == f"{FILE}:c1,c2"


def test_incomplete_volume_of_an_earlier_try_does_not_hold_its_pod() -> None:
    subject = Subject()
    subject.labels.take_over({("a", "pv-1 on disk"): (KEY, f"{FILE}:c9")})
    assert subject.admit(pod(A)) == f"{FILE}:c1,c2"
    with pytest.raises(CannotMount, match="conflicting SELinux labels"):
        subject.admit(pod(B, uid="b"))


def test_pod_cannot_have_one_volume_with_two_labels() -> None:
    subject = Subject()
    one = pod(A)
    again = replace(one, spec=replace(one.spec, volumes=(*one.spec.volumes, replace(one.spec.volumes[0], name="w"))))
    subject.admit(again)
    with pytest.raises(CannotMount, match="conflicting SELinux labels"):
        subject.labels.admit(again, again.spec.volumes[1], claimed("ReadWriteOncePod"), context())


def test_mode_without_labels_gives_no_warning_after_a_restart() -> None:
    """The disk has the label of the mount only, which such a mode does not have."""
    subject = Subject()
    subject.labels.take_over({("a", "v"): (KEY, "")})
    assert subject.admit(pod(A, uid="b"), ("ReadWriteOnce",)) == ""
    assert metrics.SELINUX_VOLUME_WARNINGS.take() == {}


@pytest.mark.parametrize(
    ("step", "labelled"),
    [
        (EmptyDir("u", "p", "n"), True),
        (Files(EmptyDir("u", "p", "n"), ()), True),
        (Local("u", "p", "n", "/d"), True),
        (HostPath("n", "/h"), False),
        (Mount("u", "p", "n", "s:/e", "nfs", ()), False),
        (Block("u", "p", "n", "/d"), False),
    ],
)
def test_runtime_labels_volumes_of_the_pods_own(step: Any, labelled: bool) -> None:
    assert selinux_labels.is_labelled_by_runtime(step) is labelled


@pytest.mark.parametrize(
    ("source", "read_only"),
    [
        ({"persistentVolumeClaim": {"claimName": "c", "readOnly": True}}, True),
        ({"persistentVolumeClaim": {"claimName": "c"}}, False),
        ({"csi": {"driver": "d", "readOnly": True}}, True),
        ({"secret": {"secretName": "s"}}, False),
        ({}, False),
    ],
)
def test_read_only_volumes_get_no_labels(source: dict[str, Any], read_only: bool) -> None:
    assert selinux_labels.is_read_only(from_dict(Volume, {"name": "v", **source})) is read_only
