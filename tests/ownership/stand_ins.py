"""Starts processes that look like another agent's, and our agent as a user does."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from proto.agent.settings import Settings
from supervisor.sockets.client import Client
from tests.harness import wait_for

# `exec -a NAME` of bash, so that the process has the name in its command line, with a line once it is there.
_KUBELET = """
exec -a "$0" {python} -c 'import fcntl, os, socket, sys, time
def served(path):
    one = socket.socket(socket.AF_UNIX)
    one.bind(path)
    one.listen()
    return one
sockets = [served(path) for path in sys.argv[1:] if path.startswith("/") and path.endswith(".sock")]
held = [open(path, "w") for path in sys.argv[1:] if path.startswith("/") and path.endswith(".lock")]
[fcntl.flock(one, fcntl.LOCK_EX) for one in held]
os.environ["TITLE"] and __import__("setproctitle").setproctitle(os.environ["TITLE"])
os.environ["CHROOT"] and os.chroot(os.environ["CHROOT"])
print("up", flush=True)
time.sleep(600)' "$@"
"""


@contextmanager
def process(
    name: str,
    *arguments: str,
    before: str = "",
    unshare: tuple[str, ...] = (),
    chroot: Path | str = "",
    title: str = "",
) -> Iterator[int]:
    """A process of this name with these arguments; its pid. `before` is shell run in its namespaces.

    It locks the arguments that are paths of lock files, and listens on those of sockets. `title` replaces its command
    line then.
    """
    script = f"set -e\n{before}\n{_KUBELET.format(python=sys.executable)}"
    line = [*(["unshare", *unshare] if unshare else []), "bash", "-c", script, name, *arguments]
    environment = {**os.environ, "CHROOT": str(chroot), "TITLE": title, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(line, stdout=subprocess.PIPE, text=True, env=environment) as started:
        try:
            assert started.stdout is not None
            assert started.stdout.readline() == "up\n"
            yield started.pid
        finally:
            started.kill()


class Nodevisor:
    """`supervisor start` with the directories of these settings and no container runtime. A context manager."""

    def __init__(self, settings: Settings, *flags: str, before: tuple[str, ...] = ()) -> None:
        """`before` comes before the command: `unshare`, say."""
        given = {
            "run-dir": settings.run_dir,
            "root-dir": settings.root_dir,
            "pod-logs-dir": settings.pod_logs_dir,
            "container-logs-dir": settings.container_logs_dir,
            "cgroup-root": settings.cgroup_root,
            "container-runtime-endpoint": f"unix://{settings.run_dir}.none.sock",
            "hostname-override": "node",
            "tune-kernel": "false",
            "healthz-port": "0",
        }
        start = [sys.executable, "-m", "supervisor", "start", *(f"--{name}={value}" for name, value in given.items())]
        self.command = [*before, *start, *flags]
        self.run_dir = settings.run_dir
        self.log = Path(f"{settings.run_dir}.log")

    def __enter__(self) -> Nodevisor:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(self.command, stderr=log)
        wait_for(self.serves, 60, f"it serves; log: {self.log.read_text()}")
        return self

    def serves(self) -> bool:
        assert self.process.poll() is None, self.log.read_text()
        with Client(self.run_dir) as client:
            return client.alive() and all(row.state == "ready" for row in client.actors())

    def pids(self) -> dict[str, int]:
        with Client(self.run_dir) as client:
            return {row.name: row.pid for row in client.actors()}

    def __exit__(self, *exc: object) -> None:
        if self.process.poll() is None:
            self.process.terminate()
        self.process.wait(30)

    def refused(self) -> str:
        """Run a start that is expected to fail; its message."""
        done = subprocess.run(self.command, capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == 1, done.stderr
        assert "Traceback" not in done.stderr
        return next(line for line in done.stderr.splitlines() if line.startswith("supervisor: "))
