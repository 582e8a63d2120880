"""Pods that use one volume each, and what their containers must see of it: the cases of test_volumes.py."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.agent.agent import container, pod
from tests.agent.table import Case, Seen, once

LOOK = "; ".join(
    (
        "cd /v",
        "for f in $(find . -follow -type f ! -path './..*' | sort)",
        'do echo "$f=$(stat -Lc %a,%u,%g $f) $(cat $f)"; done',
        "echo fs=$(stat -fc %T .)",
        "echo dir=$(stat -c %a,%g .)",
        "touch new 2>/dev/null && echo writable=yes || echo writable=no",
    )
)
"""Every file with mode, owner and content; what the directory is, and whether it can be written."""


def objects() -> list[dict[str, Any]]:
    """Objects that the pods of the table refer to."""
    return [
        {"kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"a": "1", "b": "2"}, "binaryData": {"bin": "AAE="}},
        {"kind": "ConfigMap", "metadata": {"name": "frozen"}, "immutable": True, "data": {"a": "1"}},
        {"kind": "ConfigMap", "metadata": {"name": "dots"}, "data": {".hidden": "h", "a..b": "d", "x.y": "1\n2"}},
        {"kind": "ConfigMap", "metadata": {"name": "nothing"}},
        {"kind": "Secret", "metadata": {"name": "s"}, "stringData": {"password": "hunter2", "user": "u"}},
    ]


OWNED = [{"apiVersion": "v1", "kind": "Pod", "name": "ephemeral-claim-vm", "uid": "", "controller": True}]
"""Owner reference of a claim for an ephemeral volume, as its controller writes it."""


def persistent(shared: Path, disk: str, device: str) -> Iterator[dict[str, Any]]:
    """Claims and volumes: a directory of the node that pods share, a disk, a raw device, a path that is made."""
    shared.mkdir()
    (shared / "before").write_text("x")
    grouped = shared.parent / "grouped"
    grouped.mkdir()
    os.chown(grouped, 0, 5555)
    grouped.chmod(0o2770)
    for name, mode, source in (
        ("shared", "Filesystem", {"local": {"path": str(shared)}}),
        ("read", "Filesystem", {"local": {"path": str(shared)}}),
        ("disk", "Filesystem", {"local": {"path": disk}}),
        ("raw", "Block", {"local": {"path": device}}),
        ("export", "Filesystem", {"nfs": {"server": "192.0.2.1", "path": "/export"}}),
        ("ephemeral-claim-vm-v", "Filesystem", {"local": {"path": str(shared)}}),
        ("grouped", "Filesystem", {"hostPath": {"path": str(grouped), "type": "Directory"}}),
        ("path", "Filesystem", {"hostPath": {"path": str(shared.parent / "made"), "type": "DirectoryOrCreate"}}),
    ):
        modes = {"accessModes": ["ReadWriteOnce"], "volumeMode": mode}
        by = {"claimRef": {"namespace": "default", "name": name}, "capacity": {"storage": "1Gi"}}
        gid = {"annotations": {"pv.beta.kubernetes.io/gid": "5555"}} if name == "grouped" else {}
        yield {"kind": "PersistentVolume", "metadata": {"name": f"pv-{name}", **gid}, "spec": {**modes, **by, **source}}
        asks = {"resources": {"requests": {"storage": "1Gi"}}}
        meta = {"name": name, **({"ownerReferences": OWNED} if name == "ephemeral-claim-vm-v" else {})}
        yield {"kind": "PersistentVolumeClaim", "metadata": meta, "spec": {**modes, **asks}}


def claim(name: str, *, read_only: bool = False) -> dict[str, Any]:
    return {"persistentVolumeClaim": {"claimName": name, "readOnly": read_only}}


def with_volume(check: Callable[[Seen], None], script: str = LOOK, spec: Any = None, **source: Any) -> Case:
    """A pod that mounts one volume `v` at /v."""
    mount = {"name": "v", "mountPath": "/v", **source.pop("mount", {})}
    fields = source.pop("container", {"resources": {"limits": {"memory": "32Mi"}}})
    volumes = {"volumes": [{"name": "v", **source}]}
    manifest = once(script, spec={**volumes, **(spec or {})}, volumeMounts=[mount], **fields)
    return Case(manifest, check)


def says(seen: Seen, log: str) -> None:
    assert seen.log() == log


def sees(**expected: str) -> Callable[[Seen], None]:
    """Lines of LOOK; `_` in a name stands for `./`."""

    def check(seen: Seen) -> None:
        assert seen.phase == "Succeeded", seen.status
        found = seen.values()
        wanted = {name.replace("_", "./") if name.startswith("_") else name: value for name, value in expected.items()}
        assert {name: found.get(name) for name in wanted} == wanted
        files = [name for name in found if name.startswith("./")]
        assert sorted(files) == sorted(name for name in wanted if name.startswith("./"))

    return check


def says_nothing(seen: Seen) -> None:
    assert seen.phase == "Pending"


def not_mounted(message: str) -> Callable[[Seen], bool]:
    """Its condition says that."""

    def check(seen: Seen) -> bool:
        return any(
            one.get("reason") == "FailedMount" and message in one.get("message", "")
            for one in seen.status.get("conditions", ())
        )

    return check


def no_writer(seen: Seen) -> None:
    assert seen.values()["writable"] == "no", seen.log()


def fails(message: str, **source: Any) -> Case:
    """A pod whose volume cannot be set up, and says why."""
    case = with_volume(says_nothing, **source)
    return Case(case.manifest, case.check, not_mounted(f'MountVolume.SetUp failed for volume "v" : {message}'))


def refused(message: str) -> Callable[[Seen], None]:
    def check(seen: Seen) -> None:
        assert seen.message() == message

    return check


OF_GROUP = {"securityContext": {"fsGroup": 4321}}
GROUP = {"securityContext": {"fsGroup": 4321, "runAsUser": 1000, "runAsGroup": 1000}}
DOWNWARD = [
    {"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}},
    {"path": "deep/limit", "resourceFieldRef": {"containerName": "c", "resource": "limits.memory", "divisor": "1Mi"}},
]


ODD = {"notes": 'a "b"\n\tc\\d', "build": "é\x07\u00a0", "app.kubernetes.io/part": ""}
"""Annotations with what a line of `key="value"` cannot have as it is."""

AS_USER = {"securityContext": {"runAsUser": 1000, "runAsGroup": 1000}}


LIMITS = {"cpu": "limits.cpu", "memory": "limits.memory", "storage": "limits.ephemeral-storage"}
IMAGE = "docker.io/library/busybox:latest"


def limit(name: str) -> dict[str, str]:
    return {"containerName": "c", "resource": LIMITS[name]}


def of_the_node(seen: Seen) -> None:
    """A limit that is not set is what the node has for pods, in files as in variables."""
    for name, text in seen.values().items():
        file, variable = text.split()
        assert file == variable, (name, text)
        assert int(file) > 0, (name, text)
    assert seen.values().keys() == LIMITS.keys()


def the_runtime_cannot(seen: Seen) -> None:
    """containerd 1.6 knows no image mounts: it takes one for a bind mount of nothing, and that is what the pod says."""
    assert seen.message("c").startswith("failed to generate container"), seen.message("c")


def no_image(message: str) -> None:
    assert message == 'Container image "example.invalid/none:1" is not present with pull policy of Never'


def annotated(case: Case, annotations: dict[str, str]) -> Case:
    return Case({**case.manifest, "metadata": {**case.manifest["metadata"], "annotations": annotations}}, case.check)


def with_device(check: Callable[[Seen], None], script: str, *, read_only: bool = False) -> Case:
    """A pod that has the raw device of the claim `raw` at /dev/xvda."""
    devices = [{"name": "v", "devicePath": "/dev/xvda"}]
    manifest = once(
        script, spec={"volumes": [{"name": "v", **claim("raw", read_only=read_only)}]}, volumeDevices=devices
    )
    return Case(manifest, check)


def with_mounts_beneath(look: str, spec: Any = None, **source: Any) -> Case:
    """Mount the volume `v` at /v, and others beneath it, which can be written.

    One is deep and has a slash at its end, one is a part of a volume, and one is an init container's.
    """
    top = {"name": "v", "mountPath": "/v"}
    mounts = [
        {"name": "e", "mountPath": "/v/data"},
        {"name": "m", "mountPath": "/v/deep/er/"},
        {"name": "e", "mountPath": "/v/x/../part", "subPath": "part"},
        top,
    ]
    places = "/v/data/f /v/deep/er/f /v/part/f"
    script = f"{look}; for f in {places}; do echo $f > $f && cat $f; done; touch /v/new 2>&- || echo refused"
    volumes = [{"name": "v", **source}, {"name": "e", "emptyDir": {}}, {"name": "m", "emptyDir": {"medium": "Memory"}}]
    first = container("i", "echo x > /v/first/f", volumeMounts=[top, {"name": "e", "mountPath": "/v/first"}])
    fields = {"initContainers": [first], "volumes": volumes, **(spec or {})}
    said = "\n".join(("1", *places.split(), "refused", ""))
    return Case(once(script, spec=fields, volumeMounts=mounts), lambda seen: says(seen, said))


def two_containers(script: str, reads: str, **volume: Any) -> dict[str, Any]:
    """An init container that writes to /v, and a container `c` that reads."""
    mounts = [{"name": "v", "mountPath": "/v"}]
    return {
        **once(reads, spec={"volumes": [{"name": "v", **volume}]}, volumeMounts=mounts),
        "spec": {
            **pod("")["spec"],
            "restartPolicy": "Never",
            "volumes": [{"name": "v", **volume}],
            "initContainers": [container("i", script, volumeMounts=mounts)],
            "containers": [container("c", reads, volumeMounts=mounts)],
        },
    }


CASES = {
    "empty": Case(
        two_containers("mkdir /v/d; echo x > /v/d/f", "echo got=$(cat /v/d/f) dir=$(stat -c %a /v)", emptyDir={}),
        lambda seen: says(seen, "got=x dir=777\n"),
    ),
    "memory": with_volume(
        sees(fs="tmpfs", dir="3777,4321", writable="yes", size="1024"),
        LOOK + "; echo size=$(df -k /v | tail -1 | awk '{print $2}')",
        spec={"securityContext": {"fsGroup": 4321}},
        emptyDir={"medium": "Memory", "sizeLimit": "1Mi"},
    ),
    "huge": with_volume(
        lambda seen: says(seen, "hugetlbfs rw 2775,4321\n2097152\n"),
        "set -- $(grep ' /v ' /proc/mounts); echo $3 ${4%%,*} $(stat -c %a,%g /v); truncate -s 2M /v/f && wc -c < /v/f",
        spec=OF_GROUP,
        container={"resources": {"limits": {"memory": "32Mi", "hugepages-2Mi": "2Mi"}}},
        emptyDir={"medium": "HugePages-2Mi"},
    ),
    "configmap": with_volume(
        sees(_a="644,0,0 1", _b="644,0,0 2", _bin="644,0,0 \x01", writable="no"), configMap={"name": "c"}
    ),
    "items": with_volume(
        sees(**{"./x/y": "400,0,0 2", "writable": "no"}),
        configMap={"name": "c", "items": [{"key": "b", "path": "x/y", "mode": 0o400}]},
    ),
    "optional": with_volume(sees(writable="no"), configMap={"name": "none", "optional": True}),
    "optional-key": with_volume(
        sees(_a="644,0,0 1", writable="no"),
        configMap={"name": "c", "optional": True, "items": [{"key": "no", "path": "no"}, {"key": "a", "path": "a"}]},
    ),
    "dots": with_volume(
        sees(**{"./.hidden": "644,0,0 h", "./a..b": "644,0,0 d", "./x.y": "644,0,0 1"}, writable="no"),
        configMap={"name": "dots"},
    ),
    "no-data": with_volume(sees(writable="no", dir="777,0"), configMap={"name": "nothing"}),
    "immutable": with_volume(sees(_a="644,0,0 1", writable="no"), configMap={"name": "frozen"}),
    "user": with_volume(
        lambda seen: says(seen, "1\nrefused\n"),
        "cat /v/a; echo; cat /v/b 2>/dev/null || echo refused",
        spec=AS_USER,
        configMap={"name": "c", "items": [{"key": "a", "path": "a"}, {"key": "b", "path": "b", "mode": 0o400}]},
    ),
    "user-empty": with_volume(
        lambda seen: says(seen, "drwxrwxrwx 0 0\n666 1000 1000 x\n"),
        "stat -c '%A %u %g' /v; umask 0; echo x > /v/f; echo $(stat -c '%a %u %g' /v/f) $(cat /v/f)",
        spec=AS_USER,
        emptyDir={},
    ),
    "user-memory": with_volume(
        lambda seen: says(seen, "1777\n644 1000 4321 x\n"),
        "stat -c %a /v | sed s/^3/1/; umask 022; echo x > /v/f; echo $(stat -c '%a %u %g' /v/f) $(cat /v/f)",
        spec=GROUP,
        emptyDir={"medium": "Memory"},
    ),
    "read-only": with_volume(no_writer, mount={"readOnly": True}, emptyDir={}),
    "secret": with_volume(
        sees(_password="400,0,0 hunter2", _user="400,0,0 u", fs="tmpfs", writable="no"),
        secret={"secretName": "s", "defaultMode": 0o400},
    ),
    "group": with_volume(
        sees(_password="440,0,4321 hunter2", _user="440,0,4321 u", fs="tmpfs", writable="no"),
        spec=GROUP,
        secret={"secretName": "s", "defaultMode": 0o400},
    ),
    "downward": with_volume(
        sees(**{"./labels": '644,0,0 app=""', "./deep/limit": "644,0,0 32", "fs": "tmpfs", "writable": "no"}),
        downwardAPI={"items": DOWNWARD},
    ),
    "downward-odd": with_volume(
        lambda seen: says(
            seen, 'app.kubernetes.io/part=""\nbuild="é\\a\\u00a0"\nnotes="a \\"b\\"\\n\\tc\\\\d"\n\n400 440\n'
        ),
        "grep -v ^kubernetes.io/config /v/all; echo; cat /v/one; echo $(stat -Lc %a /v/one /v/all)",
        downwardAPI={
            "defaultMode": 0o440,
            "items": [
                {"path": "all", "fieldRef": {"fieldPath": "metadata.annotations"}},
                {"path": "one", "fieldRef": {"fieldPath": "metadata.annotations['no']"}, "mode": 0o400},
            ],
        },
    ),
    "projected": with_volume(
        sees(_a="440,0,0 1", _password="440,0,0 hunter2", **{"./pod/labels": '440,0,0 app=""'}, fs="tmpfs"),
        projected={
            "defaultMode": 0o440,
            "sources": [
                {"configMap": {"name": "c", "items": [{"key": "a", "path": "a"}]}},
                {"secret": {"name": "s", "items": [{"key": "password", "path": "password"}]}},
                {"downwardAPI": {"items": [{**DOWNWARD[0], "path": "pod/labels"}]}},
            ],
        },
    ),
    "claim": with_volume(
        lambda seen: says(seen, "664,4321 x mine\n"),
        "echo mine > /v/mine; echo $(stat -c %a,%g /v/before) $(cat /v/before) $(cat /v/mine)",
        spec=OF_GROUP,
        **claim("shared"),
    ),
    "claim-read-only": with_volume(no_writer, **claim("read", read_only=True)),
    "claim-disk": with_volume(sees(fs="ext2/ext3", dir="2775,4321", writable="yes"), spec=OF_GROUP, **claim("disk")),
    "claim-group": with_volume(
        lambda seen: says(seen, "1000 4321 5555\nx 5555\n"),
        "id -G; echo x > /v/f; echo $(cat /v/f) $(stat -c %g /v/f)",
        spec=GROUP,
        **claim("grouped"),
    ),
    "claim-path": with_volume(sees(writable="yes", dir="755,0"), **claim("path")),
    "nfs": with_volume(
        lambda seen: says(seen, "x tmpfs\n"),
        "echo x > /v/f; echo $(cat /v/f) $(stat -fc %T /v)",
        nfs={"server": "192.0.2.1", "path": "/export"},
    ),
    "claim-nfs": with_volume(
        lambda seen: says(seen, "x tmpfs\n"), "echo x > /v/f; echo $(cat /v/f) $(stat -fc %T /v)", **claim("export")
    ),
    "nfs-denied": fails("mount failed: exit status 32", nfs={"server": "denied", "path": "/export"}),
    "ephemeral-claim": with_volume(
        lambda seen: says(seen, "x x\n"),
        "echo x > /v/own; echo $(cat /v/before) $(cat /v/own)",
        ephemeral={"volumeClaimTemplate": {"spec": {"accessModes": ["ReadWriteOnce"]}}},
    ),
    "claim-raw": with_device(
        lambda seen: says(seen, "block special file\nwritten\n"),
        "stat -c %F /dev/xvda; echo written > /dev/xvda; head -c 8 /dev/xvda",
    ),
    "claim-raw-read-only": with_device(
        lambda seen: says(seen, "read\nrefused\n"),
        "head -c 8 /dev/xvda > /dev/null && echo read; (echo x > /dev/xvda) 2>/dev/null || echo refused",
        read_only=True,
    ),
    "downward-node": with_volume(
        of_the_node,
        "; ".join(f"echo {name}=$(cat /v/{name}) ${name}" for name in LIMITS),
        downwardAPI={"items": [{"path": name, "resourceFieldRef": limit(name)} for name in LIMITS]},
        container={"env": [{"name": name, "valueFrom": {"resourceFieldRef": limit(name)}} for name in LIMITS]},
    ),
    "image": Case(
        with_volume(says_nothing, image={"reference": IMAGE, "pullPolicy": "IfNotPresent"}).manifest,
        the_runtime_cannot,
        lambda seen: seen.reason("c") in ("CreateContainerError", "RunContainerError"),
    ),
    "image-none": Case(
        with_volume(says_nothing, image={"reference": "example.invalid/none:1", "pullPolicy": "Never"}).manifest,
        lambda seen: no_image(seen.message("c")),
        lambda seen: seen.reason("c") == "ErrImageNeverPull",
    ),
    "no-claim": Case(
        with_volume(says_nothing, **claim("none")).manifest,
        says_nothing,
        not_mounted('PVC default/none: failed to fetch PVC from API server: persistentvolumeclaims "none" not found'),
    ),
    "no-configmap": fails('configmap "none" not found', configMap={"name": "none"}),
    "no-key": fails(
        "references non-existent secret key: no", secret={"secretName": "s", "items": [{"key": "no", "path": "p"}]}
    ),
    "no-path": fails(
        "hostPath type check failed: /no/such is not a directory", hostPath={"path": "/no/such", "type": "Directory"}
    ),
}

_ONE = {"name": "c", "items": [{"key": "a", "path": "a"}]}
CASES |= {
    "beneath-configmap": with_mounts_beneath("cat /v/a; echo", configMap=_ONE),
    "beneath-configmap-of-group": with_mounts_beneath("cat /v/a; echo", GROUP, configMap=_ONE),
    "beneath-secret": with_mounts_beneath("grep -c hunter2 /v/password", secret={"secretName": "s"}),
    "beneath-downward": with_mounts_beneath("grep -c app /v/labels", downwardAPI={"items": DOWNWARD[:1]}),
    "beneath-projected": with_mounts_beneath("cat /v/a; echo", AS_USER, projected={"sources": [{"configMap": _ONE}]}),
}
"""Volumes that are always read-only in containers, with mounts beneath them."""

CASES["downward-odd"] = annotated(CASES["downward-odd"], ODD)
