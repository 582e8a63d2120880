"""An image service in the test process whose registries hang, fail and answer when told to."""

# ruff: noqa: N802  (names and arguments are those of the rpcs)

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc

from proto.cri import api_pb2 as pb
from tests.cri.services import serve


class FakeImages:
    """`present` are the images there; a pull waits for its `gates` entry, fails with `failures` or makes it present."""

    def __init__(self, socket: Path) -> None:
        self.endpoint = f"unix://{socket}"
        self.present: dict[str, pb.Image] = {}
        self.gates: dict[str, threading.Event] = {}
        self.failures: dict[str, tuple[grpc.StatusCode, str]] = {}
        self.passwords: dict[str, str] = {}
        """Of the user u, by image; one without needs none."""
        self.calls: Counter[tuple[str, str]] = Counter()
        self.status_delay_s = 0.0
        self.status_gate = threading.Event()
        """ImageStatus answers while it is set."""
        self.status_gate.set()
        self.list_gate = threading.Event()
        """ListImages answers while it is set."""
        self.list_gate.set()
        self.forgets: set[str] = set()
        """Images that are not there after their pull."""
        self.unnamed: set[str] = set()
        """Images whose pull succeeds without a reference."""
        self.over: list[str] = []
        """Images of pulls whose call has ended for its caller; the fake completes a cancelled one nevertheless."""
        self.seconds_left = 0.0
        """Of the last pull's deadline when it arrived."""
        self.asked: list[pb.ImageSpec] = []
        """Of the calls of ImageStatus."""
        self.pulls: list[pb.PullImageRequest] = []
        self._server = grpc.server(ThreadPoolExecutor(16))
        serve(self, self._server, "ImageService")
        self._server.add_insecure_port(self.endpoint)
        self._server.start()

    def die(self) -> None:
        """End as a runtime that is killed: its connections close."""
        self._server.stop(0)

    def close(self) -> None:
        for gate in (*self.gates.values(), self.status_gate, self.list_gate):
            gate.set()
        self._server.stop(0).wait()

    def add(self, name: str, **fields: Any) -> str:
        """Put an image there; its ID."""
        image = pb.Image(id=f"sha256:{name}", repo_tags=[name], size=7, **fields)
        self.present[name] = self.present[image.id] = image
        return str(image.id)

    def hold(self, name: str) -> threading.Event:
        """Pulls of that image wait until the event is set."""
        return self.gates.setdefault(name, threading.Event())

    def ImageStatus(self, request: pb.ImageStatusRequest, context: Any) -> pb.ImageStatusResponse:
        name = request.image.image
        self.calls["ImageStatus", name] += 1
        self.asked.append(request.image)
        if name in self.failures:
            context.abort(*self.failures[name])
        self.status_gate.wait(30)
        if self.status_delay_s:
            threading.Event().wait(self.status_delay_s)
        return pb.ImageStatusResponse(image=self.present.get(name))

    def ListImages(self, _request: pb.ListImagesRequest, _context: Any) -> pb.ListImagesResponse:
        self.calls["ListImages", ""] += 1
        self.list_gate.wait(30)
        return pb.ListImagesResponse(images=[one for name, one in self.present.items() if name != one.id])

    def PullImage(self, request: pb.PullImageRequest, context: Any) -> pb.PullImageResponse:
        name = request.image.image
        self.calls["PullImage", name] += 1
        self.seconds_left = context.time_remaining()
        self.pulls.append(request)
        context.add_callback(lambda: self.over.append(name))
        if name in self.gates:
            self.gates[name].wait(30)
        if name in self.failures:
            context.abort(*self.failures[name])
        if self.passwords.get(name, request.auth.password) != request.auth.password:
            context.abort(grpc.StatusCode.UNKNOWN, "401 Unauthorized")
        if name in self.unnamed:
            return pb.PullImageResponse()
        return pb.PullImageResponse(image_ref="sha256:unknown" if name in self.forgets else self.add(name))
