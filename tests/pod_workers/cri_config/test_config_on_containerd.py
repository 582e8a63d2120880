"""A real runtime accepts the configs, and the views match the sandbox and container it created."""

import os
from pathlib import Path

import pytest

from actors._cri.client import Cri
from actors._host.files import paths
from actors.pod_workers.cri_config.container_config import InstanceInputs, container_config
from actors.pod_workers.cri_config.dns import DnsConfig
from actors.pod_workers.cri_config.host_files import prepare
from actors.pod_workers.cri_config.mounts import MountInputs
from actors.pod_workers.cri_config.sandbox_config import sandbox_config, with_present_privilege
from actors.pod_workers.environment.variables import Sources, environment
from actors.pod_workers.model.view import ContainerView, PodView, SandboxView
from actors.pod_workers.status.inputs import StatusInputs
from actors.pod_workers.status.pod_status import compute_status
from actors.pod_workers.status.termination_message import read_termination_message
from proto.agent.settings import Settings
from proto.cri import api_pb2 as pb
from proto.v1 import Pod
from proto.v1.codec import from_dict
from tests.containerd import BUSYBOX
from tests.harness import wait_for

SCRIPT = (
    "cat /etc/hosts /etc/resolv.conf; hostname; echo $(NAME) $IP; id -u; touch /volume/here; "
    "printf bye >/dev/termination-log; exec sleep 1000"
)


def whole_pod() -> Pod:
    container = {
        "name": "main",
        "image": BUSYBOX,
        "command": ["sh", "-c", SCRIPT],
        "env": [
            {"name": "NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        ],
        "volumeMounts": [{"name": "v", "mountPath": "/volume"}],
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "securityContext": {"runAsUser": 1000, "allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    spec = {
        "restartPolicy": "Never",
        "containers": [container],
        "volumes": [{"name": "v", "emptyDir": {}}],
        "hostAliases": [{"ip": "192.0.2.7", "hostnames": ["alias"]}],
        "securityContext": {"supplementalGroups": [7]},
    }
    return from_dict(Pod, {"metadata": {"name": "whole", "namespace": "ns", "uid": "uid-whole"}, "spec": spec})


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(root_dir=str(tmp_path / "root"), pod_logs_dir=str(tmp_path / "logs"), cluster_domain="c.l")


def run(cri: Cri, pod: Pod, settings: Settings, volume: Path) -> PodView:
    """The pod's started sandbox and container, as the runtime shows them."""
    (container,) = pod.spec.containers
    config = sandbox_config(pod, 0, settings, "", DnsConfig(("192.0.2.53",), ("example.org",), ("ndots:1",)))
    sandbox_id = cri.run_pod_sandbox(config).result()
    sandbox = SandboxView.from_status(cri.pod_sandbox_status(sandbox_id, verbose=True).result())
    instance = InstanceInputs(
        image_ref=BUSYBOX,
        image_user="0",
        envs=environment(pod, container, Sources(pod_ips=sandbox.ips)),
        mounts=MountInputs({"v": str(volume)}),
        files=prepare(pod, container, sandbox, settings),
    )
    os.makedirs(f"{config.log_directory}/{container.name}")
    identity = cri.create_container(sandbox_id, container_config(pod, container, instance), config).result()
    cri.start_container(identity).result()
    return PodView.of([sandbox], [ContainerView.from_status(cri.container_status(identity, verbose=True).result())])


def test_container_has_its_spec_and_the_view_shows_it(cri: Cri, settings: Settings, tmp_path: Path) -> None:
    volume = tmp_path / "v"
    volume.mkdir()
    volume.chmod(0o777)
    pod = whole_pod()
    view = run(cri, pod, settings, volume)
    found = view.container("main")
    assert found is not None
    ip = view.sandboxes[0].ips[0]
    assert found.sandbox_id == view.sandboxes[0].id
    wait_for(lambda: command_of(found.pid).startswith("sleep\0"), what="the script has come to its end")
    assert Path(f"/proc/{view.sandboxes[0].pid}").exists()
    listed = cri.list_containers(pb.ContainerFilter(label_selector={"io.kubernetes.pod.uid": "uid-whole"})).result()
    assert PodView.listed([], listed).container("main").hash == found.hash

    log_path = Path(paths.pod_log_dir(settings.pod_logs_dir, "ns", "whole", "uid-whole"), "main/0.log")
    wait_for(lambda: log_path.read_text().endswith(" 1000\n"), what="the log has its last line")
    log = log_path.read_text()
    for said in (f"{ip}\twhole", "192.0.2.7\talias", "nameserver 192.0.2.53", "search example.org", "options ndots:1"):
        assert said in log
    assert [row.split(" ", 3)[3] for row in log.splitlines()][-3:] == ["whole", f"whole {ip}", "1000"]
    assert (volume / "here").exists()
    assert compute_status(pod, view, StatusInputs()).phase == "Running"

    cri.stop_container(found.id, 0).result()
    ended = ContainerView.from_status(cri.container_status(found.id, verbose=True).result())
    assert (ended.state, ended.exit_code, ended.reason) == ("exited", 137, "Error")
    status = compute_status(
        pod, view.with_container(ended), StatusInputs(terminal=True, termination_message=read_termination_message)
    )
    assert status.phase == "Failed"
    assert status.container_statuses[0].state.terminated.message == "bye"


def test_privileged_ephemeral_container_joins_an_older_sandbox(cri: Cri, settings: Settings) -> None:
    meta = {"name": "debugged", "namespace": "ns", "uid": "uid-debugged"}
    spec = {"containers": [{"name": "main", "image": BUSYBOX}]}
    config = sandbox_config(from_dict(Pod, {"metadata": meta, "spec": spec}), 0, settings, "", DnsConfig())
    sandbox = cri.run_pod_sandbox(config).result()
    debugger = {"name": "debugger", "image": BUSYBOX, "command": ["sleep", "1000"]}
    mighty = {**debugger, "securityContext": {"privileged": True}}
    pod = from_dict(Pod, {"metadata": meta, "spec": {**spec, "ephemeralContainers": [mighty]}})
    os.makedirs(f"{config.log_directory}/debugger")
    wanted = container_config(pod, pod.spec.ephemeral_containers[0], InstanceInputs(image_ref=BUSYBOX, image_user="0"))
    identity = cri.create_container(sandbox, wanted, with_present_privilege(config, pod)).result()
    cri.start_container(identity).result()
    found = ContainerView.from_status(cri.container_status(identity, verbose=True).result())
    assert found.state == "running"
    status = Path(f"/proc/{found.pid}/status").read_text().splitlines()
    seccomp = next(line.split()[1] for line in status if line.startswith("Seccomp:"))
    assert seccomp == "0", "privileged"


def command_of(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text()
