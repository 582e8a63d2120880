"""Runs a supervisor that watches configuration files, in a process of its own."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from proto.agent.supervisor import ActorRow
from supervisor.config.reload import store
from supervisor.config.reload.candidate import Entry
from supervisor.config.reload.watch import RESCAN_S
from supervisor.core.daemon import CHILD_ENTRY
from supervisor.host import settings_file
from supervisor.process import state
from supervisor.sockets.client import Client
from tests.harness import wait_for

CHILDREN = "tests.live.children:main"
REAL = CHILD_ENTRY
ROOT = Path(__file__).resolve().parents[2]
HEAD = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"


class LiveAgent:
    """Use as a context manager; `start` again is the next supervisor. Files are there before the start.

    What actors have time for, `answer_s` and `ready_within_s`, is more than a busy machine keeps one of them from.
    """

    def __init__(
        self,
        *,
        actors: tuple[str, ...] = ("image_pull", "image_gc"),
        entry: str = CHILDREN,
        stable_s: float = 0.3,
        answer_s: float = 1.0,
        ready_within_s: float = 5.0,
        rescan_s: float = RESCAN_S,
        before: tuple[str, ...] = (),
    ) -> None:
        """`before` comes before the command: `unshare`, say."""
        self.before = before
        self.dir = Path(tempfile.mkdtemp(prefix="nv-", dir="/tmp"))
        self.run_dir, self.root_dir = str(self.dir / "run"), str(self.dir / "root")
        self.config = self.dir / "kubelet.yaml"
        self.drop_ins = self.dir / "conf.d"
        self.drop_ins.mkdir()
        self.log = self.dir / "log"
        self.how = {
            "actors": actors,
            "entry": entry,
            "stable_s": stable_s,
            "answer_s": answer_s,
            "ready_within_s": ready_within_s,
            "rescan_s": rescan_s,
        }
        self.process: subprocess.Popen[bytes] | None = None
        self.write("imageGCHighThresholdPercent: 85\nhealthzPort: 0\n")

    def write(self, text: str, path: Path | None = None) -> None:
        """Replace a file as editors and package managers do: a new one, renamed."""
        path = path or self.config
        temporary = path.with_name(f"{path.name}.new")
        temporary.write_text(HEAD + text)
        temporary.replace(path)

    def threshold(self, percent: int) -> None:
        self.write(f"imageGCHighThresholdPercent: {percent}\n", self.drop_ins / "10-gc.conf")

    def __enter__(self) -> LiveAgent:
        self.start()
        self.wait_serving()
        return self

    def start(self) -> subprocess.Popen[bytes]:
        line = [
            f"--config={self.config}",
            f"--config-dir={self.drop_ins}",
            f"--run-dir={self.run_dir}",
            f"--root-dir={self.root_dir}",
            f"--pod-logs-dir={self.dir}/logs",
            f"--container-logs-dir={self.dir}/links",
            f"--container-runtime-endpoint=unix://{self.dir}/none.sock",
        ]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*self.before, sys.executable, "-m", "tests.live.process", json.dumps(self.how), *line],
                stderr=log,
                cwd=ROOT,
            )
        return self.process

    def text(self) -> str:
        return self.log.read_text()

    def rows(self) -> dict[str, ActorRow]:
        assert self.process is not None
        assert self.process.poll() is None, self.text()
        with Client(self.run_dir) as client:
            return {row.name: row for row in client.actors()}

    def wait_serving(self) -> dict[str, ActorRow]:
        def serving() -> dict[str, ActorRow] | None:
            with Client(self.run_dir) as client:
                if not client.alive():
                    return None
            rows = self.rows()
            return rows if all(row.state == "ready" for row in rows.values()) else None

        return self.wait(serving, "every actor in service")

    def wait(self, condition: Callable[[], Any], what: str, timeout_s: float = 60.0) -> Any:
        try:
            return wait_for(condition, timeout_s, what)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.history()}\n{self.text()}") from error

    def history(self) -> list[Entry]:
        return store.history(self.root_dir)

    def verdicts(self) -> list[str]:
        return [entry.verdict for entry in self.history()]

    def wait_verdict(self, verdict: str, count: int = 1, timeout_s: float = 60.0) -> Entry:
        """The newest entry with this verdict, once there are so many of them."""

        def look() -> Entry | None:
            found = [entry for entry in self.history() if entry.verdict == verdict]
            return found[-1] if len(found) >= count else None

        found: Entry = self.wait(look, f"{count} times the verdict {verdict!r}", timeout_s)
        return found

    def wait_started_with(self, percent: int) -> None:
        """Until image_gc of the tests' children runs with this threshold."""
        self.wait(lambda: self.started_with() == percent, f"image_gc with {percent}")

    def started_with(self, actor: str = "image_gc") -> int:
        said = Path(self.run_dir, f"{actor}.started-with")
        return int(said.read_text()) if said.exists() else 0

    def shown(self) -> int:
        """The output of `config show` says."""
        found = settings_file.read_configuration(self.run_dir)["configuration"]
        return int(found["imageGCHighThresholdPercent"])

    def settle(self) -> None:
        """Until what the agent started with is the last known good configuration."""
        self.wait_verdict("good")

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait(10)

    def stop(self) -> int:
        assert self.process is not None
        self.process.terminate()
        return self.process.wait(15)

    def __exit__(self, *exc: object) -> None:
        if self.process is not None and self.process.poll() is None:
            try:
                self.stop()
            except subprocess.TimeoutExpired:
                self.kill()
        state.end_leftovers(state.load(Path(self.run_dir, "state.json")))
        shutil.rmtree(self.dir, ignore_errors=True)


def seconds(since: float) -> float:
    return time.monotonic() - since
