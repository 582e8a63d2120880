"""The helper's command line. Errors go to stderr and to --log, as JSON lines like runc's."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import sys
from collections.abc import Sequence

from actors.runtime.helper import commands, shown_mounts
from actors.runtime.helper.commands import Failed, Options, describe
from actors.runtime.helper.held_namespaces import hold
from actors.runtime.helper.kernel import syscalls
from actors.runtime.helper.kernel.adopting import run_detached
from actors.runtime.helper.kernel.features import features
from actors.runtime.helper.kernel.relabel import relabel
from actors.runtime.helper.plan import BadBundle
from actors.runtime.helper.state import NoContainer

NAME = "nodevisor-helper"
_CHUNK = 1024 * 1024
_VALUES = ("mode", "root", "log", "log-format", "bundle", "pid-file", "console-socket", "process", "resources")


def parse(arguments: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Options by name, and the remaining words: command and ID, and all after `--`."""
    options: dict[str, str] = {}
    rest: list[str] = []
    left = list(arguments)
    while left:
        word = left.pop(0)
        if word == "--":
            return options, rest + left
        if word.startswith("--"):
            name = word[2:]
            options[name] = left.pop(0) if name in _VALUES and left else ""
        else:
            rest.append(word)
    return options, rest


def main(arguments: Sequence[str]) -> int:
    """Run a command; return the exit code."""
    syscalls.close_all()  # inherited descriptors must not reach containers
    if os.geteuid() == 0:
        syscalls.prctl(syscalls.PR_SET_DUMPABLE, 0)  # without root, /proc/self/uid_map is written first (commands.py)
    given, rest = parse(arguments)
    if "sealed" in given:
        seal()
    if "version" in given:
        print(f"{NAME} version 1")
        return 0
    command, id_ = (*rest, "", "")[:2]
    if command == "features":
        print(json.dumps(features()))
        return 0
    if command == "hold-namespaces":
        hold(rest[1:])
        return 0
    if command in ("relabel", "show-mounts", "exec-detached"):
        return _help_others(command, id_, rest[2:], given.get("log", ""))
    options = Options(
        mode=given["mode"],
        root=given["root"],
        id=id_,
        bundle=given.get("bundle", ""),
        process=given.get("process", ""),
        pid_file=given.get("pid-file", ""),
        console=given.get("console-socket", ""),
    )
    if command in ("run", "exec"):
        _leave_keyring(given.get("log", ""))
    try:
        return _do(command, options)
    except (Failed, NoContainer, BadBundle, OSError, KeyError, ValueError) as error:
        said = f"no {error} in config.json" if isinstance(error, KeyError) else describe(error)
        _report(given.get("log", ""), said)
        return 1


def _help_others(command: str, first: str, further: Sequence[str], log: str) -> int:
    """Run a command that serves the containers of crun and runc, too."""
    if command == "relabel":
        return _relabel(first, further)
    return _show_mounts(first, log) if command == "show-mounts" else _exec_detached(first, further, log)


def _relabel(label: str, paths: Sequence[str]) -> int:
    """End with the runtime: the next one may give these files another label meanwhile."""
    syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGKILL)
    try:
        for path in paths:
            relabel(path, label)
    except OSError as error:
        _report("", describe(error))
        return 1
    return 0


def _exec_detached(pid_file: str, line: Sequence[str], log: str) -> int:
    try:
        return run_detached(pid_file, line)
    except (OSError, ValueError) as error:
        _report(log, describe(error))
        return 1


def _show_mounts(path: str, log: str) -> int:
    """Return after a failure only."""
    try:
        with open(path, encoding="utf-8") as file:
            plan = json.load(file)
        shown_mounts.execute(plan)
    except (Failed, OSError, ValueError) as error:
        _report(log, describe(error))
        return 1


def seal() -> None:
    """Execute a sealed copy of the interpreter in memory, unless this is the copy. Raises OSError.

    For agents that may not mount: see actors/runtime/oci/interpreter.py.
    """
    if os.readlink("/proc/self/exe").startswith("/memfd:"):
        return
    with open("/proc/self/exe", "rb") as file:
        fd = os.memfd_create("interpreter", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        while chunk := file.read(_CHUNK):
            os.write(fd, chunk)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE)
    os.execve(f"/proc/self/fd/{fd}", [sys.executable, *sys.orig_argv[1:]], dict(os.environ))


def _do(command: str, options: Options) -> int:
    if command == "run":
        commands.run(options)
    elif command == "exec":
        return commands.execute(options)
    elif command == "delete":
        commands.delete(options)
    elif command == "update":
        commands.update(options, json.load(sys.stdin))
    else:
        raise Failed(f"no command {command!r}")
    return 0


def _leave_keyring(log: str) -> None:
    """Keep the agent's session keyring, which a child inherits with its keys, from the container.

    Not every kernel has keyrings, a filter around the agent may refuse the call, and a user has a quota of them.
    """
    try:
        syscalls.join_new_keyring()
    except OSError as error:
        _log(log, "warning", f"the container has the agent's session keyring: {describe(error)}")


def _report(log: str, said: str) -> None:
    os.write(2, f"{said}\n".encode("utf-8", "replace"))
    _log(log, "error", said)


def _log(log: str, level: str, said: str) -> None:
    if log:
        with open(log, "a", encoding="utf-8") as file:
            file.write(json.dumps({"level": level, "msg": said}) + "\n")
