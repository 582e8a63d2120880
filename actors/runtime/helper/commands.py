"""The commands of the helper, our OCI runtime: run, exec, delete and update a container."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from actors.runtime.helper import cgroups, state, terminal
from actors.runtime.helper.container_root import ContainerRoot
from actors.runtime.helper.identity import Identity
from actors.runtime.helper.kernel import syscalls
from actors.runtime.helper.mounting import Mounting
from actors.runtime.helper.plan import PLAIN, Plan, binds, plan, without_mknod

_JOINED = ("network", "ipc", "uts", "cgroup", "mount")
_PROC_NAMES = {"network": "net", "mount": "mnt"}


class Failed(Exception):
    """The command failed; the message goes to the caller."""


class Options(NamedTuple):
    """The command line's options."""

    mode: str
    root: str
    id: str = ""
    bundle: str = ""
    process: str = ""
    pid_file: str = ""
    console: str = ""


def run(options: Options) -> None:
    """Start a container; return once its program is executed. Raises Failed, OSError, BadBundle."""
    config = _read(f"{options.bundle}/config.json")
    made = plan(config, options.mode)
    saved = {"bundle": options.bundle, "cgroup": made.cgroup, "pid": 0, "ticks": ""}
    state.save(options.root, options.id, saved)
    try:
        if made.cgroup:
            cgroups.create(made.cgroup, config["linux"].get("resources", {}))
        pid = _start(options, config, made)
        # Before the pid is published: a client that knows it may send any command.
        state.save(options.root, options.id, saved | {"pid": pid, "ticks": state.ticks(pid)})
        _write_pid(options.pid_file, pid)
    except BaseException:
        with contextlib.suppress(OSError):
            delete(options)
        raise


def _start(options: Options, config: Any, made: Plan) -> int:
    process = _limit_devices(config, config["process"], made.cgroup)
    connection = terminal.connect(options.console) if options.console else None
    identity = Identity(process, config.get("linux", {}).get("seccomp"), options.mode)
    uid, gid = os.geteuid(), os.getegid()
    for kind, path in made.join:
        if kind == "pid":
            syscalls.setns(path)
    syscalls.unshare(_flags(made.new, ("user", "pid")))
    if made.maps_user:
        _map_user(process["user"], uid, gid)

    def run_child(keep: int) -> None:
        if made.cgroup:
            cgroups.enter(made.cgroup)
        _set_oom_score(process)
        _protect_process()
        for kind, path in made.join:
            if kind != "pid":
                syscalls.setns(path)
        syscalls.unshare(_flags(made.new, ("mount", "ipc", "uts", "network", "cgroup")))
        if options.mode == PLAIN:
            root = os.path.realpath(made.root)
            _link_binds(root, config)
            if connection is not None:
                terminal.attach(terminal.of_machine(), connection, process)
            identity.execute_plain(root, keep)
        mounting = Mounting(made)
        container_root = mounting.make()
        if connection is not None:
            devpts = mounting.terminals if mounting.terminals >= 0 else container_root.terminals()
            own = terminal.of_container(devpts)
            terminal.show_as_console(own, container_root)
            terminal.attach(own, connection, process)
        identity.execute(container_root.directory(_working_directory(process)), keep)

    return _fork(run_child)


def execute(options: Options) -> int:
    """Run a further process in a container; return its exit code. Raises Failed, OSError, NoContainer."""
    saved = state.load(options.root, options.id)
    if not state.runs(saved):
        raise state.NoContainer(f"container {options.id} is not running")
    config = _read(f"{saved['bundle']}/config.json")
    process = _limit_devices(config, _read(options.process), saved["cgroup"])
    connection = terminal.connect(options.console) if options.console else None
    identity = Identity(process, config.get("linux", {}).get("seccomp"), options.mode)
    directory = f"{state.live_thread(saved['pid'])}/ns"
    wanted = [] if options.mode == PLAIN else [kind for kind in ("user", "pid", *_JOINED) if _differs(directory, kind)]
    # Open descriptors first: the container's mounts may have no /proc to find them in.
    opened = {kind: os.open(_namespace(directory, kind), os.O_RDONLY | os.O_CLOEXEC) for kind in wanted}
    if not state.runs(saved):  # else the namespaces may belong to another process
        raise state.NoContainer(f"container {options.id} is not running")
    for kind in ("user", "pid"):
        if kind in opened:
            syscalls.setns_of(opened[kind], kind)

    def run_child(keep: int) -> None:
        if saved["cgroup"]:
            cgroups.enter(saved["cgroup"], saved["pid"])
        _set_oom_score(process)
        _protect_process()
        for kind in _JOINED:
            if kind in opened:
                syscalls.setns_of(opened[kind], kind)
        container_root = ContainerRoot() if options.mode != PLAIN else None
        if connection is not None:
            made = (
                terminal.of_machine() if container_root is None else terminal.of_container(container_root.terminals())
            )
            terminal.attach(made, connection, process)
        elif process.get("terminal"):
            terminal.take(0)
        if container_root is None:
            identity.execute_plain(os.path.realpath(config["root"]["path"]), keep)
        else:
            identity.execute(container_root.existing_directory(_working_directory(process)), keep)

    pid = _fork(run_child)
    _write_pid(options.pid_file, pid)
    _, status = os.waitpid(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def delete(options: Options) -> None:
    """End a container's processes and remove its state. Idempotent. Raises OSError."""
    try:
        saved = state.load(options.root, options.id)
    except state.NoContainer:
        state.forget(options.root, options.id)
        return
    if saved["pid"] and not saved["cgroup"] and options.mode == PLAIN:  # session 0 is the kernel's
        _kill_session(saved)
    elif state.runs(saved):
        state.send_signal(saved["pid"], saved["ticks"], signal.SIGKILL)
    if saved["cgroup"]:
        cgroups.remove(saved["cgroup"])
    state.forget(options.root, options.id)


def _kill_session(saved: Mapping[str, Any]) -> None:
    first = {saved["pid"]: saved["ticks"]} if state.runs(saved) else {}
    for pid, ticks in first.items():  # stopped, it starts no process, and keeps the session's number
        state.send_signal(pid, ticks, signal.SIGSTOP)
    for pid, ticks in {**state.session_of(saved), **first}.items():
        with contextlib.suppress(PermissionError):
            state.send_signal(pid, ticks, signal.SIGKILL)


def update(options: Options, resources: Any) -> None:
    """Change limits, if the container has a cgroup. Raises OSError, NoContainer."""
    saved = state.load(options.root, options.id)
    if saved["cgroup"]:
        cgroups.update(saved["cgroup"], resources)


def _fork(run_child: Callable[[int], None]) -> int:
    """Fork a child that executes a program; return its pid. Raises Failed with the child's message.

    `run_child` runs in the child. It gets the descriptor that the message is sent through.
    """
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.setsid()
            run_child(writer)
        except BaseException as error:
            os.write(writer, describe(error).encode("utf-8", "replace")[:4000])
        finally:
            os._exit(127)
    os.close(writer)
    said = b""
    while chunk := os.read(reader, 4096):
        said += chunk
    os.close(reader)
    if said:
        os.waitpid(pid, 0)
        raise Failed(said.decode("utf-8", "replace"))
    return pid


def describe(error: BaseException) -> str:
    """An error as it appears in the pod's events."""
    if isinstance(error, OSError) and error.strerror:
        said = error.strerror[:1].lower() + error.strerror[1:]
        return f"{error.filename}: {said}" if error.filename else said
    return str(error) or type(error).__name__


def _limit_devices(config: Any, process: Any, cgroup: str) -> Any:
    if not cgroup or cgroups.limits_devices():
        return process
    return without_mknod(process, config["linux"].get("resources", {}).get("devices", ()))


def _flags(kinds: tuple[str, ...], among: tuple[str, ...]) -> int:
    total = 0
    for kind in kinds:
        if kind in among:
            total |= syscalls.NEW[kind]
    return total


def _map_user(user: Any, uid: int, gid: int) -> None:
    """Map the container's user to this process's user."""
    for name, text in (
        ("setgroups", "deny"),
        ("uid_map", f"{user['uid']} {uid} 1"),
        ("gid_map", f"{user['gid']} {gid} 1"),
    ):
        with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
            file.write(text)


def _set_oom_score(process: Any) -> None:
    if "oomScoreAdj" in process:
        with contextlib.suppress(PermissionError), open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
            file.write(str(process["oomScoreAdj"]))


def _working_directory(process: Any) -> str:
    return os.path.normpath(process.get("cwd") or "/")


def _protect_process() -> None:
    """Protect this process before it enters a container, whose processes and files are hostile.

    Not dumpable, its descriptors, memory and program are readable only with CAP_SYS_PTRACE. The executed program is
    dumpable again. A module that is not loaded by now would be loaded from the container (CVE-2019-14271).
    """
    syscalls.prctl(syscalls.PR_SET_DUMPABLE, 0)
    sys.path.clear()
    sys.meta_path.clear()


def _link_binds(root: str, config: Any) -> None:
    """Make links in place of bind mounts, for programs that look from their working directory."""
    for target, source in binds(config):
        place = root + target
        if root in ("", "/") or os.path.realpath(os.path.dirname(place)) != os.path.dirname(place):
            continue  # never change the machine's root; an image's link may lead out of it
        with contextlib.suppress(OSError):
            os.makedirs(os.path.dirname(place), mode=0o755, exist_ok=True)
            if os.path.islink(place) or os.path.isfile(place):
                os.unlink(place)
            elif os.path.isdir(place):
                os.rmdir(place)
            os.symlink(source, place)


def _namespace(directory: str, kind: str) -> str:
    return f"{directory}/{_PROC_NAMES.get(kind, kind)}"


def _differs(directory: str, kind: str) -> bool:
    return os.readlink(_namespace(directory, kind)) != os.readlink(_namespace("/proc/self/ns", kind))


def _write_pid(path: str, pid: int) -> None:
    with open(f"{path}.tmp", "w", encoding="ascii") as file:
        file.write(str(pid))
    os.rename(f"{path}.tmp", path)


def _read(path: str) -> Any:
    with open(path, encoding="utf-8") as file:
        return json.load(file)
