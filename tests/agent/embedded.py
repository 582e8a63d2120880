"""An agent whose container runtime is its own."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from types import SimpleNamespace
from typing import Any, TypeVar

from actors._cri.client import Cri
from actors._cri.errors import CriError
from proto.node.runtime import EMBEDDED, endpoint
from tests.agent.agent import Agent
from tests.agent.changing import cgroups, processes
from tests.containerd.images import busybox, write_archive
from tests.harness import wait_for

T = TypeVar("T")


@contextmanager
def embedded_agent(
    *flags: str, prepare: Callable[[Agent], object] = lambda _: None, wait: bool = True, api: bool = False
) -> Iterator[Agent]:
    """A started agent with the image BUSYBOX in its drop-in directory. Its pods are ended before the agent is.

    `prepare` changes its configuration before the start; with `wait`, every actor is ready. `api`: see Agent.
    """
    runtime: Any = SimpleNamespace(endpoint=EMBEDDED, remove_pods=lambda: None)
    with closing(Agent(runtime, api=api)) as agent:
        runtime.cri = Cri(endpoint(str(agent.run_dir)))
        images = agent.dir / "images"
        images.mkdir()
        write_archive(images / "images.tar", [busybox()])
        agent.flags += ["--images-dir", str(images), *flags]
        prepare(agent)
        agent.start(wait=wait)
        try:
            yield agent
            for path in agent.manifests.iterdir():
                path.unlink()
            wait_for(lambda: answered(agent.sandboxes) == [], 60, f"no pod is left; log: {agent.log}")
        finally:
            runtime.cri.close()
            _end(agent)


def answered(look: Callable[[], T]) -> T | None:
    """Return the runtime's answer; None while the connection to a killed runtime is being restored."""
    try:
        return look()
    except CriError:
        return None


def _end(agent: Agent) -> None:
    """End the pods that run on without their agent after a failure."""
    if agent.process is not None and agent.process.poll() is None:
        agent.stop()
    for pid in {pid for top in cgroups(agent.dir.name) for pid in processes(top)}:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
