"""For the tests of containers' lives: pods that write down what happens to them and when; a server for HTTP hooks."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

from proto.pods.events import ListEvents
from proto.v1 import ContainerStatus, Event
from supervisor.sockets.client import Client
from tests.agent.agent import container, pod
from tests.agent.api_source import ApiSource
from tests.harness import wait_for

NOTE = """note() { read -r now _ < /proc/uptime; echo "$now $NAME $1" >> /out/$POD; }; """
"""It starts no process: a word at the end of a grace period has two seconds, also on a busy machine."""
UP = "trap 'note TERM; exit 0' TERM; note up; sleep 100000 & wait"
"""Runs until it is told to end, and ends then at once; from the word on."""
SLEEPING = "exec sleep 100000"
STUBBORN = "trap 'note TERM' TERM; note up; while :; do sleep 1000 & wait $!; done"
"""Ends by SIGKILL only."""


def noting(name: str, script: str = UP, **fields: Any) -> dict[str, Any]:
    """A container that can `note WORD` in its script and in its hooks."""
    env = [{"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}, {"name": "NAME", "value": name}]
    return container(name, NOTE + script, env=env, volumeMounts=[{"name": "out", "mountPath": "/out"}], **fields)


def execs(script: str) -> dict[str, Any]:
    """An exec handler."""
    return {"exec": {"command": ["sh", "-c", NOTE + script]}}


def sidecar(name: str, script: str = UP, **fields: Any) -> dict[str, Any]:
    return noting(name, script, restartPolicy="Always", **fields)


class Diary:
    """The notes that containers of pods wrote: each with the container's name, in order and with times."""

    def __init__(self, api: ApiSource) -> None:
        self.api = api
        self.dir = api.agent.dir / "out"
        self.dir.mkdir(exist_ok=True)
        self.client = Client(api.agent.run_dir)

    def pod(self, name: str, *containers: dict[str, Any], **spec: Any) -> dict[str, Any]:
        """A manifest whose containers can note."""
        volume = {"name": "out", "hostPath": {"path": str(self.dir)}}
        return pod(name, *containers, volumes=[volume], **{"terminationGracePeriodSeconds": 30, **spec})

    def lines(self, name: str) -> list[tuple[float, str]]:
        """(uptime, "CONTAINER WORD")."""
        with contextlib.suppress(FileNotFoundError):
            parts = [line.split(" ", 1) for line in (self.dir / name).read_text().splitlines()]
            return [(float(when), what) for when, what in parts]
        return []

    def words(self, name: str) -> list[str]:
        return [what for _, what in self.lines(name)]

    def at(self, name: str, what: str) -> float:
        """When it was first written."""
        return next(when for when, word in self.lines(name) if word == what)

    def wait(self, name: str, what: str, timeout_s: float = 30.0) -> None:
        wait_for(lambda: what in self.words(name), timeout_s, f"{name}: {what}; log: {self.api.agent.log}")

    def wait_up(self, *names: str, of: tuple[str, ...] = ("c",), timeout_s: float = 30.0) -> None:
        """Wait until these pods are Ready and their containers `of` have noted `up`.

        A pod is Ready once its containers run, possibly before their shells have noted anything.
        """
        self.api.wait_ready(*names, timeout_s=timeout_s)
        for name in names:
            for one in of:
                self.wait(name, f"{one} up")

    # The runtime's view

    def began(self, name: str, container: str = "c") -> float:
        """When its only life began, in seconds of the epoch."""
        cri = self.api.agent.containerd.cri
        (found,) = (key for key, (one, _) in self.api.agent.containers().items() if one == f"{name}/{container}")
        return cri.container_status(found).result().status.started_at / 1e9

    # The agent's view

    def status(self, name: str, container: str = "c") -> ContainerStatus | None:
        found = self.api.status(name)
        if found is None:
            return None
        status = found.status
        every = (*status.container_statuses, *status.init_container_statuses, *status.ephemeral_container_statuses)
        return next((one for one in every if one.name == container), None)

    def waiting(self, name: str, container: str = "c") -> tuple[str, str]:
        """(reason, message) of a container that waits; empty when it does not."""
        status = self.status(name, container)
        waits = status.state.waiting if status is not None else None
        return (waits.reason or "", waits.message or "") if waits is not None else ("", "")

    def events(self, name: str) -> list[Event]:
        """Return a pod's events, oldest first."""
        return [one for one in self.client.ask("events", ListEvents(), 5.0).events if one.involved_object.name == name]

    def reasons(self, name: str) -> set[tuple[str, str]]:
        """{(reason, message)} of a pod's events."""
        return {(one.reason or "", one.message or "") for one in self.events(name)}

    def wait_event(self, name: str, reason: str, message: str, timeout_s: float = 30.0) -> None:
        what = f"event {reason} {message} of {name}; log: {self.api.agent.log}"
        wait_for(lambda: (reason, message) in self.reasons(name), timeout_s, what)

    def running(self, name: str) -> list[str]:
        """Names of the running containers of a pod, from the runtime."""
        return sorted(
            one.removeprefix(f"{name}/") for one in self.api.agent.running().values() if one.startswith(f"{name}/")
        )

    def delete(self, name: str, grace_s: int | None = None, timeout_s: float = 60.0) -> float:
        """Have the pod deleted and wait until nothing of it runs; the seconds that took."""
        began = time.monotonic()
        self.api.delete(name, grace_s)
        wait_for(lambda: not self.running(name), timeout_s, f"{name} ends; log: {self.api.agent.log}")
        took_s = time.monotonic() - began
        self.api.wait_gone(name)
        return took_s


class HookServer:
    """A plain HTTP server on loopback: `/hang` is never answered, `/500` is an error, all else is fine."""

    def __init__(self) -> None:
        self.requests: list[str] = []
        """Request line and headers of each."""
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []
        self.port: int = self._socket.getsockname()[1]
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            self._open.append(connection)
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError):
            data = connection.recv(65536)
            if data[:1] == b"\x16":  # TLS, which is answered as Go's own server does
                connection.sendall(b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n")
                connection.close()
                return
            text = data.decode()
            self.requests.append(text)
            if "/hang" not in text:
                code = b"500 Oops" if "/500" in text else b"200 OK"
                connection.sendall(b"HTTP/1.1 " + code + b"\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi")
                connection.close()

    def asked(self, path: str) -> str:
        """The request for a path; empty while there is none."""
        return next((one for one in self.requests if one.startswith(f"GET {path} ")), "")

    def get(self, path: str, **fields: Any) -> dict[str, Any]:
        """An httpGet handler for this server."""
        return {"httpGet": {"host": "127.0.0.1", "port": self.port, "path": path, **fields}}

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)  # ends its accept
        self._thread.join()
        self._socket.close()
        for connection in self._open:
            connection.close()


@contextmanager
def hook_server() -> Iterator[HookServer]:
    with closing(HookServer()) as server:
        yield server
