"""Effects of securityContext, seen from inside the containers: one small pod for each rule."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.agent.agent import Agent, container, pod
from tests.agent.table import Case, Seen, Table, once, running, waits
from tests.containerd import BUSYBOX, ContainerdInstance
from tests.containerd.images import Image

AS_APP, AS_1000, AS_GHOST = (f"docker.io/library/spec-{name}:1" for name in ("app", "uid", "ghost"))
IMAGES = [Image(AS_APP, user="app"), Image(AS_1000, user="1000"), Image(AS_GHOST, user="ghost")]
"""With the user app (1000) by name and by number, and with a user that the image does not have."""

WHO = "echo uid=$(id -u); echo gid=$(id -g); echo groups=$(id -G | tr ' ' '\\n' | sort -n | tr '\\n' ' ')"
STATUS = "cat /proc/self/status"
ALL_CAPABILITIES_OF_CONTAINERD = 0xA80425FB
"""AUDIT_WRITE, CHOWN, DAC_OVERRIDE, FOWNER, FSETID, KILL, MKNOD, NET_BIND_SERVICE, NET_RAW, SETFCAP, SETGID, SETPCAP,
SETUID, SYS_CHROOT."""
CHOWN, NET_ADMIN, NET_RAW = 1 << 0, 1 << 12, 1 << 13
NO_MKDIR = {
    "defaultAction": "SCMP_ACT_ALLOW",
    "syscalls": [{"names": ["mkdir", "mkdirat"], "action": "SCMP_ACT_ERRNO"}],
}


def own(script: str, image: str = "", spec: dict[str, Any] | None = None, **context: Any) -> dict[str, Any]:
    """A pod whose container has this securityContext."""
    fields = {"securityContext": context, **({"image": image} if image else {})}
    return once(script, spec=spec, **fields)


def of_pod(script: str, **context: Any) -> dict[str, Any]:
    """A pod that has this securityContext itself."""
    return once(script, spec={"securityContext": context})


def says(**wanted: str) -> Any:
    """Its output has these values, and it succeeded."""

    def check(seen: Seen) -> None:
        values = seen.values()
        assert {name: values.get(name) for name in wanted} == wanted, seen.log()
        assert seen.phase == "Succeeded", seen.status

    return check


def capabilities(wanted: int, field: str = "CapEff") -> Any:
    def check(seen: Seen) -> None:
        assert f"{int(seen.values()[field], 16):x}" == f"{wanted:x}", seen.log()

    return check


def refuses(reason: str, text: str, *, exactly: bool = True) -> Any:
    """The container waits for this reason, in these words, where POD stands for the pod's name."""

    def check(seen: Seen) -> None:
        meta = seen.item["metadata"]
        wanted = text.replace("POD", f"{meta['name']}_{meta['namespace']}({meta['uid']})")
        assert seen.reason() == reason
        assert seen.message() == wanted if exactly else wanted in seen.message(), seen.message()
        assert seen.phase == "Pending"

    return check


CONFIG_ERROR = waits("CreateContainerConfigError")
FULL = int(Path("/proc/self/status").read_text().split("CapBnd:")[1].split()[0], 16)

TABLE = {
    # Users and groups
    "root": Case(once(WHO), says(uid="0", gid="0")),
    "user": Case(own(WHO, runAsUser=65534), says(uid="65534", gid="65534")),
    "user-unknown": Case(own(WHO, runAsUser=4711), says(uid="4711", gid="0", groups="0")),
    "user-zero": Case(own(WHO, AS_1000, runAsUser=0), says(uid="0", gid="0")),
    "user-and-group": Case(own(WHO, runAsUser=1000, runAsGroup=3000), says(uid="1000", gid="3000")),
    "pod-user": Case(of_pod(WHO, runAsUser=1001, runAsGroup=3001), says(uid="1001", gid="3001")),
    "own-user-wins": Case(
        own(WHO, spec={"securityContext": {"runAsUser": 1001, "runAsGroup": 3001}}, runAsUser=1002),
        says(uid="1002", gid="3001"),
    ),
    "supplemental": Case(of_pod(WHO, supplementalGroups=[4000, 5000]), says(uid="0", groups="0 4000 5000")),
    "fs-group": Case(of_pod(WHO, runAsUser=1000, fsGroup=2000), says(uid="1000", groups="1000 2000")),
    "image-user-name": Case(own(WHO, AS_APP), says(uid="1000", gid="1000")),
    "image-user-number": Case(own(WHO, AS_1000), says(uid="1000", gid="1000")),
    # runAsNonRoot, in the kubelet's words
    "non-root-good": Case(own(WHO, AS_1000, runAsNonRoot=True), says(uid="1000")),
    "non-root-by-user": Case(own(WHO, runAsNonRoot=True, runAsUser=1234), says(uid="1234")),
    "non-root-image-root": Case(
        own(WHO, runAsNonRoot=True),
        refuses(
            "CreateContainerConfigError",
            'container has runAsNonRoot and image will run as root (pod: "POD", container: c)',
        ),
        CONFIG_ERROR,
    ),
    "non-root-user-zero": Case(
        own(WHO, AS_1000, runAsNonRoot=True, runAsUser=0),
        refuses(
            "CreateContainerConfigError",
            'container\'s runAsUser breaks non-root policy (pod: "POD", container: c)',
        ),
        CONFIG_ERROR,
    ),
    "non-root-by-name": Case(
        own(WHO, AS_APP, runAsNonRoot=True),
        refuses(
            "CreateContainerConfigError",
            "container has runAsNonRoot and image has non-numeric user (app), cannot verify user is non-root "
            '(pod: "POD", container: c)',
        ),
        CONFIG_ERROR,
    ),
    "pod-non-root": Case(
        of_pod(WHO, runAsNonRoot=True),
        refuses(
            "CreateContainerConfigError",
            'container has runAsNonRoot and image will run as root (pod: "POD", container: c)',
        ),
        CONFIG_ERROR,
    ),
    "no-such-user": Case(
        own(WHO, AS_GHOST),
        refuses("CreateContainerError", "no user", exactly=False),
        waits("CreateContainerError"),
    ),
    # Capabilities
    "caps-default": Case(once(STATUS), capabilities(ALL_CAPABILITIES_OF_CONTAINERD)),
    "caps-add": Case(
        own(STATUS, capabilities={"add": ["NET_ADMIN"]}), capabilities(ALL_CAPABILITIES_OF_CONTAINERD | NET_ADMIN)
    ),
    "caps-drop": Case(
        own(STATUS, capabilities={"drop": ["NET_RAW"]}), capabilities(ALL_CAPABILITIES_OF_CONTAINERD & ~NET_RAW)
    ),
    "caps-drop-all": Case(own(STATUS, capabilities={"drop": ["ALL"]}), capabilities(0)),
    "caps-only-one": Case(own(STATUS, capabilities={"drop": ["ALL"], "add": ["CHOWN"]}), capabilities(CHOWN, "CapBnd")),
    "caps-not-root": Case(own(STATUS, runAsUser=1000), capabilities(0)),
    "privileged": Case(
        own(f"{STATUS}; ls /dev | grep -q '^kmsg$' && echo devices=all", privileged=True), says(devices="all")
    ),
    "privileged-caps": Case(own(STATUS, privileged=True), capabilities(FULL, "CapBnd")),
    "not-privileged": Case(
        once("ip link add dummy1 type dummy 2>/dev/null && echo link=made || echo link=denied"), says(link="denied")
    ),
    # The root file system, /proc and /sys
    "read-only-root": Case(
        own("touch /f 2>/dev/null && echo root=written || echo root=denied", readOnlyRootFilesystem=True),
        says(root="denied"),
    ),
    "writable-root": Case(own("touch /f && echo root=written", readOnlyRootFilesystem=False), says(root="written")),
    "proc-masked": Case(
        once(
            "[ -s /proc/kcore ] && echo kcore=shown || echo kcore=masked; echo keys=$(wc -c < /proc/keys);"
            "echo firmware=$(ls /sys/firmware | wc -l); echo 1 2>/dev/null > /proc/sys/kernel/domainname"
            " && echo sys=written || echo sys=denied"
        ),
        says(kcore="masked", keys="0", firmware="0", sys="denied"),
    ),
    # no_new_privs
    "escalation-default": Case(once(STATUS), says(NoNewPrivs="0")),
    "escalation-allowed": Case(own(STATUS, allowPrivilegeEscalation=True, runAsUser=1000), says(NoNewPrivs="0")),
    "escalation-denied": Case(own(STATUS, allowPrivilegeEscalation=False, runAsUser=1000), says(NoNewPrivs="1")),
    # Seccomp
    "seccomp-absent": Case(once(STATUS), says(Seccomp="0")),
    "seccomp-unconfined": Case(own(STATUS, seccompProfile={"type": "Unconfined"}), says(Seccomp="0")),
    "seccomp-default": Case(own(STATUS, seccompProfile={"type": "RuntimeDefault"}), says(Seccomp="2")),
    "seccomp-of-pod": Case(of_pod(STATUS, seccompProfile={"type": "RuntimeDefault"}), says(Seccomp="2")),
    "seccomp-own-wins": Case(
        own(
            STATUS,
            spec={"securityContext": {"seccompProfile": {"type": "RuntimeDefault"}}},
            seccompProfile={"type": "Unconfined"},
        ),
        says(Seccomp="0"),
    ),
    "seccomp-privileged": Case(
        own(STATUS, privileged=True, seccompProfile={"type": "RuntimeDefault"}), says(Seccomp="0")
    ),
    "seccomp-localhost": Case(
        own(
            f"{STATUS}; mkdir /d 2>/dev/null && echo mkdir=done || echo mkdir=denied",
            seccompProfile={"type": "Localhost", "localhostProfile": "profiles/no-mkdir.json"},
        ),
        says(Seccomp="2", mkdir="denied"),
    ),
    "seccomp-lost": Case(
        own(STATUS, seccompProfile={"type": "Localhost", "localhostProfile": "profiles/lost.json"}),
        refuses("CreateContainerError", "profiles/lost.json", exactly=False),
        waits("CreateContainerError"),
    ),
    # Init containers have contexts too
    "init-user": Case(
        pod(
            "",
            container("c", WHO),
            restartPolicy="Never",
            initContainers=[container("i", WHO, securityContext={"runAsUser": 1007})],
        ),
        lambda seen: _equal([seen.values(name)["uid"] for name in ("i", "c")], ["1007", "0"]),
    ),
}


def _equal(found: object, wanted: object) -> None:
    assert found == wanted


def prepare(agent: Agent) -> tuple[str, ...]:
    profiles = agent.root_dir / "seccomp" / "profiles"
    profiles.mkdir(parents=True)
    (profiles / "no-mkdir.json").write_text(json.dumps(NO_MKDIR))
    return ()


@pytest.fixture(scope="module")
def table(containerd: ContainerdInstance) -> Iterator[Table]:
    containerd.import_images(IMAGES)
    with running(containerd, TABLE, prepare) as one:
        yield one


@pytest.mark.parametrize("name", TABLE)
def test_security_context(table: Table, name: str) -> None:
    table.check(name)


def test_status_names_the_image_as_the_spec_does(table: Table) -> None:
    seen = table.see("root")
    assert seen is not None
    assert seen.container()["image"] == BUSYBOX
