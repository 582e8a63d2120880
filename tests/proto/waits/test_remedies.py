"""The advice on a wait."""

from typing import Any

import pytest

from proto.v1 import Pod, from_dict
from proto.waits.chain import Answer, Cause, Link
from proto.waits.facts import Facts
from proto.waits.remedies import remedy
from proto.waits.roots import Root
from proto.waits.sentences import sentence
from proto.waits.text import lines, rejected

NAME = "pod/a/web"
SHORT = "UnexpectedAdmissionError: preemption: no set of running pods found to reclaim resources: "
NEVER = 'Container image "x" is not present with pull policy of Never'
REFUSED = "rpc error: code = Unavailable desc = cannot reach registry localhost:1"


def link(kind: Any = "retry", what: str = "", error: str = "", **more: Any) -> Link:
    return Link(actor="pod_workers", waiter=more.pop("waiter", NAME), kind=kind, what=what, error=error, **more)


@pytest.mark.parametrize(
    ("wait", "expected"),
    [
        (link(what="container app: ErrImageNeverPull", error=NEVER), "bring the image in: supervisor images import"),
        (link(what="container app: ErrImagePull", error=REFUSED), "connect to the network"),
        (link(waiter="image/x", what="its pull", error="pull access denied"), "correct the image's name, or give"),
        (link(what="container app: InvalidImageName"), "correct the image's name"),
        (link("condition", 'volume "data"', 'configmap "gone" not found'), "create it, or correct its name"),
        (link(what="container app: CreateContainerConfigError", error='secret "gone" not found'), "create it"),
        (link("condition", 'volume "data"', "hostPath type check failed: /x is not a file"), "make it on this machine"),
        (link(error="unmount /x: device or resource busy"), "end the processes that use it"),
        (link(error="container's runAsUser breaks non-root policy"), "give the container another runAsUser"),
        (link(error='unable to start container process: exec: "/gone"'), "correct the container's command"),
        (link("admission", "NodePorts: no free ports"), "free the port"),
        (link("admission", "SysctlForbidden: forbidden sysctl"), "--allowed-unsafe-sysctls"),
        (link("admission", "OutOfcpu: Node didn't have enough resource"), "ask for less"),
        (link("admission", f"{SHORT}[(res: cpu, q: 2500), ]"), "this node lacks 2.5 of cpu"),
        (link("admission", f"{SHORT}[(res: memory, q: 3145728), (res: x/y, q: 2), ]"), "3Mi of memory and 2 of x/y"),
        (link("hook", "postStart hook of container app"), "end its command in the container"),
        (link("hook", "preStop hook of container app"), "the grace period ends it"),
        (link("hook", "preStop hook of container app", deadline_in_s=12), "the grace period ends it in 12 s"),
        (link("hook", "container app to end within 60 s", age_s=9, deadline_in_s=51), "SIGTERM has not ended it"),
        (link(what="container app: ErrImagePull", error="cannot reach registry x: status 429"), "wait, or log in"),
        (link(what="container app: ErrImagePull", error="cannot reach registry x: status 503"), "see that registry"),
        (link(what="container app: ErrImagePull", error="it has no image for linux/amd64"), "name an image for it"),
        (link(error="unable to start container process: container init was OOM-killed"), "raise limits.memory"),
        (link(error='unable to start container process: error mounting "/x" to rootfs'), "volumeMounts"),
        (link(error="[Errno 2] No such file or directory: '/seccomp/gone.json'"), "correct the pod's seccompProfile"),
        (link(error='failed to prepare subPath for volumeMount "data"'), "correct the subPath"),
        (link(error="container has runAsNonRoot and image will run as root"), "give the container another runAsUser"),
        (link(error="driver name x not found in the list of registered CSI drivers"), "install this CSI driver"),
        (link(error="missing value for GONE"), "define this variable"),
        (
            link(error="it is already mounted to a different pod with a different SELinux label"),
            "end the volume's other pods on this node",
        ),
        (link(error="mount: unknown filesystem type 'nfs'."), "install this file system's tools"),
        (link(error="cannot set sysctl net.x to 'y'"), "correct the pod's sysctls"),
        (link(error="unable to start container process: write /proc/sys/net/x: invalid"), "correct the pod's sysctls"),
        (link("condition", 'volume "data"', "open /x/y: no such file or directory"), "make it on this machine"),
        (link("admission", "AppArmor: Pod was rejected: Cannot enforce AppArmor"), "remove its appArmorProfile"),
        (link("admission", f"{SHORT}[(res: hugepages-2Mi, q: 4194304), ]"), "this node lacks 4Mi of hugepages-2Mi"),
        (link("admission", 'Evicted: Usage of EmptyDir volume "data" exceeds the limit "1Mi".'), "sizeLimit"),
        (
            link("admission", "Evicted: Pod ephemeral local storage usage exceeds the total limit of containers 1Mi."),
            "raise its limits.ephemeral-storage",
        ),
        (link("admission", "Evicted: The node had condition: [DiskPressure]. "), "free memory or disk"),
    ],
)
def test_wait_has_a_remedy(wait: Link, expected: str) -> None:
    assert expected in remedy(wait)
    root = Root(wait.kind, 1)
    assert sentence(NAME, root, (wait,), Facts(now=0.0, tables={})).endswith(f"; {remedy(wait)}")


@pytest.mark.parametrize(
    "wait",
    [
        link(what="container app: ErrImagePull", error="it did not work"),
        link(error="it did not work"),
        link("admission", "Odd: it did not work"),
        link("hook", "container app to end within 5 s"),
    ],
)
def test_unknown_cause_has_no_remedy(wait: Link) -> None:
    assert remedy(wait) == ""


@pytest.mark.parametrize("reason", ["DeadlineExceeded", "Evicted", "Preempting", "Terminated"])
def test_pod_that_ran_is_not_called_unadmitted(reason: str) -> None:
    wait = link("admission", f"{reason}: it was", target="rejected", age_s=20)
    said = sentence(NAME, Root("admission", 80), (wait,), Facts(now=0.0, tables={}))
    assert said.startswith(f"Pod a/web was ended by the node 20 s ago: {reason}: it was")


def test_deadline_of_a_containers_end_is_its_sigkill() -> None:
    wait = link("hook", "container app to end within 120 s", age_s=25, deadline_in_s=95)
    said = sentence(NAME, Root("hook", 73), (wait,), Facts(now=0.0, tables={}))
    assert said == (
        "Pod a/web waits for 25 s for container app to end within 120 s, and SIGKILL ends it in 95 s; "
        "SIGTERM has not ended it: have its command handle that signal"
    )


def test_deadline_that_has_passed_is_told_as_such() -> None:
    (line,) = lines_of(link("hook", "container app to end within 2 s", age_s=5, deadline_in_s=-3))
    assert ", deadline 3.0 s ago [" in line


def test_retry_without_a_text_waits_for_its_next_try() -> None:
    (line,) = lines_of(link(error="busy", age_s=3))
    assert "pod a/web waits for its next try, 3.0 s" in line


def lines_of(one: Link) -> list[str]:
    return lines(Answer(subject=NAME, causes=(Cause(code="retry", sentence="x", links=(one,)),)))


def pod(name: str, phase: str = "Running", ports: tuple[dict[str, Any], ...] = (), **spec: Any) -> Pod:
    given = {"containers": [{"name": "app", "ports": list(ports)}], **spec}
    metadata = {"name": name, "namespace": "a", "uid": name}
    return from_dict(Pod, {"metadata": metadata, "spec": given, "status": {"phase": phase}})


def told(reason: str, asks: Pod, *others: Pod) -> str:
    cause = Cause(code="admission", sentence="Rejected", links=(link("admission", f"{reason}: no"),))
    return rejected(asks, cause, (asks, *others)).sentence


HTTP = {"containerPort": 80, "hostPort": 8080}


@pytest.mark.parametrize(
    ("other", "collides"),
    [
        (pod("b", ports=(HTTP,)), True),
        (pod("b", ports=({**HTTP, "hostIP": "127.0.0.1"},)), True),
        (pod("b", ports=({**HTTP, "protocol": "UDP"},)), False),
        (pod("b", ports=({**HTTP, "hostPort": 8081},)), False),
        (pod("b", ports=({"containerPort": 8080},)), False),
        (pod("b", "Failed", ports=(HTTP,)), False),
    ],
)
def test_taken_port_is_named_with_its_pod(other: Pod, collides: bool) -> None:
    said = "Rejected (host port 8080 is of pod a/b)" if collides else "Rejected"
    assert told("NodePorts", pod("web", "Failed", ports=(HTTP,)), other) == said


def test_ports_of_two_addresses_do_not_collide() -> None:
    one, other = (pod(name, ports=({**HTTP, "hostIP": ip},)) for name, ip in (("web", "10.0.0.1"), ("b", "10.0.0.2")))
    assert told("NodePorts", one, other) == "Rejected"


def test_labels_that_the_pod_asks_for_are_named() -> None:
    terms = [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a", "b"]}]}]
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
    wanted = pod("web", nodeSelector={"disk": "ssd"}, affinity=affinity)
    assert told("NodeAffinity", wanted) == "Rejected (it asks for disk=ssd and zone In a b)"
    assert told("NodeAffinity", pod("web")) == "Rejected"
    assert told("SysctlForbidden", wanted) == "Rejected"
