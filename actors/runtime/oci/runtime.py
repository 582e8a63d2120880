"""Runs the command line of an OCI runtime (crun, runc or our helper): a short-lived process for each command."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import msgspec

from actors._host.files.untrusted_files import read_tail
from actors.runtime.oci import scopes
from actors.runtime.oci.helper import helper_command
from proto.common import untrusted

MOST_LOG_BYTES = 64 * 1024
LOG = "oci.log"
"""The OCI runtime's log of a start, in the container's directory."""
COMMAND_S = 60.0
"""Time limit of a command, which usually takes 5 to 50 ms."""


class OciError(Exception):
    """The OCI runtime failed; the message is its own."""


class OciRuntime:
    """An OCI runtime whose state is in `root`."""

    def __init__(self, command: Sequence[str], name: str, root: Path, *, systemd: bool, scopes: bool = False) -> None:
        """`command` is the beginning of its command lines.

        `systemd`: it makes systemd's scopes for containers. `scopes`: it needs them made.
        """
        self._program = tuple(command)
        self.name = name
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._root = str(root)
        self._scopes = scopes
        self._systemd = ["--systemd-cgroup"] if systemd else []

    def version(self) -> str:
        """The runtime's version. Raises OciError."""
        words = self.about().split()
        return words[2] if len(words) > 2 else "unknown"

    def about(self) -> str:
        """The runtime's version and, of crun, the features that it is built with. Raises OciError."""
        return self._run(["--version"])

    def run_command(self, id_: str, directory: Path, console: str) -> list[str]:
        """The command that starts the container of a bundle and ends once it runs. The monitor executes it."""
        command = self._command(["--log", str(directory / LOG), "--log-format", "json"])
        command += ["run", "--detach", "--bundle", str(directory), "--pid-file", str(directory / "pid")]
        return [*command, *(["--console-socket", console] if console else []), id_]

    def exec_command(self, id_: str, process: Path, pid_file: Path, log: Path, *, own_pipes: bool = False) -> list[str]:
        """The command that runs a process in a container and ends with its exit code; its own errors go to `log`.

        `own_pipes`: the process is to have this command's standard streams themselves, which are no terminal. runc
        gives it pipes of its own otherwise, and copies.
        """
        command = self._command(["--log", str(log), "--log-format", "json"])
        if not own_pipes or self.name != "runc":
            return [*command, "exec", "--process", str(process), "--pid-file", str(pid_file), id_]
        command += ["exec", "--detach", "--process", str(process), "--pid-file", f"{pid_file}.tmp", id_]
        return [*helper_command(""), "--log", str(log), "exec-detached", str(pid_file), "--", *command]

    def knows(self, id_: str) -> bool:
        """Return True when the runtime has state of the container."""
        return Path(self._root, id_).exists()

    def has_made(self, id_: str) -> bool:
        """Return True when the state of the container is this runtime's, which others may share its directory with."""
        try:
            self._run(["state", id_])
        except OciError:
            return False
        return True

    def known(self) -> list[str]:
        """IDs of the containers that the runtime, or another one with the same directory, has state of."""
        return os.listdir(self._root)

    def delete(self, id_: str) -> None:
        """Remove the state and cgroups of an ended container. Idempotent."""
        if self.knows(id_):
            with contextlib.suppress(OciError):  # at worst a few empty directories stay
                self._run(["delete", "--force", id_])

    def starting(self, cgroup: str, resources: Mapping[str, Any]) -> AbstractContextManager[None]:
        """Surrounds the start of a container in `cgroup`, with `resources` as in linux.resources. Raises OSError."""
        return scopes.starting(cgroup, resources) if self._scopes else contextlib.nullcontext()

    def update(self, id_: str, cgroup: str, resources: Mapping[str, Any]) -> None:
        """Change limits to `resources`, in the form of linux.resources. Raises OciError, OSError."""
        if self._scopes:
            scopes.limit(cgroup, resources)
        self._run(["update", "--resources", "-", id_], msgspec.json.encode(resources))

    def _command(self, options: Sequence[str]) -> list[str]:
        return [*self._program, "--root", self._root, *self._systemd, *options]

    def _run(self, arguments: Sequence[str], data: bytes = b"") -> str:
        try:
            ran = subprocess.run(
                self._command([]) + list(arguments), input=data, capture_output=True, timeout=COMMAND_S, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise OciError(f"cannot run {self.name}: {error}") from error
        if ran.returncode != 0:
            said = ran.stderr.decode(errors="replace").strip() or f"exit code {ran.returncode}"
            raise OciError(f"{self.name} {arguments[0]}: {said}")
        return ran.stdout.decode(errors="replace")


def last_error(path: Path) -> str:
    """The last error in the OCI runtime's log; empty without one."""
    try:
        lines = read_tail(path, MOST_LOG_BYTES)[0].splitlines()
    except OSError:
        return ""
    for line in reversed(lines):
        try:
            entry = untrusted.decode_json(line, dict[str, object])
        except (msgspec.DecodeError, msgspec.ValidationError):
            return line.decode(errors="replace").strip()
        if entry.get("level", "error") in ("error", "fatal"):
            return str(entry.get("msg", "")).strip()
    return ""
