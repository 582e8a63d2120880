"""Commands on another machine by ssh, through one connection."""

from __future__ import annotations

import shlex
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

OPTIONS = """\
Host guest
  HostName {host}
  User {user}
  Port {port}
  BatchMode yes
  LogLevel ERROR
  ConnectTimeout 60
  ServerAliveInterval 20
  ServerAliveCountMax 6
  ControlMaster auto
  ControlPersist yes
  ControlPath {directory}/ssh
"""
OWN_KEY = """\
  IdentityFile {key}
  IdentitiesOnly yes
  StrictHostKeyChecking no
  UserKnownHostsFile /dev/null
"""
"""For a guest of ours, reached by loopback only."""


class Shell:
    """`ssh -F CONFIG guest` for programs and people."""

    def __init__(self, directory: Path, address: str, key: Path | None = None) -> None:
        """`address` is USER@HOST or USER@HOST:PORT; `directory` gets the configuration, which names everything.

        `key` is for a guest of ours. Another machine's host key has to be known.
        """
        user, _, place = address.rpartition("@")
        host, _, port = place.partition(":")
        self.config = directory / "ssh_config"
        text = OPTIONS.format(host=host, user=user or "root", port=port or 22, directory=directory)
        self.config.write_text(text + (OWN_KEY.format(key=key) if key else ""))

    def command(self, script: str, *, terminal: bool = False) -> list[str]:
        """The command line here that runs a shell's script there; without one a login."""
        return ["ssh", "-F", str(self.config), *(["-t"] if terminal else []), "guest", *([script] if script else [])]

    def connect(self, timeout_s: float, alive: Callable[[], bool] = lambda: True) -> None:
        """Wait until it answers. Raises TimeoutError with ssh's last word, also as soon as `alive` is False."""
        deadline = time.monotonic() + timeout_s
        said = ""
        while time.monotonic() < deadline and alive():
            done = self.run("true", timeout_s=max(deadline - time.monotonic(), 1.0), check=False)
            if done.returncode == 0:
                return
            said = done.stdout
            time.sleep(0.5)
        raise TimeoutError(f"no ssh within {timeout_s:g} s: {said.strip()}")

    def run(
        self, script: str | Sequence[str], timeout_s: float = 120.0, *, check: bool = True, stdin: bytes = b""
    ) -> subprocess.CompletedProcess[str]:
        """Run it to its end, with its standard error among its output. Raises AssertionError where it fails."""
        text = script if isinstance(script, str) else shlex.join(script)
        process = subprocess.Popen(
            self.command(text), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        try:
            said, _ = process.communicate(stdin, timeout=timeout_s)
        except BaseException:
            process.kill()
            process.wait()
            raise
        output = said.decode(errors="replace")
        assert not check or process.returncode == 0, f"{text} failed there ({process.returncode}):\n{output}"
        return subprocess.CompletedProcess([text], process.returncode, output)

    @contextmanager
    def forwarded(self, port: int) -> Iterator[None]:
        """Meanwhile 127.0.0.1:PORT there leads to the same port here. Needs the connection."""
        there = f"127.0.0.1:{port}:127.0.0.1:{port}"
        self._control("forward", "-R", there, check=True)
        try:
            yield
        finally:
            self._control("cancel", "-R", there)

    def close(self) -> None:
        """End the connection."""
        self._control("exit")

    def _control(self, order: str, *options: str, check: bool = False) -> None:
        command = ["ssh", "-F", str(self.config), "-O", order, *options, "guest"]
        subprocess.run(command, capture_output=True, check=check, timeout=30)
