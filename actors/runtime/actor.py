"""The runtime actor: the embedded container runtime, a CRI v1 server on a socket in the run directory.

It starts only where no other runtime is configured or found. Other actors talk to its socket, as they would to
containerd's. The mailbox answers for the process. Threads answer the rpcs (service/server.py). All state is on disk, so
this process may be killed at any moment. The monitor process watches containers, not this one (actors/runtime/monitor).
"""

from __future__ import annotations

import contextlib
import logging
from typing import Any

from actors._base import Actor, handles
from actors.runtime.assembly import Runtime, build
from actors.runtime.engine.monitor_client import MonitorError
from actors.runtime.service.server import Server
from proto.common import logs
from proto.common.until import Until
from proto.cri import api_pb2 as pb
from proto.node.runtime import ListPulls, PullsUnderWay, PullUnderWay, socket_path

BUILD_S = 120.0
"""A restart recovers some hundred containers in a fraction of a second; removing a kill's leftovers takes longer.

The supervisor's deadline for this actor's start is above it (supervisor/supervision/specs.py).
"""
REPAIR_PERIOD_S = 60.0
LEFTOVERS_PERIOD_S = 600.0
"""Interval of attempts to remove what a removal left."""
log = logging.getLogger(__name__)


class RuntimeActor(Actor):
    """Keeps no state in memory that is not on disk; assembly.py recovers it."""

    name = "runtime"

    async def rebuild(self) -> None:
        """Recover the state on disk, then listen."""
        self._runtime: Runtime = await self.blocking(BUILD_S, build, self.settings)
        services = {"RuntimeService": self._runtime.service, "ImageService": self._runtime.images}
        self._server = Server(socket_path(self.settings.run_dir), services)
        self._server.start()
        log.info(
            "serving CRI at %s: isolation level %d, %s",
            socket_path(self.settings.run_dir),
            self._runtime.isolation.level,
            ", ".join(self._runtime.isolation.programs or self._runtime.engine.ocis),
        )
        if self._runtime.isolation.why:
            log.log(logs.NOTICE, "isolation level %d: %s", self._runtime.isolation.level, self._runtime.isolation.why)

    def on_ready(self) -> None:
        """Import images that were added to the drop-in directory; a request for one of them waits for the import."""
        self.blocking(BUILD_S, self._runtime.images.import_dropped)
        self.every(Until(REPAIR_PERIOD_S), self._repair, "repair")
        self.every(Until(LEFTOVERS_PERIOD_S), self._clear_leftovers, "leftovers")

    async def _repair(self) -> None:
        """Write the firewall table again, and records that a full disk refused.

        Other firewalls flush all tables when they restart.
        """
        await self.blocking(REPAIR_PERIOD_S, self._runtime.network.reconcile)
        await self.blocking(REPAIR_PERIOD_S, self._runtime.save_unsaved)

    async def _clear_leftovers(self) -> None:
        """Finish removals that did not end; the first time after the start."""
        await self.blocking(LEFTOVERS_PERIOD_S, self._runtime.clear_leftovers)

    @handles(ListPulls)
    async def list_pulls(self, _: ListPulls) -> PullsUnderWay:
        """Report the pulls under way."""
        return PullsUnderWay(
            pulls=tuple(
                PullUnderWay(
                    name=one.name,
                    began=one.began,
                    done_bytes=one.done_bytes,
                    total_bytes=one.total_bytes,
                    layers_done=one.layers_done,
                    layers=len(one.sizes),
                )
                for one in self._runtime.images.pulls.list()
            )
        )

    def describe(self) -> dict[str, Any]:
        """Counts of sandboxes, containers and images, isolation level, user namespaces, and the monitor's pid."""
        state = self._runtime.engine.state
        containers = state.containers.all()
        description: dict[str, Any] = {
            "sandboxes": len(state.sandboxes.all()),
            "containers": len(containers),
            "running": sum(one.state == pb.CONTAINER_RUNNING for one in containers),
            "images": len(self._runtime.engine.store.list()),
            "isolation": self._runtime.isolation.level,
            "user_namespaces": self._runtime.engine.users_by_oci(),
        }
        with contextlib.suppress(MonitorError, OSError, TimeoutError):
            description["monitor"] = self._runtime.engine.monitor.pid()
        return description

    def on_shutdown(self) -> None:
        """Stop serving; containers and their monitor keep running."""
        self._server.stop()
        self._runtime.stop()


ACTOR = RuntimeActor
