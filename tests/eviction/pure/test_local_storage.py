"""Pods that take more ephemeral storage than they may: tables."""

from typing import Any

import pytest

from actors.eviction.local_storage import is_limited, violation
from proto import v1
from proto.node.stats import ContainerUsage, PodUsage, VolumeUse
from proto.v1 import Pod

MI = 1 << 20


def pod(*limits: str, init: str = "", **volumes: str) -> Pod:
    """A container for each limit (empty: none), an emptyDir for each name with its sizeLimit."""

    def container(name: str, limit: str) -> dict[str, Any]:
        return {"name": name, "resources": {"limits": {"ephemeral-storage": limit} if limit else {}}}

    spec = {
        "containers": [container(f"c{number}", limit) for number, limit in enumerate(limits or ("",))],
        "initContainers": [container("i", init)] if init else [],
        "volumes": [
            {"name": name, "emptyDir": {"sizeLimit": limit} if limit else {}} for name, limit in volumes.items()
        ],
    }
    return v1.from_dict(Pod, {"metadata": {"name": "p", "uid": "u"}, "spec": spec})


def usage(disk: int = 0, logs: int = 0, layer: int = 0, **volumes: int) -> PodUsage:
    return PodUsage(
        pod_uid="u",
        memory_working_set_bytes=0,
        disk_bytes=disk,
        containers=(ContainerUsage(name="c0", writable_layer_bytes=layer, log_bytes=logs),),
        volumes=tuple(VolumeUse(name=name, used_bytes=used) for name, used in volumes.items()),
    )


@pytest.mark.parametrize(
    ("subject", "used", "message"),
    [
        (pod(x="1Mi"), usage(x=MI), ""),
        (pod(x="1Mi"), usage(x=MI + 1), 'Usage of EmptyDir volume "x" exceeds the limit "1Mi". '),
        (pod(x="1M", y="1Ki"), usage(x=0, y=2000), 'Usage of EmptyDir volume "y" exceeds the limit "1Ki". '),
        (pod(x="1M"), usage(x=MI), 'Usage of EmptyDir volume "x" exceeds the limit "1M". '),
        (pod(x="0"), usage(x=MI), ""),
        (pod(x=""), usage(x=MI), ""),
        (pod("1Mi", "1Mi"), usage(disk=2 * MI), ""),
        (
            pod("1Mi", "1Mi"),
            usage(disk=2 * MI + 1),
            "Pod ephemeral local storage usage exceeds the total limit of containers 2Mi. ",
        ),
        (pod("1Mi", init="4Mi"), usage(disk=3 * MI), ""),
        (pod("1Mi", "9Mi"), usage(logs=MI), ""),
        (
            pod("1Mi", "9Mi"),
            usage(disk=2 * MI, logs=MI, layer=1),
            'Container c0 exceeded its local ephemeral storage limit "1Mi". ',
        ),
        (pod(), usage(disk=MI, logs=MI, layer=MI), ""),
    ],
)
def test_pods_above_a_limit_get_the_kubelets_message(subject: Pod, used: PodUsage, message: str) -> None:
    assert violation(subject, used, "one disk") == message


def test_a_writable_layer_on_a_disk_of_its_own_does_not_count() -> None:
    used = usage(logs=MI, layer=MI)
    assert violation(pod("1Mi", "9Mi"), used, "images apart") == ""
    assert violation(pod("1Mi", "9Mi"), used, "split") == ""
    assert violation(pod("1Mi", "9Mi"), used, "one disk") != ""


@pytest.mark.parametrize(
    ("subject", "limited"), [(pod(), False), (pod(x=""), False), (pod(x="1Mi"), True), (pod("", "1Mi"), True)]
)
def test_only_pods_with_a_limit_are_looked_after(subject: Pod, limited: bool) -> None:
    assert is_limited(subject) == limited
