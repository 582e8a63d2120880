"""Sandboxes and containers made through CRI as the kubelet 1.36 makes them, and the files it leaves beside them.

Its requests are those of tests/pod_workers/golden (cri-sandbox.json, cri-container.json). They are written out here,
because our own code for them is under test.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
from pathlib import Path
from typing import Any

from proto.cri import api_pb2 as pb
from proto.v1 import Container, Pod
from tests.agent.agent import Agent
from tests.agent.changing import content
from tests.cgroups import cgroup_name
from tests.harness import wait_for

BUSYBOX = "docker.io/library/busybox:latest"
EMPTY_DIR = "kubernetes.io~empty-dir"


def fnv_hash(name: str, image: str) -> str:
    """io.kubernetes.container.hash since 1.31: FNV-1a 32 over the decimal bytes of {"image":...,"name":...}."""
    document = json.dumps({"image": image, "name": name}, separators=(",", ":"))
    for character in "<>&":
        document = document.replace(character, f"\\u{ord(character):04x}")
    digest = 2166136261
    for byte in f"([]uint8)[{' '.join(str(one) for one in document.encode())}]".encode():
        digest = ((digest ^ byte) * 16777619) % 2**32
    return f"{digest:x}"


def serve_as_kubelet(agent: Agent) -> None:
    """Leave the socket of the pod resources API of a kubelet that has served between two starts of the agent."""
    path = agent.root_dir / "pod-resources" / "kubelet.sock"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(f"{path}.tmp")
        os.replace(f"{path}.tmp", path)


def wait_said_up(agent: Agent, name: str, uid: str) -> None:
    """Until a pod's container `c` has said `up`: its script minds signals.

    A container runs before the runtime's first process executes its command, and SIGTERM ends that one.
    """
    log = agent.dir / "logs" / f"default_{name}_{uid}" / "c" / "0.log"
    wait_for(lambda: b" up" in content(log), 30, f"{name} says up in {log}")


class Kubelet:
    """A kubelet's actions on the node of `agent`, before that starts."""

    def __init__(self, agent: Agent, qos: str = "besteffort") -> None:
        self.agent = agent
        self.cri = agent.containerd.cri
        self.qos = qos
        image = self.cri.image_status(BUSYBOX).result()
        assert image is not None
        self.image_ref = image.id

    def sandbox_config(self, pod: Pod, attempt: int = 0) -> pb.PodSandboxConfig:
        """The sandbox of a BestEffort pod with a network of its own and without DNS settings."""
        meta = pod.metadata
        own = {f"io.kubernetes.pod.{key}": value for key, value in _identity(pod).items()}
        options = pb.NamespaceOption(pid=pb.CONTAINER, userns_options=pb.UserNamespace(mode=pb.NODE))
        runtime_default = pb.SecurityProfile(profile_type=pb.SecurityProfile.RuntimeDefault)
        return pb.PodSandboxConfig(
            metadata=pb.PodSandboxMetadata(name=meta.name, uid=meta.uid, namespace=meta.namespace, attempt=attempt),
            hostname=meta.name,
            log_directory=f"{self.agent.dir}/logs/{meta.namespace}_{meta.name}_{meta.uid}",
            labels={**meta.labels, **own},
            annotations=meta.annotations,
            linux=pb.LinuxPodSandboxConfig(
                cgroup_parent=cgroup_name(self.agent.dir.name, "kubepods", self.qos, f"pod{meta.uid}"),
                security_context=pb.LinuxSandboxSecurityContext(namespace_options=options, seccomp=runtime_default),
                overhead=pb.LinuxContainerResources(),
                resources=pb.LinuxContainerResources(cpu_period=100_000, cpu_shares=2),
            ),
        )

    def container_config(self, pod: Pod, container: Container, restarts: int = 0) -> pb.ContainerConfig:
        """Return the configuration of the container with this restart count."""
        grace = pod.spec.termination_grace_period_seconds
        identity = {f"io.kubernetes.pod.{key}": value for key, value in _identity(pod).items()}
        directory = self.pod_directory(pod)
        message = directory / "containers" / container.name / secrets.token_hex(4)
        config = pb.ContainerConfig(
            metadata=pb.ContainerMetadata(name=container.name, attempt=restarts),
            image=pb.ImageSpec(image=self.image_ref, user_specified_image=container.image),
            command=container.command,
            labels={"io.kubernetes.container.name": container.name, **identity},
            annotations={
                "io.kubernetes.container.hash": fnv_hash(container.name, container.image or ""),
                "io.kubernetes.container.restartCount": str(restarts),
                "io.kubernetes.container.terminationMessagePath": "/dev/termination-log",
                "io.kubernetes.container.terminationMessagePolicy": "File",
                "io.kubernetes.pod.terminationGracePeriod": str(grace),
            },
            log_path=f"{container.name}/{restarts}.log",
            linux=pb.LinuxContainerConfig(
                resources=pb.LinuxContainerResources(cpu_period=100_000, cpu_shares=2, oom_score_adj=1000)
            ),
        )
        if container.ports:
            ports = [
                {"name": one.name, "containerPort": one.container_port, "protocol": "TCP"} for one in container.ports
            ]
            config.annotations["io.kubernetes.container.ports"] = json.dumps(ports, separators=(",", ":"))
        for mount in container.volume_mounts:
            path = directory / "volumes" / EMPTY_DIR / mount.name
            config.mounts.add(container_path=mount.mount_path, host_path=str(path))
        config.mounts.add(container_path="/etc/hosts", host_path=str(directory / "etc-hosts"))
        config.mounts.add(container_path="/dev/termination-log", host_path=str(message))
        options = pb.NamespaceOption(pid=pb.CONTAINER, userns_options=pb.UserNamespace(mode=pb.NODE))
        config.linux.security_context.namespace_options.CopyFrom(options)
        return config

    def pod_directory(self, pod: Pod) -> Path:
        """ROOT/pods/UID."""
        return self.agent.root_dir / "pods" / pod.metadata.uid

    def run_sandbox(self, pod: Pod, attempt: int = 0) -> str:
        """A sandbox, and the pod's directory with its volumes; the ID."""
        directory = self.pod_directory(pod)
        (directory / "containers").mkdir(parents=True, exist_ok=True)
        (directory / "etc-hosts").write_text("# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n")
        for volume in pod.spec.volumes:
            path = directory / "volumes" / EMPTY_DIR / volume.name
            path.mkdir(parents=True, exist_ok=True)
            os.chmod(path, 0o777)
            ready = directory / "plugins" / EMPTY_DIR / volume.name / "ready"
            ready.parent.mkdir(parents=True, exist_ok=True)
            ready.touch()
        return self.cri.run_pod_sandbox(self.sandbox_config(pod, attempt)).result()

    def run(self, pod: Pod, sandbox: str, name: str, restarts: int = 0, *, end: bool = False) -> str:
        """Run a container once, with `end` until it has exited by itself; return the ID."""
        found = next(one for one in (*pod.spec.init_containers, *pod.spec.containers) if one.name == name)
        config = self.container_config(pod, found, restarts)
        for mount in config.mounts:
            if mount.container_path == "/dev/termination-log":
                Path(mount.host_path).parent.mkdir(parents=True, exist_ok=True)
                Path(mount.host_path).touch()
        log = Path(self.sandbox_config(pod).log_directory, name)
        log.mkdir(parents=True, exist_ok=True)
        identity = self.cri.create_container(sandbox, config, self.sandbox_config(pod)).result()
        self.cri.start_container(identity).result()
        links = self.agent.dir / "container-logs"
        links.mkdir(exist_ok=True)
        link = links / f"{pod.metadata.name}_{pod.metadata.namespace}_{name}-{identity}.log"
        link.symlink_to(log / f"{restarts}.log")
        if end:
            wait_for(lambda: self.state(identity) == pb.CONTAINER_EXITED, 20, f"{name} has exited")
        return identity

    def state(self, identity: str) -> int:
        return int(self.cri.container_status(identity).result().status.state)


def _identity(pod: Pod) -> dict[str, Any]:
    return {"name": pod.metadata.name, "namespace": pod.metadata.namespace, "uid": pod.metadata.uid}
