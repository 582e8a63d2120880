"""The helper: its plans for config.json, and the containers that it makes for an ordinary user."""

import io
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import actors
from actors.runtime.helper import cgroups, state
from actors.runtime.helper.identity import plain_path
from actors.runtime.helper.kernel.capabilities import mask
from actors.runtime.helper.kernel.seccomp import groups
from actors.runtime.helper.main import parse
from actors.runtime.helper.plan import (
    PLAIN,
    ROOT,
    USER,
    BadBundle,
    Bind,
    Cgroups,
    Device,
    Link,
    Mask,
    Mount,
    ReadOnly,
    plan,
    without_mknod,
)
from actors.runtime.model import processes
from actors.runtime.oci.helper import helper_command
from tests.containerd import layers, machine
from tests.runtime.inside import HEADLESS
from tests.runtime.instance import wait_for

ORDINARY_UID = 54321
PROC = {"destination": "/proc", "type": "proc", "source": "proc", "options": ["nosuid", "noexec", "nodev"]}
SYS = {"destination": "/sys", "type": "sysfs", "source": "sysfs", "options": ["nosuid", "ro"]}
PTS = {"destination": "/dev/pts", "type": "devpts", "source": "devpts", "options": ["newinstance", "gid=5"]}
CGROUP = {"destination": "/sys/fs/cgroup", "type": "cgroup", "source": "cgroup", "options": ["ro"]}
DEV = {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755"]}
DATA = {"destination": "/data", "type": "bind", "source": "/srv", "options": ["rbind", "rslave", "ro"]}
DEEP = {"destination": "/deep", "type": "bind", "source": "/srv", "options": ["rbind", "rprivate", "rro"]}


def config(*mounts: dict[str, Any], namespaces: dict[str, str] | None = None, **linux: Any) -> dict[str, Any]:
    kinds = {"mount": "", "pid": ""} if namespaces is None else namespaces
    listed = [{"type": kind, **({"path": path} if path else {})} for kind, path in kinds.items()]
    return {
        "root": {"path": "/r"},
        "process": {"args": ["true"], "user": {"uid": 0, "gid": 0}},
        "mounts": list(mounts),
        "linux": {"namespaces": listed, "cgroupsPath": "/kubepods/x", **linux},
    }


@pytest.mark.parametrize(
    ("one", "mode", "steps"),
    [
        (PROC, ROOT, [Mount("/proc", "proc", "proc", 2 | 4 | 8, "")]),
        (PROC, USER, [Mount("/proc", "proc", "proc", 2 | 4 | 8, "")]),
        (SYS, ROOT, [Mount("/sys", "sysfs", "sysfs", 1 | 2, "")]),
        (SYS, USER, [Bind("/sys", "/sys", True, 1, below=1)]),
        (PTS, ROOT, [Mount("/dev/pts", "devpts", "devpts", 0, "gid=5")]),
        (PTS, USER, [Mount("/dev/pts", "devpts", "devpts", 0, "")]),
        (CGROUP, ROOT, [Cgroups("/sys/fs/cgroup", 1)]),
        (CGROUP, USER, []),
        (DATA, ROOT, [Bind("/data", "/srv", True, 1, propagation=1 << 19)]),
        (DEEP, USER, [Bind("/deep", "/srv", True, 0, below=1, propagation=1 << 18)]),
        (DATA, PLAIN, []),
    ],
)
def test_mounts_depend_on_the_mode(one: dict[str, Any], mode: str, steps: list[object]) -> None:
    assert list(plan(config(one), mode).steps) == steps


def test_devices_are_created_by_root_and_bound_for_others() -> None:
    null = {"type": "c", "path": "/dev/mine", "major": 1, "minor": 3, "fileMode": 0o600, "uid": 7}
    made = plan(config(DEV, devices=[null]), ROOT).steps
    assert Device("/dev/mine", stat.S_IFCHR | 0o600, 1, 3, 7, 0) in made
    assert Device("/dev/null", stat.S_IFCHR | 0o666, 1, 3) in made
    assert Link("/proc/self/fd", "/dev/fd") in made
    lent = plan(config(DEV, devices=[null]), USER).steps
    assert Bind("/dev/null", "/dev/null", False, 0) in lent
    assert not [step for step in lent if isinstance(step, Device)]


def test_masks_come_after_mounts() -> None:
    made = plan(config(PROC, maskedPaths=["/proc/a"], readonlyPaths=["/proc/b"]), ROOT).steps
    assert made[1:] == (Mask("/proc/a"), ReadOnly("/proc/b"))


@pytest.mark.parametrize(
    ("mode", "join", "new", "cgroup"),
    [
        (ROOT, (("ipc", "/i"), ("network", "/n")), ("mount", "pid"), "/kubepods/x"),
        (USER, (), ("mount", "pid", "user"), ""),
        (PLAIN, (), (), ""),
    ],
)
def test_namespaces_and_cgroups_depend_on_the_mode(mode: str, join: object, new: object, cgroup: str) -> None:
    kinds = {"mount": "", "pid": "", "network": "/n", "ipc": "/i"}
    made = plan(config(namespaces=kinds), mode)
    assert (made.join, made.new, made.cgroup) == (join, new, cgroup)


@pytest.mark.parametrize("kinds", [{"pid": ""}, {"mount": "/proc/1/ns/mnt"}])
def test_container_without_mount_namespace_is_refused(kinds: dict[str, str]) -> None:
    for mode in (ROOT, USER):
        with pytest.raises(BadBundle, match="mount namespace"):
            plan(config(namespaces=kinds), mode)


@pytest.mark.parametrize(
    "target", ["/proc", "/proc/", "/proc/sys", "/proc/../proc/self/attr", "/proc/sys/kernel/core_pattern"]
)
def test_mounts_over_proc_are_refused(target: str) -> None:
    with pytest.raises(BadBundle, match="/proc"):
        plan(config(PROC, {**DATA, "destination": target}), ROOT)


@pytest.mark.parametrize(
    ("target", "source"), [("/proc/meminfo", "/var/lib/lxcfs/meminfo"), ("/proc", "/proc"), ("/process", "/srv")]
)
def test_lxcfs_files_and_the_machines_proc_are_allowed(target: str, source: str) -> None:
    assert plan(config({**DATA, "destination": target, "source": source}), ROOT).steps


def test_entering_helper_loads_no_module_and_is_not_dumpable() -> None:
    script = (
        "import sys; sys.path.insert(0, sys.argv[1]); import ctypes; from actors.runtime.helper import commands\n"
        "commands._protect_process()\n"
        "print(ctypes.CDLL(None).prctl(3, 0, 0, 0, 0))\n"  # PR_GET_DUMPABLE
        "try:\n    import colorsys\nexcept ImportError:\n    print('no module')"
    )
    command = [sys.executable, "-I", "-S", "-c", script, str(Path(actors.__file__).parents[1])]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    assert ran.stdout.split("\n")[:2] == ["0", "no module"]


RESOURCES = {
    "cpu": {"shares": 1024, "quota": 50000, "period": 100000, "cpus": "0-1"},
    "memory": {"limit": 100, "swap": 150},
    "hugepageLimits": [{"pageSize": "2MB", "limit": 0}],
    "unified": {"memory.high": "90"},
}


def test_limits_in_the_files_of_cgroup_v1() -> None:
    assert cgroups.writes(RESOURCES, unified=False) == [
        ("cpu", "cpu.shares", "1024"),
        ("cpu", "cpu.cfs_period_us", "100000"),
        ("cpu", "cpu.cfs_quota_us", "50000"),
        ("memory", "memory.limit_in_bytes", "100"),
        ("memory", "memory.memsw.limit_in_bytes", "150"),
        ("cpuset", "cpuset.cpus", "0-1"),
        ("hugetlb", "hugetlb.2MB.limit_in_bytes", "0"),
    ]


def test_limits_in_the_files_of_cgroup_v2() -> None:
    assert cgroups.writes(RESOURCES, unified=True) == [
        ("cpu", "cpu.weight", "39"),
        ("cpu", "cpu.max", "50000 100000"),
        ("memory", "memory.max", "100"),
        ("memory", "memory.swap.max", "50"),
        ("cpuset", "cpuset.cpus", "0-1"),
        ("hugetlb", "hugetlb.2MB.max", "0"),
        ("memory", "memory.high", "90"),
    ]
    assert cgroups.writes({"cpu": {"quota": -1}, "memory": {"limit": -1}}, unified=True) == [
        ("cpu", "cpu.max", "max 100000"),
        ("memory", "memory.max", "max"),
    ]


def test_devices_that_may_be_opened() -> None:
    rules: list[Any] = [
        {"allow": False, "access": "rwm"},
        {"allow": True, "type": "c", "access": "m"},
        {"allow": True, "type": "c", "major": 136, "access": "rwm"},
        {"allow": True, "type": "b", "major": 8, "minor": 0, "access": "r"},
    ]
    assert cgroups.device_writes(rules) == [
        ("devices", "devices.deny", "a"),
        ("devices", "devices.allow", "c *:* m"),
        ("devices", "devices.allow", "c 136:* rwm"),
        ("devices", "devices.allow", "b 8:0 r"),
    ]


def test_mknod_is_dropped_without_device_cgroups() -> None:
    process = {"capabilities": {"bounding": ["CAP_MKNOD", "CAP_KILL"]}}
    limited = [{"allow": False, "access": "rwm"}, {"allow": True, "type": "c", "access": "m"}]
    assert without_mknod(process, limited)["capabilities"] == {"bounding": ["CAP_KILL"]}
    assert without_mknod(process, [{"allow": True, "access": "rwm"}]) is process


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/kubepods/pod1/c", "/kubepods/pod1/c"),
        (
            "kubepods-besteffort-pod1.slice:nodevisor:c",
            "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod1.slice/nodevisor-c.scope",
        ),
        (":nodevisor:c", "/nodevisor-c.scope"),
    ],
)
def test_cgroup_name_of_cgroups_path(path: str, name: str) -> None:
    assert cgroups.name_of(path) == name


def test_each_hierarchy_is_found_once() -> None:
    lines = [
        b"29 1 0:25 /\xff\x0c\r\xe2\x80\xa8x /pods/v rw - ext4 /dev/a rw",  # as a pod names its directory
        b"30 1 0:26 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct",
        b"31 1 0:26 / /elsewhere rw - cgroup cgroup rw,cpu,cpuacct",
        b"32 1 0:27 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw,nsdelegate",
    ]
    found = cgroups.parse(b"\n".join(lines))
    assert found == {"/sys/fs/cgroup/cpu,cpuacct": ["cpu", "cpuacct"], "/sys/fs/cgroup/unified": [""]}
    assert not cgroups.is_unified(found)


def test_masks_paths_filter_groups_and_options() -> None:
    assert mask(["CAP_CHOWN", "CAP_KILL", "CAP_NOBODY_KNOWS"]) == 1 | 1 << 5
    assert plain_path("/bin:/usr/bin", "/r") == "/r/bin:/r/usr/bin:/bin:/usr/bin"
    one, other = {"index": 0, "op": "x"}, {"index": 1, "op": "x"}
    assert groups([one, other]) == [[one, other]]
    assert groups([one, one]) == [[one], [one]]
    assert parse(["--mode", "user", "exec", "--force", "id"]) == ({"mode": "user", "force": ""}, ["exec", "id"])


def test_process_is_identified_by_its_start_time() -> None:
    assert state.runs({"pid": os.getpid(), "ticks": state.ticks(os.getpid())})
    assert not state.runs({"pid": os.getpid(), "ticks": "1"})
    gone = subprocess.Popen(["true"])
    gone.wait()
    assert not state.runs({"pid": gone.pid, "ticks": ""})


def test_process_without_first_thread_is_alive_and_gets_signals() -> None:
    with subprocess.Popen([sys.executable, *HEADLESS[1:]]) as headless:
        pid = headless.pid
        try:
            wait_for(lambda: ") Z " in Path(f"/proc/{pid}/stat").read_text())
            known = state.ticks(pid)
            assert known == state.start_time(pid) != ""
            assert processes.is_alive(pid, known)
            assert pid in state.session(os.getsid(0))
            assert state.live_thread(pid) != f"/proc/{pid}/task/{pid}"
            processes.send_signal(pid, "1", signal.SIGKILL)  # the start time of another process
            assert processes.is_alive(pid, known)
            processes.send_signal(pid, known, signal.SIGKILL)
            wait_for(lambda: state.ticks(pid) == "")
            assert state.start_time(pid) == known  # not reaped
            assert not processes.is_alive(pid, known)
            with pytest.raises(state.NoContainer):
                state.live_thread(pid)
        finally:
            headless.kill()


# As an ordinary user


@pytest.fixture
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory of an ordinary user with a copy of the helper, whose sources that user may not read in place."""
    directory = Path(tmp_path_factory.mktemp("helper"))
    for above in (directory, *directory.parents):
        if above.stat().st_uid == os.geteuid() and str(above) != "/" and not above.stat().st_mode & 0o001:
            above.chmod(above.stat().st_mode | 0o011)
    package = directory / "code/actors/runtime"
    shutil.copytree(Path(actors.__file__).parent / "runtime/helper", package / "helper")
    for inner in (package, package.parent):
        (inner / "__init__.py").touch()
    with tarfile.open(fileobj=io.BytesIO(layers.shell(machine.busybox_program()))) as archive:
        archive.extraction_filter = lambda member, _: member  # our own archive; Python 3.14 changes members by default
        archive.extractall(directory / "root")
    (directory / "given").mkdir()
    (directory / "given/file").write_text("given\n")
    for path in (directory, *directory.rglob("*")):
        os.chown(path, ORDINARY_UID, ORDINARY_UID, follow_symlinks=False)
    return directory


def interpreter() -> str:
    """An interpreter that an ordinary user may execute; the tests' own may be in root's home directory."""
    for python in (os.path.realpath(sys.executable), "/usr/bin/python3"):
        command = [
            "setpriv",
            "--reuid",
            str(ORDINARY_UID),
            "--regid",
            str(ORDINARY_UID),
            "--clear-groups",
            python,
            "-c",
        ]
        wanted = "import sys; sys.exit(sys.version_info < (3, 11))"
        if subprocess.run([*command, wanted], check=False, capture_output=True, cwd="/").returncode == 0:
            return python
    pytest.fail(
        "no Python 3.11 here that an ordinary user may execute: install the Debian package python3", pytrace=False
    )


def as_ordinary_user(place: Path, mode: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    _, *options = helper_command(mode)
    options[options.index(str(Path(actors.__file__).parents[1]))] = str(place / "code")
    command = ["setpriv", "--reuid", str(ORDINARY_UID), "--regid", str(ORDINARY_UID), "--clear-groups", interpreter()]
    return subprocess.run(
        [*command, *options, "--root", str(place / "state"), *arguments],
        capture_output=True,
        text=True,
        cwd="/",
        timeout=60,
        check=False,
    )


def write_bundle(place: Path, script: str, image: str = "", mounts: Sequence[dict[str, Any]] = ()) -> None:
    told = config(*(mounts or (PROC, DEV, {**DATA, "source": str(place / "given")})))
    told["root"] = {"path": image or str(place / "root")}
    told["process"] = {
        "args": ["sh", "-c", script],
        "env": ["PATH=/bin"],
        "cwd": "/",
        "user": {"uid": 0, "gid": 0},
        "capabilities": {"bounding": ["CAP_CHOWN"], "effective": ["CAP_CHOWN"], "permitted": ["CAP_CHOWN"]},
    }
    (place / "config.json").write_text(json.dumps(told))


def run_bundle(place: Path, mode: str, script: str, **bundle: Any) -> "subprocess.CompletedProcess[str]":
    """The output of a container, which ends when the container and the helper have closed it."""
    write_bundle(place, script, **bundle)
    ran = as_ordinary_user(
        place, mode, "run", "--detach", "--bundle", str(place), "--pid-file", str(place / "pid"), "one"
    )
    as_ordinary_user(place, mode, "delete", "--force", "one")
    assert not (place / "state/one").exists()
    return ran


@pytest.mark.needs("root", "user namespaces")
def test_user_namespace_container_has_only_the_users_rights(place: Path) -> None:
    ran = run_bundle(place, USER, "id -u; cat /data/file; echo x > /data/new; ls /; echo $$; echo made > /made")
    assert ran.returncode == 0, ran.stderr
    names = {entry.name for entry in (place / "root").iterdir()} - {"made"}
    assert ran.stdout.split() == ["0", "given", *sorted({*names, "data", "dev", "proc"}), "1"]
    assert "Read-only" in ran.stderr
    assert (place / "root/made").stat().st_uid == ORDINARY_UID


@pytest.mark.needs("root")
def test_host_image_is_read_only_in_a_user_namespace(place: Path) -> None:
    ran = run_bundle(place, USER, f"echo x > {place}/file || touch /tmp/file", image="/", mounts=(PROC, DEV))
    assert ran.stderr.count("Read-only") == 2, ran.stderr
    assert not (place / "file").exists()


@pytest.mark.needs("root")
def test_plain_container_has_image_directory_and_no_new_privs(place: Path) -> None:
    ran = run_bundle(place, PLAIN, "pwd; id -u; cat data/file; cat /proc/self/status")
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines()[:3] == [str(place / "root"), str(ORDINARY_UID), "given"]
    assert "NoNewPrivs:\t1" in ran.stdout


@pytest.mark.needs("root")
def test_plain_containers_session_ends_with_it(place: Path) -> None:
    write_bundle(place, "exec 1>&- 2>&-; sleep 1000 & sleep 1000")
    arguments = ["run", "--detach", "--bundle", str(place), "--pid-file", str(place / "pid"), "one"]
    assert as_ordinary_user(place, PLAIN, *arguments).returncode == 0
    leader = (place / "pid").read_text()
    assert as_ordinary_user(place, PLAIN, "delete", "--force", "one").returncode == 0
    # The processes have been killed by then, and each takes a moment to end.
    wait_for(lambda: not [pid for pid in os.listdir("/proc") if pid.isdigit() and session_of(pid) == leader])


def session_of(pid: str) -> str:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in ("Z", "X") else fields[3]


@pytest.mark.needs("root")
def test_missing_program_is_named(place: Path) -> None:
    write_bundle(place, "")
    told = json.loads((place / "config.json").read_text())
    told["process"]["args"] = ["no-such-program"]
    (place / "config.json").write_text(json.dumps(told))
    log = place / "log"
    ran = as_ordinary_user(
        place, PLAIN, "--log", str(log), "run", "--bundle", str(place), "--pid-file", str(place / "pid"), "one"
    )
    assert ran.returncode == 1
    assert json.loads(log.read_text())["msg"] == "no-such-program: executable file not found in $PATH"
    assert not (place / "state/one").exists()
