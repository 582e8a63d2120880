# ruff: noqa: N802  (the methods are named after their rpcs)
"""A DRA driver: speaks DRA v1 or v1beta1, its health service and plugin registration v1 on unix sockets.

It keeps the claims that it has prepared in a file, as real drivers do: it lives as long as the driver's directory.
Run as a program it serves until it is killed.
"""

from __future__ import annotations

import json
import queue
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from proto.plugins import dra_pb2 as pb
from proto.plugins import drahealth_pb2 as health
from proto.plugins import drav1beta1_pb2 as v1beta1
from proto.plugins import registration_pb2 as registration
from tests.resources.plugin_server import Served

NAME = "dra.test"
REGISTRATION = registration.DESCRIPTOR.services_by_name["Registration"]
HEALTH = health.DESCRIPTOR.services_by_name["DRAResourceHealth"]
SERVICES = {
    "v1.DRAPlugin": pb.DESCRIPTOR.services_by_name["DRAPlugin"],
    "v1beta1.DRAPlugin": v1beta1.DESCRIPTOR.services_by_name["DRAPlugin"],
}


@dataclass
class Driver(Served):
    """One driver. Each claim gets the device `dev-CLAIM` of the pool `pool`."""

    root: Path
    """--root-dir of the agent."""
    name: str = NAME
    service: str = "v1.DRAPlugin"
    instance: str = ""
    """Of two plugins of one driver."""
    info: dict[str, Any] = field(default_factory=dict)
    """Replaced fields of PluginInfo."""
    describes: bool = True
    """It writes CDI specifications of its devices, to `cdi` in the root directory."""
    _streams: list[queue.Queue[Any]] = field(default_factory=list)
    _lock: Any = field(default_factory=threading.Lock)

    @property
    def directory(self) -> Path:
        return self.root / "plugins" / self.name

    @property
    def endpoint(self) -> Path:
        return self.directory / f"dra{self.instance}.sock"

    @property
    def socket(self) -> Path:
        return self.root / "plugins_registry" / f"{self.name}{self.instance}-reg.sock"

    def start(self) -> Driver:
        self.directory.mkdir(parents=True, exist_ok=True)
        self.socket.parent.mkdir(parents=True, exist_ok=True)
        self.listen(self.endpoint, SERVICES[self.service], HEALTH)
        self.listen(self.socket, REGISTRATION)
        return self

    def close(self) -> None:
        for one in self._streams:
            one.put(None)
        super().close()

    @property
    def prepared(self) -> set[str]:
        """UIDs of the claims that are prepared."""
        try:
            return set(json.loads((self.directory / "claims.json").read_text()))
        except FileNotFoundError:
            return set()

    def report(self, *, within_s: int = 0, **devices: int | tuple[int, str]) -> None:
        """Report the health of devices, by name: a HealthStatus, also with a message.

        `within_s`: when the next report comes at the latest. 0: the driver does not say.
        """
        for one in self._streams:
            reported = [_health(*pair, within_s) for pair in devices.items()]
            one.put(health.NodeWatchResourcesResponse(devices=reported))

    def watchers(self) -> int:
        return len(self._streams)

    def _note(self, uids: set[str]) -> None:
        temporary = self.directory / "claims.tmp"
        temporary.write_text(json.dumps(sorted(uids)))
        temporary.replace(self.directory / "claims.json")

    def _specification(self, claim: Any) -> Path:
        return self.root / "cdi" / f"{self.name}-{claim.name}.json"

    def _describe(self, claim: Any) -> None:
        edits = {"env": [f"CLAIM={claim.name}"], "deviceNodes": [{"path": "/dev/claimed", "hostPath": "/dev/zero"}]}
        device = {"name": f"dev-{claim.name}", "containerEdits": edits}
        path = self._specification(claim)
        path.parent.mkdir(exist_ok=True)
        temporary = path.with_suffix(".tmp")
        temporary.write_text(json.dumps({"cdiVersion": "0.6.0", "kind": "test/dra", "devices": [device]}))
        temporary.replace(path)

    def _GetInfo(self, _: Any) -> Any:
        fields = {"type": "DRAPlugin", "name": self.name, "endpoint": str(self.endpoint)}
        return registration.PluginInfo(**{**fields, "supported_versions": [self.service], **self.info})

    def _NotifyRegistrationStatus(self, _: Any) -> Any:
        return registration.RegistrationStatusResponse()

    def _NodePrepareResources(self, request: Any) -> Any:
        with self._lock:
            self._note(self.prepared | {one.uid for one in request.claims})
            for one in request.claims if self.describes else ():
                self._describe(one)
        return pb.NodePrepareResourcesResponse(
            claims={
                one.uid: pb.NodePrepareResourceResponse(
                    devices=[
                        pb.Device(
                            pool_name="pool", device_name=f"dev-{one.name}", cdi_device_ids=[f"test/dra=dev-{one.name}"]
                        )
                    ]
                )
                for one in request.claims
            }
        )

    def _NodeUnprepareResources(self, request: Any) -> Any:
        with self._lock:
            self._note(self.prepared - {one.uid for one in request.claims})
            for one in request.claims:
                self._specification(one).unlink(missing_ok=True)
        results = {one.uid: pb.NodeUnprepareResourceResponse() for one in request.claims}
        return pb.NodeUnprepareResourcesResponse(claims=results)

    def _NodeWatchResources(self, _: Any) -> Iterator[Any]:
        mine: queue.Queue[Any] = queue.Queue()
        self._streams.append(mine)
        answer = mine.get()
        while answer is not None:
            yield answer
            answer = mine.get()


def _health(name: str, state: int | tuple[int, str], within_s: int) -> Any:
    status, message = state if isinstance(state, tuple) else (state, "")
    device = health.DeviceIdentifier(pool_name="pool", device_name=name.replace("_", "-"))
    fields: dict[str, Any] = {"health": status, "message": message, "health_check_timeout_seconds": within_s}
    return health.DeviceHealth(device=device, **fields)


def main(root: str) -> None:
    """Serve until killed."""
    Driver(Path(root)).start()
    while True:
        time.sleep(60)


if __name__ == "__main__":
    main(*sys.argv[1:])
