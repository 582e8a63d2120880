"""Pods, lives of containers and views of the runtime, for the tests of statuses."""

from actors.pod_workers.model.view import ContainerView, PodView, SandboxView
from actors.pod_workers.status.inputs import StatusInputs
from actors.pod_workers.status.pod_status import compute_status
from proto.v1 import Pod, PodStatus
from proto.v1.codec import from_dict

SANDBOX = SandboxView(id="s", ips=("10.0.0.1", "fd00::1"), created_at_ns=1)
PROBE = {"exec": {"command": ["true"]}}


def pod(policy: str = "Always", main: tuple[str, ...] = ("c",), init: tuple[dict, ...] = (), **more) -> Pod:
    spec = {
        "restartPolicy": policy,
        "containers": [{"name": name, "image": "i"} for name in main],
        "initContainers": [{"image": "i", **one} for one in init],
    }
    metadata = {"name": "p", "namespace": "ns", "uid": "u"} | more.pop("metadata", {})
    return from_dict(Pod, {"metadata": metadata, "spec": spec | more})


def life(name: str = "c", state: str = "running", code: int = 0, at: int = 1, **more) -> ContainerView:
    return ContainerView(
        id=f"{name}{at}", name=name, state=state, exit_code=code, created_at_ns=at, started_at_ns=at * 10**9, **more
    )


def view(*lives: ContainerView, sandbox: SandboxView | None = SANDBOX) -> PodView:
    return PodView.of([sandbox] if sandbox else [], lives)


def of(subject: Pod, seen: PodView, **inputs) -> PodStatus:
    return compute_status(subject, seen, StatusInputs(**inputs))


def condition(status: PodStatus, kind: str) -> tuple[str, str | None, str | None]:
    one = next(one for one in status.conditions if one.type == kind)
    return one.status, one.reason, one.message


ONCE, SIDE = {"name": "once"}, {"name": "side", "restartPolicy": "Always"}
STATIC = {"annotations": {"kubernetes.io/config.source": "file"}}
