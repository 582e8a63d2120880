import pytest

from actors._cgroup.names import pod_cgroup, pod_uid, qos_cgroup
from actors._cgroup.quantities.qos import QosClass

UID = "5a1ea0a8-649c-4e2b-b55d-c78dd00bcab6"
UNDERSCORED = UID.replace("-", "_")
HASH = "0f3c1d0e8a6f4f5a9d9b1b7f1f2e3d4c"


@pytest.mark.parametrize(
    ("driver", "root", "qos", "expected"),
    [
        ("cgroupfs", "/", "Burstable", f"/kubepods/burstable/pod{UID}"),
        ("cgroupfs", "", "BestEffort", f"/kubepods/besteffort/pod{UID}"),
        ("cgroupfs", "/", "Guaranteed", f"/kubepods/pod{UID}"),
        ("cgroupfs", "/a/b", "Guaranteed", f"/a/b/kubepods/pod{UID}"),
        (
            "systemd",
            "/",
            "Burstable",
            f"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{UNDERSCORED}.slice",
        ),
        ("systemd", "/", "Guaranteed", f"/kubepods.slice/kubepods-pod{UNDERSCORED}.slice"),
        ("systemd", "/a.slice", "Guaranteed", f"/a.slice/a-kubepods.slice/a-kubepods-pod{UNDERSCORED}.slice"),
    ],
)
def test_names_are_the_kubelets(driver: str, root: str, qos: QosClass, expected: str) -> None:
    assert pod_cgroup(driver, root, True, qos, UID) == expected
    assert qos_cgroup(driver, root, qos) == expected.rpartition("/")[0]


def test_without_a_cgroup_per_class_the_runtime_chooses() -> None:
    assert pod_cgroup("cgroupfs", "/", False, "Burstable", UID) == ""


@pytest.mark.parametrize("driver", ["cgroupfs", "systemd"])
@pytest.mark.parametrize("uid", [UID, HASH])
@pytest.mark.parametrize("qos", ["Guaranteed", "Burstable", "BestEffort"])
def test_pod_uid_is_read_from_the_directory_name(driver: str, uid: str, qos: QosClass) -> None:
    assert pod_uid(driver, pod_cgroup(driver, "/", True, qos, uid).rpartition("/")[2]) == uid


@pytest.mark.parametrize("name", ["burstable", "cgroup.procs", "kubepods-burstable.slice", "kubepods.slice", "x.scope"])
@pytest.mark.parametrize("driver", ["cgroupfs", "systemd"])
def test_other_directories_have_no_pod_uid(driver: str, name: str) -> None:
    assert pod_uid(driver, name) == ""
