"""A private embedded runtime for tests, like tests.containerd's containerd; leaves nothing behind."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType

import msgspec

from actors._cri.client import Cri
from actors._cri.errors import CriError
from proto.agent.settings import Settings
from proto.node.runtime import ISOLATION, OCI_PROGRAM, socket_path
from tests import harness
from tests.containerd.config import write_network
from tests.containerd.host import leftovers
from tests.containerd.host.network import NetworkSlot
from tests.containerd.host.shared_cgroups import EMBEDDED, SharedCgroup
from tests.containerd.images import Image, busybox, write_archive
from tests.containerd.requirements import cni_dir


class EmbeddedInstance:
    """The runtime without an agent. `kill` and `start` replace it while its containers keep running."""

    def __init__(
        self,
        directory: Path,
        images: Iterable[Image] = (),
        isolation: int = 0,
        *,
        cni: bool = True,
        netns: str = "",
        cgroup_driver: str = "cgroupfs",
        oci_runtime: str = "",
    ) -> None:
        """`isolation` is the level, 0 for the machine's best.

        Without `cni` or CNI plugins pods are on the runtime's own bridge.

        `netns` is the path of the network namespace that stands for the machine's. `oci_runtime` is the only one for
        new pods; without it they may have all of the machine.
        """
        plugins = cni_dir()
        self.directory = directory.resolve()
        self._environment = {ISOLATION: str(isolation)} if isolation else {}
        self.ask_for(oci_runtime)
        self.settings = Settings(
            run_dir=str(self.directory / "run"),
            root_dir=str(self.directory / "root"),
            images_dir=str(self.directory / "images"),
            cgroup_driver=cgroup_driver,
            extra={"cni_conf_dir": str(self.directory / "net.d"), "cni_bin_dirs": [str(plugins)] if plugins else []},
        )
        self.endpoint = f"unix://{socket_path(self.settings.run_dir)}"
        self.cri = Cri(self.endpoint)
        self.log = self.directory / "runtime.log"
        self._images = [busybox(), *images]
        self._cni = cni and plugins is not None
        self._within = ["nsenter", f"--net={netns}"] if netns else []
        self._process: subprocess.Popen[bytes] | None = None
        self._slot: NetworkSlot | None = None
        self._cgroup: SharedCgroup | None = None

    def __enter__(self) -> "EmbeddedInstance":
        self.directory.mkdir(parents=True, exist_ok=True)
        self._slot, self._cgroup = NetworkSlot.take(self.directory), SharedCgroup(EMBEDDED)
        try:
            if self._cni:
                write_network(self.directory, self._slot.name, self._slot.subnet)
            Path(self.settings.run_dir).mkdir(mode=0o700)
            (self.directory / "settings.json").write_bytes(msgspec.json.encode(self.settings))
            drop_in = Path(self.settings.images_dir)
            drop_in.mkdir()
            write_archive(drop_in / "images.tar", self._images)
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def ask_for(self, oci_runtime: str) -> None:
        """From the next start on, new pods may have this OCI runtime only, or all with an empty name."""
        self._environment[OCI_PROGRAM] = oci_runtime

    def start(self) -> None:
        """Start it and wait until it serves."""
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [*self._within, sys.executable, "-m", "tests.runtime.serve", str(self.directory / "settings.json")],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=Path(__file__).parents[2],
                env={**os.environ, **self._environment},
                start_new_session=True,
            )
        assert self._process.stdout is not None
        if self._process.stdout.readline() != b"serving\n":
            raise RuntimeError(f"cannot start the embedded runtime:\n{self.log.read_text()[-3000:]}")
        wait_for(self._answers)  # the client may wait before it reconnects

    def _answers(self) -> bool:
        with contextlib.suppress(CriError):
            return bool(self.cri.version().result().runtime_name)
        return False

    def kill(self) -> None:
        """Kill it, as a crash would. Its containers keep running."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            assert self._process.stdout is not None
            self._process.stdout.close()

    def stop(self) -> None:
        """End it in order. Its containers keep running."""
        self.terminate()
        self.wait()

    def terminate(self) -> None:
        """Ask it to stop, as the supervisor does."""
        assert self._process is not None
        self._process.terminate()

    def wait(self) -> None:
        """Wait until it has stopped."""
        assert self._process is not None
        assert self._process.stdout is not None
        self._process.wait(30)
        self._process.stdout.close()

    def import_images(self, images: Iterable[Image]) -> None:
        """Build and import `images`."""
        archive = self.directory / "further.tar"
        write_archive(archive, images)
        self.cri.pull_image(f"oci-archive:{archive}").result()

    def remove_pods(self) -> None:
        """Remove every pod."""
        for sandbox in self.cri.list_pod_sandbox().result():
            self.cri.remove_pod_sandbox(sandbox.id).result()

    def monitor_pids(self) -> list[int]:
        """Pids of this instance's monitors."""
        return [pid for pid in _pids() if self._is_monitor(pid)]

    def _is_monitor(self, pid: int) -> bool:
        with contextlib.suppress(OSError):
            if b"actors.runtime.monitor" not in Path(f"/proc/{pid}/cmdline").read_bytes():
                return False
            return os.readlink(f"/proc/{pid}/fd/2") == f"{self.settings.run_dir}/runtime/monitor.log"
        return False

    def close(self) -> None:
        """Remove everything."""
        with contextlib.suppress(CriError, RuntimeError):
            if self._process is None or self._process.poll() is not None:
                self.start()
            self.remove_pods()
        self.cri.close()
        self.kill()
        for pid in self.monitor_pids():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        leftovers.unmount_below(self.directory)
        if self._slot is not None:
            leftovers.delete_network(self._slot.name)
            self._slot.close()  # last: its next owner has a bridge of the same name
        if self._cgroup is not None:
            self._cgroup.close()
            self._cgroup = None
        leftovers.delete_directory(self.directory)


def _pids() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def wait_for(condition: Callable[[], object], seconds: float = 40.0) -> None:
    """Wait until `condition()` is true. Raises TimeoutError."""
    try:
        harness.wait_for(condition, seconds)
    except AssertionError as error:
        raise TimeoutError(str(error)) from None
