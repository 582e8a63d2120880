"""Volumes as containers see them: every plugin is written and read through a container."""

from __future__ import annotations

import os
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.agent.agent import Agent, container, pod
from tests.agent.table import Case, Seen, Table, once, over, ready, running, waits
from tests.containerd import ContainerdInstance
from tests.harness import wait_for

pytestmark = pytest.mark.containerd

CHANGES = int(os.environ.get("NODEVISOR_CHANGES", "25"))
"""Of a ConfigMap while a container reads it: 100 before a release, and then none may take a second."""

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
    """What the pods of the table refer to."""
    return [
        {"kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"a": "1", "b": "2"}, "binaryData": {"bin": "AAE="}},
        {"kind": "ConfigMap", "metadata": {"name": "frozen"}, "immutable": True, "data": {"a": "1"}},
        {"kind": "Secret", "metadata": {"name": "s"}, "stringData": {"password": "hunter2", "user": "u"}},
    ]


def persistent(shared: Path, device: str) -> Iterator[dict[str, Any]]:
    """Claims and volumes: a directory of the node that pods share, a disk, a path that is made."""
    shared.mkdir()
    (shared / "before").write_text("x")
    for name, source in (
        ("shared", {"local": {"path": str(shared)}}),
        ("disk", {"local": {"path": device}}),
        ("path", {"hostPath": {"path": str(shared.parent / "made"), "type": "DirectoryOrCreate"}}),
    ):
        modes = {"accessModes": ["ReadWriteOnce"]}
        by = {"claimRef": {"namespace": "default", "name": name}, "capacity": {"storage": "1Gi"}}
        yield {"kind": "PersistentVolume", "metadata": {"name": f"pv-{name}"}, "spec": {**modes, **by, **source}}
        asks = {"resources": {"requests": {"storage": "1Gi"}}}
        yield {"kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": {**modes, **asks}}


def claim(name: str, *, read_only: bool = False) -> dict[str, Any]:
    return {"persistentVolumeClaim": {"claimName": name, "readOnly": read_only}}


def with_volume(check: Callable[[Seen], None], script: str = LOOK, spec: Any = None, **source: Any) -> Case:
    """A pod that mounts one volume `v` at /v."""
    mount = {"name": "v", "mountPath": "/v", **source.pop("mount", {})}
    limits = {"limits": {"memory": "32Mi"}}
    volumes = {"volumes": [{"name": "v", **source}]}
    manifest = once(script, spec={**volumes, **(spec or {})}, volumeMounts=[mount], resources=limits)
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


OF_GROUP = {"securityContext": {"fsGroup": 4321}}
GROUP = {"securityContext": {"fsGroup": 4321, "runAsUser": 1000, "runAsGroup": 1000}}
DOWNWARD = [
    {"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}},
    {"path": "deep/limit", "resourceFieldRef": {"containerName": "c", "resource": "limits.memory", "divisor": "1Mi"}},
]


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
    "configmap": with_volume(
        sees(_a="644,0,0 1", _b="644,0,0 2", _bin="644,0,0 \x01", writable="no"), configMap={"name": "c"}
    ),
    "items": with_volume(
        sees(**{"./x/y": "400,0,0 2", "writable": "no"}),
        configMap={"name": "c", "items": [{"key": "b", "path": "x/y", "mode": 0o400}]},
    ),
    "optional": with_volume(sees(writable="no"), configMap={"name": "none", "optional": True}),
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
    "claim-read-only": with_volume(no_writer, **claim("shared", read_only=True)),
    "claim-disk": with_volume(sees(fs="ext2/ext3", dir="2775,4321", writable="yes"), spec=OF_GROUP, **claim("disk")),
    "claim-path": with_volume(sees(writable="yes", dir="755,0"), **claim("path")),
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


def sees_parts(seen: Seen) -> None:
    assert seen.log() == "got=x\nown=part\nlogs\npart\nsub\n", seen.log()


def _parts() -> dict[str, Any]:
    """Parts of a volume: a file, a directory that is made, one by a variable."""
    volumes = [{"name": "v", "emptyDir": {}}]
    whole = {"name": "v", "mountPath": "/whole"}
    mounts = [
        whole,
        {"name": "v", "mountPath": "/v", "subPath": "sub/file"},
        {"name": "v", "mountPath": "/own", "subPathExpr": "$(POD_NAME)"},
        {"name": "v", "mountPath": "/made", "subPath": "logs/deep"},
    ]
    env = [{"name": "POD_NAME", "value": "part"}]
    first = container(
        "i", "mkdir /whole/sub /whole/part; echo x > /whole/sub/file; echo part > /whole/part/f", volumeMounts=[whole]
    )
    script = "echo got=$(cat /v); echo own=$(cat /own/f); touch /made/f; ls /whole; test -f /whole/logs/deep/f"
    manifest = pod("", container("c", script, env=env, volumeMounts=mounts), restartPolicy="Never", volumes=volumes)
    manifest["spec"]["initContainers"] = [first]
    return manifest


def refused(message: str) -> Callable[[Seen], None]:
    def check(seen: Seen) -> None:
        assert seen.message() == message

    return check


def _escape(target: str) -> dict[str, Any]:
    """An init container puts a link into the volume, and the container mounts what it leads to."""
    volumes = [{"name": "v", "emptyDir": {}}]
    first = container("i", f"ln -s {target} /v/link", volumeMounts=[{"name": "v", "mountPath": "/v"}])
    main = container("c", "ls /v", volumeMounts=[{"name": "v", "mountPath": "/v", "subPath": "link"}])
    return {**pod("", main, volumes=volumes, initContainers=[first])}


NOT_PREPARED = 'failed to prepare subPath for volumeMount "v" of container "c"'
CASES["part"] = Case(_parts(), sees_parts)
CASES["escape"] = Case(_escape("/etc"), refused(NOT_PREPARED), waits("CreateContainerConfigError"))
CASES["escape-up"] = Case(_escape("../../../.."), refused(NOT_PREPARED), waits("CreateContainerConfigError"))


READERS = [f"r{number}" for number in range(6)]


def _race() -> dict[str, Any]:
    """A sidecar exchanges, as fast as it can, a directory for links out of the volume, while containers mount it."""
    whole = [{"name": "v", "mountPath": "/v"}]
    script = (
        "mkdir /v/real /v/link; touch /v/real/in /v/started; cd /v; while true; do "
        "for to in /etc ../../../../../../../../etc real; do ln -s $to next; rm -rf link; mv next link; done; "
        "rm link; mkdir link; touch link/in; done"
    )
    ready = {"exec": {"command": ["test", "-e", "/v/started"]}, "periodSeconds": 1}
    swaps = container("swaps", script, volumeMounts=whole, restartPolicy="Always", startupProbe=ready)
    part = [{"name": "v", "mountPath": "/part", "subPath": "link"}]
    look = "[ -e /part/passwd ] && echo out; ls -A /part; sleep 1"
    mains = [container(name, look, volumeMounts=part) for name in READERS]
    volumes = [{"name": "v", "emptyDir": {}}]
    return pod("", *mains, volumes=volumes, initContainers=[swaps], restartPolicy="Never")


def tried(seen: Seen) -> bool:
    """Each has had its part mounted, or been refused it."""
    return all(
        seen.container(name).get("state", {}).get("terminated") or seen.reason(name) == "CreateContainerConfigError"
        for name in READERS
    )


def stays_inside(seen: Seen) -> None:
    for name in READERS:
        assert seen.log(name) in ("", "in\n"), seen.log(name)
        if not seen.container(name)["state"].get("terminated"):
            assert seen.message(name) == f'failed to prepare subPath for volumeMount "v" of container "{name}"'


CASES["race"] = Case(_race(), stays_inside, tried)


@pytest.fixture(scope="module")
def table(containerd: ContainerdInstance, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Table]:
    disk = tmp_path_factory.mktemp("disk") / "image"
    disk.touch()
    os.truncate(disk, 16 << 20)
    found_device = subprocess.run(["losetup", "-f", "--show", str(disk)], capture_output=True, text=True, check=True)
    device = found_device.stdout.strip()

    def prepare(agent: Agent) -> tuple[str, ...]:
        directory = agent.dir / "objects"
        directory.mkdir()
        items = [{"apiVersion": "v1", **one} for one in (*objects(), *persistent(agent.dir / "shared", device))]
        (directory / "objects.yaml").write_text(yaml.safe_dump_all(items))
        return ("--objects-dir", str(directory))

    try:
        with running(containerd, CASES, prepare) as found:
            yield found
    finally:
        subprocess.run(["losetup", "-d", device], check=True)


@pytest.mark.parametrize("name", sorted(CASES))
def test_what_a_container_sees(table: Table, name: str) -> None:
    table.check(name)


def test_a_changed_config_map_is_in_the_container_within_a_second(table: Table) -> None:
    directory = table.agent.dir / "objects"

    def write(value: int) -> None:
        data = {name: str(value) + "x" * 2000 for name in ("one", "two")}
        item = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "live"}, "data": data}
        temporary = table.agent.dir / "live.tmp"
        temporary.write_text(yaml.safe_dump(item))
        temporary.rename(directory / "live.yaml")

    # Reads as fast as it can, without starting a process: says every version it sees once, and `torn` when the files of
    # one directory are not of one version.
    script = (
        "exec 2>/dev/null; last=; while true; do cd -P /v/..data || continue; a=; b=; read a < one; read b < two; "
        'if [ -n "$b" ]; then '  # else the version it is in went meanwhile
        '[ "$a" = "$b" ] || echo torn; [ "$a" = "$last" ] || { last=$a; echo ${a%%x*}; }; fi; done'
    )
    write(1000)
    volumes = [{"name": "v", "configMap": {"name": "live"}}]
    mounts = [{"name": "v", "mountPath": "/v"}]
    table.agent.write("live", pod("live", container("c", script, volumeMounts=mounts), volumes=volumes))

    def lines() -> list[str]:
        seen = table.see("live")
        return seen.lines() if seen is not None else []

    wait_for(lambda: lines() == ["1000"], 30, "the pod reads the first version")
    took = []
    for value in range(1001, 1001 + CHANGES):
        began = time.monotonic()
        write(value)
        wait_for(lambda value=value: lines()[-1:] == [str(value)], 10, f"version {value} is there")
        took.append(time.monotonic() - began)
    assert "torn" not in lines()
    assert lines() == [str(value) for value in range(1000, 1001 + CHANGES)]
    print(f"{CHANGES} changes: median {statistics.median(took):.3f} s, slowest {max(took):.3f} s")
    assert statistics.median(took) < 1.0
    assert "NODEVISOR_CHANGES" not in os.environ or max(took) < 1.0


def test_a_host_path_is_the_nodes_own_and_stays(table: Table, tmp_path: Path) -> None:
    path = tmp_path / "made/deep"
    volumes = [{"name": "v", "hostPath": {"path": str(path), "type": "DirectoryOrCreate"}}]
    main = container("c", "echo there > /v/f", volumeMounts=[{"name": "v", "mountPath": "/v"}])
    manifest = table.agent.write("host", pod("host", main, volumes=volumes, restartPolicy="Never"))
    wait_for(lambda: (seen := table.see("host")) is not None and over(seen), 30, "the pod has ended")
    manifest.unlink()
    wait_for(lambda: table.see("host") is None, 30, "the pod is gone")
    assert (path / "f").read_text() == "there\n"


@pytest.fixture
def shared(tmp_path: Path) -> Iterator[Path]:
    """A directory that is a shared mount of its own, with an empty directory in it."""
    path = tmp_path / "shared"
    (path / "inner").mkdir(parents=True)
    subprocess.run(["mount", "--bind", path, path], check=True)
    subprocess.run(["mount", "--make-shared", path], check=True)
    yield path
    subprocess.run(["umount", "-R", path], check=True)


def test_mounts_made_later_propagate_as_far_as_asked(table: Table, shared: Path) -> None:
    (shared / "made").mkdir()
    volumes = [{"name": "v", "hostPath": {"path": str(shared)}}]

    def mounts(propagation: str) -> list[dict[str, str]]:
        return [{"name": "v", "mountPath": "/v", "mountPropagation": propagation}]

    mounting = "mount -t tmpfs t /v/made && echo container > /v/made/f && sleep 1000"
    table.agent.write(
        "propagation",
        pod(
            "propagation",
            container("takes", volumeMounts=mounts("HostToContainer")),
            container("none", volumeMounts=mounts("None")),
            container("gives", mounting, volumeMounts=mounts("Bidirectional"), securityContext={"privileged": True}),
            volumes=volumes,
        ),
    )
    wait_for(lambda: (seen := table.see("propagation")) is not None and ready(seen), 30, "the pod is ready")
    wait_for((shared / "made/f").exists, 10, "what a container mounts is mounted on the node")
    subprocess.run(["mount", "-t", "tmpfs", "t", shared / "inner"], check=True)
    (shared / "inner/f").write_text("node")
    cri = table.agent.containerd.cri

    def sees(name: str, path: str) -> bool:
        found = [one for one, of in table.agent.running().items() if of == f"propagation-{table.agent.node}/{name}"]
        return cri.exec_sync(found[0], ["test", "-e", path], 10).result().exit_code == 0

    assert sees("takes", "/v/inner/f")
    assert sees("takes", "/v/made/f")
    assert not sees("none", "/v/inner/f")
    subprocess.run(["umount", shared / "inner"], check=True)
    (table.agent.manifests / "propagation.yaml").unlink()
    wait_for(lambda: table.see("propagation") is None, 30, "the pod is gone")
