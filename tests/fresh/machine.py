"""A fresh machine: a copy-on-write Debian with processes, mounts, network, cgroups and host name of its own.

It reaches nothing but its own loopback. Kernel settings without a namespace (vm, kernel) are this machine's, so nothing
is started there that changes them. It ends with `close`. It also ends when the process that started it
dies: its first process waits on a pipe from there. All others die with the first one.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType

from tests.fresh.cgroups import Cgroups
from tests.fresh.downloads.rootfs import UID, USER

_INIT = Path(__file__).with_name("init.sh")
_PREFIX, _UNNAMED = "nv-fresh-", "nv-fresh.new-"
_NAMESPACES = ("--mount", "--pid", "--net", "--ipc", "--uts", "--cgroup")
_JOIN = 'for file; do [ "$file" = -- ] && break; shift; echo $$ > "$file"; done; shift; exec "$@"'
"""A shell's script: joins the cgroups whose cgroup.procs come before "--", and becomes the command after it."""

HOMES = {"root": "/root", USER: f"/home/{USER}"}
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class Machine:
    """A machine that runs from `with` on."""

    def __init__(self, layers: Sequence[Path], shared: Mapping[str, Path], *, disk: bool = False) -> None:
        """`layers` are directories that its root file system shows, the uppermost first; none of them changes.

        `shared` are files and directories of this machine by name: that one sees them at /srv/NAME, read-only.
        With `disk` what it writes is on this machine's disk and makes its `layer`; else it is in memory.
        """
        delete_abandoned()
        self.scratch, self._lock = _make_scratch()
        self._layers = layers
        self._shared = shared
        self._disk = disk
        self.cgroups = Cgroups(self.scratch.name)
        self.pid = 0
        """PID of its first process, as this machine sees it."""
        self.own_pids: set[int] = set()
        """PIDs of the processes that make up the machine."""
        self._unshare: subprocess.Popen[str] | None = None

    @property
    def layer(self) -> Path:
        """The changes that its processes have made on its disk. Other machines can use them once it has ended."""
        return self.scratch / "upper"

    @property
    def root(self) -> Path:
        """Its root file system. Only for reading: links in it lead to this machine's."""
        return Path(f"/proc/{self.pid}/root")

    def __enter__(self) -> Machine:
        try:
            self._start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _start(self) -> None:
        self.cgroups.make()
        trees = [f"{tree.kind} {tree.options} {tree.mount}\n" for tree in self.cgroups.roots]
        environment = {
            **os.environ,
            "SCRATCH": str(self.scratch),
            "DISK": "yes" if self._disk else "",
            "LAYERS": ":".join(map(str, self._layers)),
            "CGROUPS": "".join(trees),
            "SHARED": "".join(f"{name} {path}\n" for name, path in self._shared.items()),
        }
        command = self._in_cgroups(["unshare", *_NAMESPACES, "--propagation=private", "--fork", "--", "sh", str(_INIT)])
        pipe = subprocess.PIPE
        log = (self.scratch / "init.log").open("w+")
        with log:
            # A session of its own: the Ctrl-C that ends a test run is not for it, the end of its input is.
            self._unshare = subprocess.Popen(
                command, stdin=pipe, stdout=pipe, stderr=log, text=True, env=environment, start_new_session=True
            )
            assert self._unshare.stdout is not None
            line = self._unshare.stdout.readline()
            if not line:
                log.seek(0)
                raise RuntimeError(f"cannot start a fresh machine: {log.read()}")
        self.pid = int(line)
        children = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()
        self.own_pids = {self.pid, *map(int, children)}

    def _in_cgroups(self, command: Sequence[str]) -> list[str]:
        return ["sh", "-ec", _JOIN, "sh", *map(str, self.cgroups.entrances()), "--", *command]

    def command(
        self,
        arguments: Sequence[str],
        user: str = "root",
        cwd: str = "",
        environment: Mapping[str, str] | None = None,
        *,
        terminal: bool = False,
    ) -> list[str]:
        """The command line that runs `arguments` there, in the home directory of `user` unless `cwd` says otherwise.

        With `terminal` its standard input is a terminal, which becomes that of its session.
        """
        variables = {"HOME": HOMES[user], "USER": user, "PATH": PATH, "LANG": "C.UTF-8", **(environment or {})}
        identity = ["setpriv", f"--reuid={UID}", f"--regid={UID}", "--init-groups"] if user != "root" else []
        session = ["setsid", "--wait", "--ctty"] if terminal else []
        assigned = [f"{name}={value}" for name, value in variables.items()]
        place = ["env", "-i", f"--chdir={cwd or HOMES[user]}", *assigned]
        enter = ["nsenter", *_NAMESPACES, "--root", f"--target={self.pid}", "--"]
        return self._in_cgroups([*enter, *session, *identity, *place, *arguments])

    def run(
        self,
        arguments: Sequence[str],
        user: str = "root",
        cwd: str = "",
        environment: Mapping[str, str] | None = None,
        timeout_s: float = 60.0,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command there to its end, with its standard error among its output. A failure is not raised."""
        command = self.command(arguments, user, cwd, environment)
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        try:
            said, _ = process.communicate(timeout=timeout_s)
        except BaseException:
            process.kill()  # what it runs there ends with the machine
            process.wait()
            raise
        return subprocess.CompletedProcess(arguments, process.returncode, said)

    def must(self, *arguments: str, user: str = "root", cwd: str = "", timeout_s: float = 60.0) -> str:
        """Run a command there that cannot fail; its output."""
        done = self.run(arguments, user, cwd, timeout_s=timeout_s)
        assert done.returncode == 0, f"{' '.join(arguments)} failed ({done.returncode}):\n{done.stdout}"
        return done.stdout

    def stop(self) -> None:
        """End all its processes, and with them its mounts, network and cgroups. Its layer stays until `close`."""
        if self._unshare is not None:
            assert self._unshare.stdin is not None
            assert self._unshare.stdout is not None
            self._unshare.stdin.close()
            self._unshare.wait(timeout=30)
            self._unshare.stdout.close()
            self._unshare = None
        self.cgroups.delete()

    def close(self) -> None:
        """End it, and delete its directory."""
        self.stop()
        shutil.rmtree(self.scratch)
        os.close(self._lock)


def _make_scratch() -> tuple[Path, int]:
    """A new directory and its lock. It is locked before `delete_abandoned` of another process can know it by name."""
    made = Path(tempfile.mkdtemp(prefix=_UNNAMED))
    lock = _hold(made)
    scratch = made.with_name(_PREFIX + made.name.removeprefix(_UNNAMED))
    made.rename(scratch)
    return scratch, lock


def _hold(scratch: Path) -> int:
    """A descriptor with a lock on the directory, which says that its process lives."""
    descriptor = os.open(scratch, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return descriptor


def delete_abandoned() -> None:
    """Delete directories and cgroups of machines whose test process was killed; the machines ended with it."""
    for scratch in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError), _free(scratch):
            Cgroups(scratch.name).delete()
            shutil.rmtree(scratch)


@contextlib.contextmanager
def _free(scratch: Path) -> Iterator[None]:
    """Holds the directory's lock. Raises OSError when another process has it."""
    descriptor = _hold(scratch)
    try:
        yield
    finally:
        os.close(descriptor)
