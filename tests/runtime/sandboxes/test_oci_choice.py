"""The OCI runtime of each pod, where crun and runc are installed: the choice, and the record that calls follow."""

import json
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from actors._cri.client import Cri
from actors._cri.errors import CriError
from actors.runtime.assembly import data_dir
from actors.runtime.model.records import Records, SandboxRecord
from proto.cri import api_pb2 as pb
from proto.node.runtime import OCI_PROGRAMS
from tests.containerd.pods import container_config, sandbox_config
from tests.runtime.containers.test_containers import pid_of, wait_exited
from tests.runtime.instance import EmbeddedInstance, wait_for
from tests.runtime.sandboxes.test_user_namespaces import USERS

pytestmark = pytest.mark.needs("systemd", "two OCI runtimes")  # crun takes cgroup v2 alone


@pytest.fixture(scope="module")
def instance() -> Iterator[EmbeddedInstance]:
    with EmbeddedInstance(Path(tempfile.mkdtemp(prefix="nvoci-")), isolation=1) as made:
        yield made


@pytest.fixture
def cri(instance: EmbeddedInstance) -> Iterator[Cri]:
    yield instance.cri
    instance.remove_pods()
    assert os.listdir(state_of(instance)) == []


def state_of(instance: EmbeddedInstance) -> Path:
    return Path(instance.settings.run_dir, "runtime", "oci")


def run_by(instance: EmbeddedInstance, id_: str) -> list[str]:
    """The OCI runtimes that know the container."""
    return [
        name
        for name in OCI_PROGRAMS
        if not subprocess.run(
            [name, "--root", state_of(instance), "state", id_], capture_output=True, check=False
        ).returncode
    ]


def pod(cri: Cri, name: str, handler: str = "", pid: Any = pb.CONTAINER, *, users: bool = False) -> tuple[str, str]:
    """A pod with a container that runs: the IDs of both."""
    config = config_of(name, pid)
    if users:
        config.linux.security_context.namespace_options.userns_options.CopyFrom(USERS)
    sandbox = cri.run_pod_sandbox(config, handler).result()
    return sandbox, container(cri, sandbox, config)


def config_of(name: str, pid: Any = pb.CONTAINER) -> pb.PodSandboxConfig:
    config = sandbox_config(name)
    config.linux.security_context.namespace_options.pid = pid
    return config


def container(cri: Cri, sandbox: str, config: pb.PodSandboxConfig, name: str = "main") -> str:
    wanted = container_config(["sleep", "1000"], name=name)
    wanted.linux.security_context.namespace_options.CopyFrom(config.linux.security_context.namespace_options)
    made = cri.create_container(sandbox, wanted, config).result()
    cri.start_container(made).result()
    return made


def said(cri: Cri, id_: str, *command: str) -> str:
    return bytes(cri.exec_sync(id_, list(command), 20).result().stdout).decode()


def keep(instance: EmbeddedInstance, sandbox: str, oci: str) -> None:
    """Change the OCI runtime on record."""
    records = Records(data_dir(instance.settings), "sandboxes", SandboxRecord)
    (record,) = (one for one in records.load() if one.id == sandbox)
    records.save(msgspec.structs.replace(record, oci=oci))


def memory_limit(pid: int) -> str:
    group = Path(f"/proc/{pid}/cgroup").read_text().rpartition("::")[2].strip()
    return Path(f"/sys/fs/cgroup{group}", "memory.max").read_text().strip()


@pytest.mark.parametrize(("handler", "by"), [("", "crun"), ("crun", "crun"), ("runc", "runc")])
def test_each_call_uses_the_oci_runtime_on_record(instance: EmbeddedInstance, cri: Cri, handler: str, by: str) -> None:
    sandbox, first = pod(cri, "calls", handler, pb.POD)
    assert [run_by(instance, one) for one in (sandbox, first)] == [[by]] * 2
    for killed in (False, True):
        if killed:
            instance.kill()
            instance.start()
        assert said(cri, first, "echo", "hello") == "hello\n"
        bytes_ = (64 + killed) << 20
        cri.update_container_resources(first, pb.LinuxContainerResources(memory_limit_in_bytes=bytes_)).result()
        assert memory_limit(pid_of(cri, first)) == str(bytes_)
    second = container(cri, sandbox, config_of("calls", pb.POD), "second")
    assert run_by(instance, second) == [by]
    cri.stop_container(first, 0).result()
    assert run_by(instance, first) == []
    assert run_by(instance, second) == [by]


@pytest.mark.needs("users of pods")
def test_pod_with_users_has_the_first_that_passed_the_trial(instance: EmbeddedInstance, cri: Cri) -> None:
    offered = json.loads(cri.status(verbose=True).result().info["runtime"])["userNamespaces"]
    able = [name for name, told in offered.items() if told == "yes"]
    handlers = {one.name: one.features.user_namespaces for one in cri.status().result().runtime_handlers}
    assert handlers == {"": True, **{name: name in able for name in OCI_PROGRAMS}}
    sandbox, inside = pod(cri, "users", pid=pb.POD, users=True)
    _, plain = pod(cri, "plain")
    assert [run_by(instance, one) for one in (sandbox, inside, plain)] == [able[:1], able[:1], ["crun"]]
    instance.kill()
    instance.start()
    assert said(cri, inside, "cat", "/proc/self/uid_map").split()[1] == str(USERS.uids[0].host_id)
    assert (os.stat("/dev/null").st_uid, os.stat("/dev/null").st_gid) == (0, 0)
    for name in set(OCI_PROGRAMS) - set(able):
        with pytest.raises(CriError, match=f"not supported by this runtime here: {name} would give"):
            pod(cri, f"of-{name}", name, users=True)


def test_container_that_was_killed_leaves_no_state(instance: EmbeddedInstance, cri: Cri) -> None:
    _, killed = pod(cri, "killed", "runc")
    instance.kill()
    os.kill(pid_from(instance, killed), 9)
    instance.start()
    wait_exited(cri, killed)
    assert run_by(instance, killed) == []


def pid_from(instance: EmbeddedInstance, id_: str) -> int:
    return int((data_dir(instance.settings) / "containers" / id_ / "started").read_text().split()[0])


@pytest.mark.parametrize("oci", ["", "an-oci-runtime-that-was-here-before"])
def test_record_without_a_known_oci_runtime_means_the_first(instance: EmbeddedInstance, cri: Cri, oci: str) -> None:
    sandbox, old = pod(cri, "old")
    instance.kill()
    keep(instance, sandbox, oci)
    instance.start()
    assert said(cri, old, "echo", "hello") == "hello\n"
    assert run_by(instance, container(cri, sandbox, config_of("old"), "second")) == ["crun"]


def test_sandbox_without_a_record_goes_by_its_own_oci_runtime(instance: EmbeddedInstance, cri: Cri) -> None:
    """As after a kill between the start of the pause process and the record."""
    sandbox, inside = pod(cri, "unfinished", "runc", pb.POD)
    cri.remove_container(inside).result()
    group = Path("/proc", str(sandbox_pid(instance, sandbox)), "cgroup").read_text().rpartition("::")[2].strip()
    assert Path(f"/sys/fs/cgroup{group}").is_dir()
    instance.kill()
    (data_dir(instance.settings) / "sandboxes" / sandbox / "record.json").unlink()
    instance.start()
    wait_for(lambda: not (data_dir(instance.settings) / "sandboxes" / sandbox).exists())
    assert not Path(f"/sys/fs/cgroup{group}").exists()
    assert os.listdir(state_of(instance)) == []


def sandbox_pid(instance: EmbeddedInstance, id_: str) -> int:
    return int((data_dir(instance.settings) / "sandboxes" / id_ / "started").read_text().split()[0])


def test_named_oci_runtime_is_the_only_one_of_new_pods(instance: EmbeddedInstance, cri: Cri) -> None:
    sandbox, before = pod(cri, "before")
    of_older_version, old = pod(cri, "old")
    try:
        instance.kill()
        keep(instance, of_older_version, "")
        instance.ask_for("runc")
        instance.start()
        assert [one.name for one in cri.status().result().runtime_handlers] == ["", "runc"]
        _, after = pod(cri, "after")
        later = container(cri, sandbox, config_of("before"), "later")
        assert [run_by(instance, one) for one in (before, old, later, after)] == [["crun"]] * 3 + [["runc"]]
        assert [said(cri, one, "echo", "hello") for one in (before, old)] == ["hello\n"] * 2
        with pytest.raises(CriError, match="no runtime handler 'crun'"):
            pod(cri, "refused", "crun")
    finally:
        instance.kill()
        instance.ask_for("")
        instance.start()
