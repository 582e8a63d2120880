"""The sandbox of a replay: every configured path is in one directory, and effects outside of it are refused.

An audit hook of Python refuses writes, processes, signals, connections and foreign functions. gRPC and
ZeroMQ, which the hook does not see, reach no socket. It keeps the actor's own code from touching the machine, also when
a recording is forged. It is no barrier against hostile code, so a replay takes no message that has code.
"""

from __future__ import annotations

import os
import signal
import stat
import sys
import threading
from collections import Counter
from typing import Any

import grpc
import msgspec
import zmq

from proto.agent.settings import Settings

_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_ON_PATHS = {
    "os.remove": 1, "os.rename": 2, "os.mkdir": 1, "os.rmdir": 1, "os.chmod": 1, "os.chown": 1, "os.link": 2,
    "os.symlink": 2, "os.truncate": 1, "os.utime": 1, "os.setxattr": 1, "os.removexattr": 1, "os.chflags": 1,
}  # fmt: skip
"""Audit events, each with the number of its first arguments that are paths."""
_REFUSED = frozenset((
    "os.fork", "os.forkpty", "os.exec", "os.posix_spawn", "os.spawn", "os.system", "subprocess.Popen", "os.kill",
    "os.killpg", "pty.spawn", "signal.pthread_kill", "socket.connect", "socket.bind", "socket.sendto",
    "socket.sendmsg", "ctypes.dlsym", "os.putenv", "os.unsetenv", "os.chdir", "os.chroot", "resource.prlimit",
    "resource.setrlimit",
))  # fmt: skip
_DEVICES = frozenset(("/dev/null", "/dev/tty", "/dev/zero", "/dev/random", "/dev/urandom"))


class Sandbox:
    """One directory. While it is closed, effects outside of it are refused."""

    def __init__(self, directory: str) -> None:
        self.directory = os.path.realpath(directory)
        self.refused: Counter[str] = Counter()
        """Effects that were refused, by kind."""
        self.threads: list[str] = []
        """Threads that were not started."""
        self.open = True
        """True before and after the replay, when the process may do anything."""

    def inside(self, settings: Settings) -> Settings:
        """The settings with every absolute path below the directory."""
        changed = {
            name: self.directory + os.path.normpath(f"/{value.lstrip('/')}")  # no `..` leads out of it
            for name in settings.__struct_fields__
            if isinstance(value := getattr(settings, name), str) and value.startswith("/")
        }
        changed["run_dir"] = f"{self.directory}/run"
        for name in ("container_runtime_endpoint", "image_service_endpoint"):
            if getattr(settings, name):
                changed[name] = f"unix://{self.directory}/{name[:5]}.sock"  # a socket's path is short
        os.makedirs(changed["run_dir"], exist_ok=True)
        os.makedirs(changed.get("root_dir", self.directory), exist_ok=True)
        return msgspec.structs.replace(settings, **changed)

    def original(self, path: str) -> str:
        """The recorded path of a path in the sandbox."""
        return path.removeprefix(self.directory)

    def close(self) -> None:
        """Refuse effects outside from now on, and start no threads."""
        sys.dont_write_bytecode = True
        sys.addaudithook(self._audit)
        for name in ("pidfd_send_signal",):
            setattr(signal, name, self._refusing(f"signal.{name}"))
        grpc.insecure_channel = self._elsewhere(grpc.insecure_channel)  # C code, which no audit hook sees
        grpc.server = grpc.aio.server = self._refusing("gRPC servers")
        zmq.Context = self._refusing("ZeroMQ sockets")  # type: ignore[misc]
        for name in ("mkfifo", "mknod", "setns", "unshare", "sendfile"):
            if hasattr(os, name):
                setattr(os, name, self._refusing(f"os.{name}"))
        threading.Thread.start = self._not_started(self.threads)  # type: ignore[method-assign]
        self.open = False

    def _elsewhere(self, channel: Any) -> Any:
        """Open gRPC channels to a socket that does not exist, for any address."""

        def open_(_: str, *arguments: Any, **named: Any) -> Any:
            return channel(f"unix://{self.directory}/none.sock", *arguments, **named)

        return open_

    @staticmethod
    def _not_started(names: list[str]) -> Any:
        def start(thread: threading.Thread) -> None:
            names.append(thread.name)

        return start

    def _refusing(self, name: str) -> Any:
        def refuse(*_: Any, **__: Any) -> Any:
            self._refuse(name)

        return refuse

    def _refuse(self, what: str) -> None:
        self.refused[what] += 1
        raise PermissionError(f"a replay refuses {what}")

    def _audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.open:
            return
        if event == "open":
            path, _, flags = arguments
            if flags & _WRITES and not self._is_inside(path):
                self._refuse("writes outside of it")
            if not _is_plain(path) and not self._is_inside(path):
                self._refuse("devices, sockets and named pipes outside of it")
        elif event in _ON_PATHS:
            for path in arguments[: _ON_PATHS[event]]:
                if not self._is_inside(path):
                    self._refuse(event)
        elif event in _REFUSED:
            self._refuse(event)

    def _is_inside(self, path: Any) -> bool:
        if isinstance(path, int):
            return True  # a descriptor that was opened before, or by this rule
        place = os.path.realpath(os.path.dirname(os.path.abspath(os.fsdecode(path))))
        return os.fsdecode(path) in _DEVICES or f"{place}/".startswith(f"{self.directory}/")


def _is_plain(path: Any) -> bool:
    """True for regular files and directories, for what does not exist, and for devices without effects."""
    if isinstance(path, int) or os.fsdecode(path) in _DEVICES:
        return True
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError):
        return True
    return stat.S_ISREG(mode) or stat.S_ISDIR(mode)
