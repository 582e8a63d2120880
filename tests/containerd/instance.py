"""One containerd of our own: private root, state, socket, network and images, and nothing left when it is over."""

import contextlib
import os
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType

from actors._cri.call import Call
from actors._cri.client import Cri
from actors._cri.errors import CriError
from tests.containerd.config import write_config, write_network
from tests.containerd.host import leftovers
from tests.containerd.host.network import NetworkSlot
from tests.containerd.host.shared_cgroups import CONTAINERD, SharedCgroup
from tests.containerd.images import Image, busybox, pause, write_archive
from tests.containerd.requirements import PATH, which

_START_SECONDS = 30.0
_STOP_SECONDS = 20.0
_REMOVE_SECONDS = 20.0


class ContainerdInstance:
    """A containerd under `directory`, which is made, and deleted at the end with all that ran in it.

    Use it as a context manager; inside, `stop`, `kill` and `start` make the runtime go away and come back while its
    containers run on. Needs root and what `missing_requirements` names.
    """

    def __init__(
        self, directory: Path, images: Iterable[Image] = (), *, host_ports: bool = False, systemd: bool = False
    ) -> None:
        """`images` come in addition to busybox and pause. `host_ports`: pods can have some; needs iptables.

        `systemd`: its cgroup driver.
        """
        self.directory = directory.resolve()
        self.socket = self.directory / "containerd.sock"
        self.endpoint = f"unix://{self.socket}"
        self.registries = self.directory / "registries"
        """Put NAME/hosts.toml here and pulls from the registry NAME go where it says."""
        self.log = self.directory / "containerd.log"
        self.cri = Cri(self.endpoint)
        self._host_ports, self._systemd = host_ports, systemd
        self._images = [busybox(), pause(), *images]
        self._process: subprocess.Popen[bytes] | None = None
        self._slot: NetworkSlot | None = None
        self._cgroup: SharedCgroup | None = None

    @property
    def pid(self) -> int | None:
        """containerd's process; None while it does not run."""
        return self._process.pid if self._process is not None and self._process.poll() is None else None

    def __enter__(self) -> "ContainerdInstance":
        clear_abandoned()
        self.directory.mkdir(parents=True, exist_ok=True)
        if any(self.directory.iterdir()):
            raise FileExistsError(
                f"cannot start containerd in {self.directory}: it is not empty; name another directory"
            )
        self.directory.chmod(0o711)  # users of pods that have their own must get to the root file systems below it
        self._slot, self._cgroup = NetworkSlot.take(self.directory), SharedCgroup(CONTAINERD)
        try:
            write_network(self.directory, self._slot.name, self._slot.subnet, host_ports=self._host_ports)
            write_config(self.directory, self.socket, self._snapshotter(), systemd=self._systemd)
            self.registries.mkdir()
            self.start()
            self.import_images(self._images)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _snapshotter(self) -> str:
        """overlayfs, save where the directory is itself on an overlay, as it is inside a container."""
        kind = subprocess.run(["stat", "-f", "-c", "%T", self.directory], capture_output=True, text=True, check=True)
        return "native" if kind.stdout.strip() == "overlayfs" else "overlayfs"

    def start(self) -> None:
        """Start containerd and wait until runtime and network are ready. Raises RuntimeError with its log otherwise."""
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [which("containerd") or "containerd", "--config", self.directory / "config.toml"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, "PATH": PATH},
                start_new_session=True,  # a Ctrl-C is for us, who then end it in order
            )
        deadline = time.monotonic() + _START_SECONDS
        while not self.is_ready():
            if self.pid is None or time.monotonic() > deadline:
                tail = "\n".join(self.log.read_text().splitlines()[-15:])
                raise RuntimeError(f"cannot start containerd in {self.directory}; the end of {self.log}:\n{tail}")
            time.sleep(0.05)

    def is_ready(self) -> bool:
        """True while the runtime and its network are ready."""
        try:
            answer = self.cri.status(timeout=2).result()
        except CriError:
            return False
        # Others may be false for good: 2.x has one for what is deprecated in its configuration.
        return {"RuntimeReady", "NetworkReady"} <= {one.type for one in answer.status.conditions if one.status}

    def wait(self) -> int:
        """Wait until containerd ends; its exit code, negative for a signal."""
        assert self._process is not None
        return self._process.wait()

    def stop(self) -> None:
        """End containerd in order. Its containers run on."""
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self.kill()

    def kill(self) -> None:
        """End containerd at once, as a crash would. Its containers run on."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def ctr(self, *arguments: str | Path) -> str:
        """Run ctr in the namespace of CRI; its output. Raises CalledProcessError."""
        command = [which("ctr") or "ctr", "--address", self.socket, "--namespace", "k8s.io", *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout

    def import_images(self, images: Iterable[Image]) -> None:
        """Build `images` and bring them in; returns when CRI shows them."""
        images = list(images)
        archive = self.directory / "images.tar"
        write_archive(archive, images)
        try:
            self.ctr("images", "import", archive)
        finally:
            archive.unlink()
        deadline = time.monotonic() + _START_SECONDS
        for image in images:  # CRI learns of what ctr did through containerd's events, a moment later
            while self.cri.image_status(image.name).result() is None:
                if time.monotonic() > deadline:
                    raise TimeoutError(f"cannot see the image {image.name} over CRI after its import")
                time.sleep(0.02)

    def remove_pods(self) -> None:
        """Stop and remove every pod sandbox with its containers. Again, if need be: what is just being started by a
        call that was given up cannot be removed until it runs."""
        deadline = time.monotonic() + _REMOVE_SECONDS
        while True:
            try:
                return self._remove_pods()
            except CriError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)

    def _remove_pods(self) -> None:
        sandboxes = self.cri.list_pod_sandbox().result()
        # Some at a time: a hundred at once only wait for one another in the kernel, past their deadlines.
        for start in range(0, len(sandboxes), 8):
            some = sandboxes[start : start + 8]
            _all(self.cri.stop_pod_sandbox(sandbox.id) for sandbox in some)
            _all(self.cri.remove_pod_sandbox(sandbox.id) for sandbox in some)

    def close(self) -> None:
        """Remove every pod, end containerd, and take away all that it left. May be repeated."""
        if self._slot is None:
            return
        try:
            self._remove_pods_if_possible()
        finally:
            self.cri.close()
            self.stop()
            leftovers.clear(self.directory, self._slot.name)
            if self._host_ports:
                leftovers.delete_empty_host_port_chains()
            if self._cgroup is not None:
                self._cgroup.close()
            self._slot.close()
            self._slot = self._cgroup = None

    def _remove_pods_if_possible(self) -> None:
        if self.pid is None and (self.directory / "state").exists():
            with contextlib.suppress(RuntimeError):  # then the hard way
                self.start()
        with contextlib.suppress(CriError):
            self.remove_pods()


def clear_abandoned() -> None:
    """Take away what instances left whose process was killed."""
    for slot in NetworkSlot.abandoned():
        if slot.directory is not None:
            leftovers.clear(slot.directory, slot.name)
        slot.close()


def _all(calls: Iterable[Call[None]]) -> None:
    for call in list(calls):
        call.result()
