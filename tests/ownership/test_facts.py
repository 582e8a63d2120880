"""The search for agents without our locks: kubelets, ports, pods of another root directory."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from inotify_simple import INotify
from inotify_simple import flags as inotify_flags
from msgspec.structs import replace

from actors._cgroup.hierarchy import hierarchy
from proto.agent.settings import Settings
from supervisor.ownership import processes, starting
from supervisor.ownership.ports import Wanted
from tests.harness import Stalls, alive
from tests.ownership.stand_ins import process
from tests.ports import free_port

pytestmark = pytest.mark.needs("root", "mounts", "cgroups")


def refusal(settings: Settings, *wanted: Wanted, take_over: bool = False) -> str:
    """The message of a refused start; empty when it goes on. Its claims are free again."""
    try:
        claims = starting.claim(settings, wanted, take_over=take_over)
    except starting.OwnershipError as error:
        return str(error)
    for one in claims:
        os.close(one.descriptor)
    return ""


def elsewhere(directory: Path) -> str:
    """A root directory that is not ours, for stand-ins that share another place."""
    (directory / "elsewhere").mkdir(exist_ok=True)
    return f"--root-dir={directory}/elsewhere"


def test_kubelet_on_our_root_directory_is_named(settings: Settings, directory: Path) -> None:
    with process("kubelet", f"--root-dir={settings.root_dir}", "--lock-file", f"{directory}/k.lock") as pid:
        said = refusal(settings)
        assert said.startswith(f"cannot start: kubelet (pid {pid}) serves root directory {settings.root_dir}")
        assert f"holds lock file {directory}/k.lock" in said
        assert "systemctl stop kubelet" in said
        assert refusal(settings, take_over=True) == said
        assert alive(pid)
    assert refusal(settings) == ""


def test_k3s_has_a_kubelet_if_it_serves_the_pod_resources_socket(settings: Settings, directory: Path) -> None:
    """Our own agent, or an agent that ends, may listen there as well: k3s itself has to."""
    served = Path(settings.root_dir, "pod-resources")
    served.mkdir(parents=True)
    title = f"k3s server --kubelet-arg=root-dir={settings.root_dir}"
    with socket.socket(socket.AF_UNIX) as ours, process("k3s", title=title):
        ours.bind(str(served / "kubelet.sock"))
        ours.listen()
        assert refusal(settings) == ""
    with process("k3s", str(served / "other.sock"), title=title) as pid:
        assert f"k3s (pid {pid}) serves root directory {settings.root_dir}" in refusal(settings)


def test_tables_longer_than_a_page_are_read_whole(directory: Path) -> None:
    with ExitStack() as held:
        for number in range(200):
            one = held.enter_context(socket.socket(socket.AF_UNIX))
            one.bind(f"{directory}/{number}")
        table = processes.read(os.getpid(), "net/unix", 1 << 20)
    assert all(f"{directory}/{number}\n".encode() in table for number in range(200))


def test_look_does_not_open_a_kubelets_lock_file(settings: Settings, directory: Path) -> None:
    """With --exit-on-lock-contention that would end the kubelet."""
    lock = directory / "k.lock"
    with (
        process("kubelet", f"--root-dir={settings.root_dir}", "--lock-file", str(lock)),
        opens_of(lock) as opened,
    ):
        assert "holds lock file" in refusal(settings)
        assert opened() == []
        lock.read_bytes()
        assert len(opened()) == 1  # it would have been seen


@contextmanager
def opens_of(path: Path) -> Iterator[Callable[[], list[Any]]]:
    with INotify() as watcher:
        watcher.add_watch(path, inotify_flags.OPEN)
        yield lambda: watcher.read(timeout=0)


def test_kubelet_in_another_mount_namespace_is_recognized(settings: Settings, directory: Path) -> None:
    Path(settings.root_dir).mkdir()
    (directory / "elsewhere").mkdir()
    bind = f"mount --bind {settings.root_dir} {directory}/elsewhere"
    with process("kubelet", elsewhere(directory), before=bind, unshare=("--mount",)) as pid:
        assert f"kubelet (pid {pid}) serves root directory {settings.root_dir}" in refusal(settings)


def test_kubelets_absolute_link_is_resolved_in_its_root(settings: Settings, directory: Path) -> None:
    """There the link leads to another directory than the same path does here."""
    root = directory / "chroot"
    Path(settings.root_dir).mkdir()
    (root / settings.root_dir[1:]).mkdir(parents=True)
    (root / "link").symlink_to(settings.root_dir)
    with process("kubelet", "--root-dir=/link", chroot=root):
        assert refusal(settings) == ""
    with process("kubelet", f"--root-dir={root}/link"):
        assert "serves root directory" in refusal(settings)


def test_kubelet_with_separate_places_is_no_conflict(settings: Settings, directory: Path, cgroup_root: str) -> None:
    """As in kind: the same paths in namespaces of its own, and other inodes behind them."""
    ours, theirs = f"{cgroup_root}/ours", f"{cgroup_root}/theirs"
    before = []
    for path in (settings.root_dir, settings.pod_logs_dir):
        before += [f"mkdir -p {path} {directory}/kind{path}", f"mount --bind {directory}/kind{path} {path}"]
    for here, there in zip(hierarchy().paths(ours), hierarchy().paths(theirs), strict=True):
        before += [f"mkdir -p {here}/kubepods {there}/kubepods", f"mount --bind {there} {here}"]
    flags = (f"--root-dir={settings.root_dir}", f"--cgroup-root={ours}", "--cgroup-driver=cgroupfs")
    kind = process("kubelet", *flags, before="\n".join(before), unshare=("--mount", "--cgroup"))
    with kind as pid:
        assert refusal(replace(settings, cgroup_root=ours)) == ""
        assert f"kubelet (pid {pid}) serves cgroup" in refusal(replace(settings, cgroup_root=theirs))


@pytest.mark.parametrize("flags", [["--cgroup-root={root}"], ["--config={config}"]], ids=["flag", "file"])
def test_kubelet_on_our_cgroup_root_is_named(
    settings: Settings, directory: Path, flags: list[str], cgroup_root: str
) -> None:
    config = directory / "kubelet.yaml"
    config.write_text(
        "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
        f"cgroupRoot: {cgroup_root}\ncgroupDriver: cgroupfs\n"
    )
    given = [flag.format(root=cgroup_root, config=config) for flag in flags]
    with process("kubelet", elsewhere(directory), *given) as pid:
        assert f"kubelet (pid {pid}) serves cgroup {cgroup_root}/kubepods" in refusal(settings)


@pytest.mark.parametrize(
    "arguments",
    [
        ("kubelet", "--root-dir=/nowhere/at/all", "--config=/dev/zero"),
        ("kubelet", *["--root-dir=/" + "x" * 3000] * 30),
        ("kubelet", "--root-dir=\n\t", "--config=/proc/self/mem", "--cgroup-root=../../.."),
        ("k3s", "kubectl", "get", "pods"),
    ],
)
def test_odd_command_lines_prevent_no_start(settings: Settings, arguments: tuple[str, ...]) -> None:
    with process(*arguments):
        assert refusal(settings) == ""


@pytest.mark.parametrize("user", [0, 65_534], ids=["root", "ordinary user"])
def test_only_root_can_keep_root_from_starting(settings: Settings, user: int) -> None:
    """A process of an ordinary user cannot serve root's directories, with any name."""
    Path(settings.root_dir).mkdir()
    script = 'exec -a "$0" bash -c "echo up; read end" "$0" "$@"'
    line = ["setpriv", f"--reuid={user}", "bash", "-c", script, "kubelet", f"--root-dir={settings.root_dir}"]
    with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as started:
        assert started.stdout is not None
        started.stdout.readline()
        assert (f"kubelet (pid {started.pid})" in refusal(settings)) == (user == 0)
        started.kill()


def test_zombie_is_not_alive() -> None:
    ended = subprocess.Popen(["true"])
    os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
    assert Path(f"/proc/{ended.pid}").exists()
    assert not processes.alive(ended.pid)
    ended.wait()
    assert processes.alive(os.getpid())


@pytest.mark.parametrize(("listens", "wanted"), [("127.0.0.1", "0.0.0.0"), ("::", "127.0.0.1")])
def test_port_that_is_in_use_is_named_with_its_process(settings: Settings, listens: str, wanted: str) -> None:
    family = socket.AF_INET6 if ":" in listens else socket.AF_INET
    port = free_port()
    script = (
        f"import socket, time; s = socket.socket({int(family)}); s.bind(('{listens}', {port})); s.listen()\n"
        "print('up', flush=True); time.sleep(600)"
    )
    with subprocess.Popen(["python3", "-c", script], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        said = refusal(settings, Wanted("--port", wanted, port))
        assert (
            f"port {port} is in use by python3 (pid {holder.pid}); stop it, or choose another port with --port" in said
        )
        holder.kill()
    assert refusal(settings, Wanted("--port", wanted, port)) == ""


@contextmanager
def pod_cgroup(settings: Settings, uid: str, *, hierarchies: int = 99, lives: bool = True) -> Iterator[int]:
    """A pod's cgroup with a process in it, or an empty one; the pid."""
    paths = hierarchy().paths(f"{settings.cgroup_root}/kubepods/besteffort/pod{uid}/c")[:hierarchies]
    with subprocess.Popen(["sleep", "600"]) as started:
        for path in paths:
            os.makedirs(path)
            if "/cpuset/" in path:
                for above in reversed([Path(path), *Path(path).parents][: path.count("/") - 4]):
                    for file in ("cpuset.cpus", "cpuset.mems"):
                        (above / file).write_text((above.parent / file).read_text())
            if lives:
                Path(path, "cgroup.procs").write_text(str(started.pid))
        try:
            yield started.pid
        finally:
            started.kill()


def test_foreign_pod_prevents_the_start_and_lives_on(settings: Settings) -> None:
    with pod_cgroup(settings, "f0e1", hierarchies=1) as pid:
        said = refusal(settings)
        assert said.startswith("cannot start: 1 pod of another agent runs below our cgroup root")
        assert f"f0e1 in {settings.cgroup_root}/kubepods/besteffort/podf0e1 (pid {pid} sleep)" in said
        assert "--take-over" in said
        assert alive(pid)
        assert not Path(settings.root_dir, "pods").exists()


def test_taken_over_pod_is_ours_also_for_the_next_start(settings: Settings) -> None:
    with pod_cgroup(settings, "f0e1", hierarchies=1) as pid:
        assert refusal(settings, take_over=True) == ""
        assert Path(settings.root_dir, "pods/f0e1").is_dir()
        assert refusal(settings) == ""
        assert alive(pid)


@pytest.mark.parametrize("mark", ["pods/f0e1/", "nodevisor/api-pods/f0e1.json", "nodevisor/removed-pods"])
def test_pod_with_a_mark_below_our_root_directory_is_ours(settings: Settings, mark: str) -> None:
    path = Path(settings.root_dir, mark)
    path.parent.mkdir(parents=True)
    if mark.endswith("/"):
        path.mkdir()
    else:
        path.write_text("f0e1\n")
    with pod_cgroup(settings, "f0e1", hierarchies=1):
        assert refusal(settings) == ""


def test_remains_of_a_dead_pod_do_not_prevent_the_start(settings: Settings) -> None:
    Path(settings.pod_logs_dir, "default_web_f0e1").mkdir(parents=True)
    with pod_cgroup(settings, "f0e1", lives=False):
        assert refusal(settings) == ""


def test_search_of_many_processes_is_quick(settings: Settings) -> None:
    """300 of them, some kubelets among them, far below a second; a quiet machine takes 20 ms."""
    with ExitStack() as stack:
        for number in range(300):
            name = "kubelet" if number < 10 else "sleep"
            line = ["sleep", "600"] if name == "sleep" else ["bash", "-c", "exec -a kubelet sleep 600"]
            started = stack.enter_context(subprocess.Popen(line))
            stack.callback(started.kill)
        began = time.monotonic()
        with Stalls() as machine:
            said = refusal(settings)
        took = time.monotonic() - began
    assert "in use" not in said
    assert took < 1.0 + machine.longest_s, took


def test_users_of_a_directory_are_those_in_it_and_with_files_below(tmp_path: Path) -> None:
    beside = tmp_path.with_name(f"{tmp_path.name}-beside")
    beside.mkdir()
    with (tmp_path / "data").open("w"):
        assert (os.getpid(), f"open file {tmp_path}/data") in set(processes.users(str(tmp_path)))
        assert list(processes.users(str(beside))) == []
    with subprocess.Popen(["sleep", "60"], cwd=tmp_path) as user:
        assert list(processes.users(str(tmp_path))) == [(user.pid, "working directory")]
        user.kill()
