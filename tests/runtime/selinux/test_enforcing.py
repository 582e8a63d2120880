"""Pods of isolation level 1 where SELinux is enforcing: what their labels allow them, and what not."""

import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from actors._cri.client import Cri
from actors._cri.errors import CriError
from actors.runtime.selinux.kernel import ATTRIBUTE
from proto.cri import api_pb2 as pb
from tests.containerd.images import Image
from tests.containerd.pods import container_config, sandbox_config
from tests.runtime.instance import EmbeddedInstance, wait_for

pytestmark = pytest.mark.needs("SELinux", "mounts", "runc")
VOLUMES = Image("registry.test/labelled:1", files={"/data/seed": b"seed"}, volumes=["/data"])
OWN = "cat /proc/self/attr/current"


@pytest.fixture(scope="module")
def instance() -> Iterator[EmbeddedInstance]:
    directory = Path(tempfile.mkdtemp(prefix="nvse-"))
    with EmbeddedInstance(directory, [VOLUMES], isolation=1) as made:
        yield made


@pytest.fixture
def cri(instance: EmbeddedInstance) -> Iterator[Cri]:
    yield instance.cri
    instance.remove_pods()


@pytest.fixture
def volume() -> Iterator[Path]:
    """A directory of the machine, with the label that the policy gives it."""
    with tempfile.TemporaryDirectory(prefix="nvse-volume-", dir="/var/lib") as name:
        path = Path(name).resolve()
        path.chmod(0o777)
        (path / "file").write_text("content\n")
        yield path


class Pod:
    """A pod with its containers."""

    def __init__(self, cri: Cri, name: str = "pod", **context: Any) -> None:
        self.cri = cri
        self.config = sandbox_config(name, host_network=True)
        self.config.linux.security_context.MergeFrom(pb.LinuxSandboxSecurityContext(**context))
        self.config.linux.security_context.namespace_options.pid = pb.CONTAINER

    def sandbox(self) -> str:
        self.id = self.cri.run_pod_sandbox(self.config).result()
        return self.id

    def create(self, *mounts: pb.Mount, name: str = "main", image: str = "", **context: Any) -> str:
        """Create a container."""
        config = container_config(["sleep", "1000"], name=name, **({"image": image} if image else {}))
        config.mounts.extend(mounts)
        config.linux.security_context.MergeFrom(pb.LinuxContainerSecurityContext(**context))
        config.linux.security_context.namespace_options.CopyFrom(self.config.linux.security_context.namespace_options)
        return self.cri.create_container(self.id, config, self.config).result()

    def run(self, *mounts: pb.Mount, **values: Any) -> str:
        """Start a container; with a sandbox of its own unless there is one."""
        if not hasattr(self, "id"):
            self.sandbox()
        container = self.create(*mounts, **values)
        self.cri.start_container(container).result()
        return container


def said(cri: Cri, container: str, script: str) -> str:
    """All that a script writes; its NULs and its last newline are left out."""
    answer = cri.exec_sync(container, ["sh", "-c", script], 60).result()
    return (answer.stdout + answer.stderr).decode().replace("\0", "").rstrip("\n")


def info(cri: Cri, container: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(cri.container_status(container, verbose=True).result().info["info"])
    return found


def label_of(path: Path | str) -> str:
    return os.getxattr(path, ATTRIBUTE, follow_symlinks=False).decode().rstrip("\0")


def bind(path: Path, *, relabel: bool, at: str = "/volume") -> pb.Mount:
    return pb.Mount(host_path=str(path), container_path=at, selinux_relabel=relabel)


def test_processes_and_execs_have_the_label_on_record(cri: Cri) -> None:
    container = Pod(cri).run()
    found = info(cri, container)
    of_process = Path(f"/proc/{found['pid']}/attr/current").read_text().rstrip("\0\n")
    assert of_process == found["processLabel"] == said(cri, container, OWN)
    assert ":container_t:s0:c" in of_process
    assert label_of(f"/proc/{found['pid']}/root/bin") == found["mountLabel"]
    assert label_of(f"/proc/{found['pid']}/root/dev") == found["mountLabel"]


def test_containers_share_the_pods_level_and_pods_share_none(cri: Cri) -> None:
    pod = Pod(cri)
    first, second = (info(cri, pod.run(name=name)) for name in ("first", "second"))
    other = info(cri, Pod(cri, "other").run())
    assert first["processLabel"] == second["processLabel"] != other["processLabel"]
    told = json.loads(cri.pod_sandbox_status(pod.id, verbose=True).result().info["info"])
    assert (told["processLabel"], told["mountLabel"]) == (first["processLabel"], first["mountLabel"])


def test_restarted_runtime_gives_a_container_its_pods_label(instance: EmbeddedInstance, cri: Cri) -> None:
    pod = Pod(cri)
    before = info(cri, pod.run())
    instance.kill()
    instance.start()
    assert info(cri, pod.run(name="later"))["processLabel"] == before["processLabel"]


def test_container_writes_to_its_root_and_to_shared_memory(cri: Cri) -> None:
    script = "echo a > /file && echo b > /dev/shm/file && cat /file /dev/shm/file"
    assert said(cri, Pod(cri).run(), script) == "a\nb"


def test_container_reads_the_files_of_its_pod(cri: Cri) -> None:
    container = Pod(cri).run()
    assert "denied" not in said(cri, container, "cat /etc/hosts /etc/hostname /etc/resolv.conf")


def test_container_with_a_level_of_its_own_shares_the_pods_files(cri: Cri) -> None:
    pod = Pod(cri)
    ordinary = pod.run()
    level = pb.SELinuxOption(level="s0:c1000,c1001")
    own = pod.run(name="own", selinux_options=level)
    assert said(cri, own, OWN).endswith(":container_t:s0:c1000,c1001")
    for container in (ordinary, own):
        assert "denied" not in said(cri, container, "cat /etc/hosts /etc/hostname; ls /dev/shm")


def test_files_of_the_machine_are_denied(cri: Cri, volume: Path) -> None:
    container = Pod(cri).run(bind(volume, relabel=False))
    assert "Permission denied" in said(cri, container, "cat /volume/file")
    assert "Permission denied" in said(cri, container, "echo x > /volume/new")


def test_relabelled_volume_is_the_pods_own(cri: Cri, volume: Path) -> None:
    container = Pod(cri).run(bind(volume, relabel=True))
    assert said(cri, container, "cat /volume/file && echo x > /volume/new && cat /volume/new") == "content\nx"
    assert (
        label_of(volume) == label_of(volume / "file") == label_of(volume / "new") == info(cri, container)["mountLabel"]
    )


def test_files_of_another_pods_level_are_denied(cri: Cri, volume: Path) -> None:
    Pod(cri).run(bind(volume, relabel=True))
    other = Pod(cri, "other").run(bind(volume, relabel=False))
    assert "Permission denied" in said(cri, other, "cat /volume/file")


def test_relabeling_follows_no_link_of_a_volume(cri: Cri, volume: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="nvse-outside-", dir="/var/lib") as name:
        before = label_of(name)
        (volume / "link").symlink_to(name)
        Pod(cri).run(bind(volume, relabel=True))
        assert label_of(name) == before
        assert label_of(volume / "link") != before


def test_machines_directories_are_not_relabelled(cri: Cri) -> None:
    before = label_of("/usr")
    pod = Pod(cri)
    pod.sandbox()
    with pytest.raises(CriError, match="cannot give /usr a container's SELinux label"):
        pod.create(bind(Path("/usr"), relabel=True))
    assert label_of("/usr") == before


def test_privileged_container_reads_the_machines_files(cri: Cri, volume: Path) -> None:
    container = Pod(cri, privileged=True).run(bind(volume, relabel=False), privileged=True)
    assert said(cri, container, "cat /volume/file && echo x > /volume/new && cat /volume/new") == "content\nx"
    assert ":container_t:" not in said(cri, container, OWN)


def test_pod_may_ask_for_another_type(cri: Cri, volume: Path) -> None:
    pod = Pod(cri, selinux_options=pb.SELinuxOption(type="spc_t"))
    container = pod.run(bind(volume, relabel=False))
    assert ":spc_t:" in said(cri, container, OWN)
    assert said(cri, container, "cat /volume/file") == "content"


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"type": "no_such_t"}, "the kernel refuses the SELinux label system_u:system_r:no_such_t:s0"),
        ({"level": "s0:c1,c5000"}, "the kernel refuses the SELinux label system_u:system_r:container_t:s0:c1,c5000"),
        ({"level": "secret"}, "'secret' is no SELinux level"),
    ],
)
def test_label_that_the_policy_lacks_is_refused(cri: Cri, options: dict[str, str], why: str) -> None:
    asked = pb.SELinuxOption(**options)
    with pytest.raises(CriError, match=f"cannot label the pod sandbox: {why}"):
        Pod(cri, selinux_options=asked).sandbox()
    pod = Pod(cri)
    pod.sandbox()
    with pytest.raises(CriError, match=f"cannot label the container: {why}"):
        pod.create(selinux_options=asked)


def test_pod_with_shared_processes_cannot_reach_the_first(cri: Cri) -> None:
    pod = Pod(cri)
    pod.config.linux.security_context.namespace_options.pid = pb.POD
    pod.run(name="other")
    container = pod.run(run_as_user=pb.Int64Value(value=65534))
    assert said(cri, container, "grep -lx sleep /proc/[0-9]*/comm 2>/dev/null | wc -l") == "2"
    assert "Permission denied" in said(cri, container, "ls -d /proc/1")


def test_volumes_of_images_can_be_used(cri: Cri) -> None:
    mount = pb.Mount(container_path="/image", image=pb.ImageSpec(image=VOLUMES.name))
    container = Pod(cri).run(mount, image=VOLUMES.name)
    assert said(cri, container, "cat /data/seed /image/data/seed && echo x > /data/new && cat /data/new") == "seedseedx"


@pytest.mark.parametrize("terminal", [False, True])
def test_output_of_a_labelled_container_is_logged(cri: Cri, tmp_path: Path, terminal: bool) -> None:
    pod = Pod(cri)
    pod.config.log_directory = str(tmp_path)
    pod.sandbox()
    config = container_config(["sh", "-c", f"{OWN}; ls / >/dev/stdout; sleep 1000"], log_path="0.log")
    config.tty = terminal
    config.linux.security_context.namespace_options.CopyFrom(pod.config.linux.security_context.namespace_options)
    container = cri.create_container(pod.id, config, pod.config).result()
    cri.start_container(container).result()
    wait_for(lambda: " etc" in (tmp_path / "0.log").read_text())
    assert info(cri, container)["processLabel"] in (tmp_path / "0.log").read_text()
