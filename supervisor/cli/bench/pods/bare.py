"""The floor of pods: the same pods by calls of the runtime alone, several at a time, and their removal in any case."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, Any

from supervisor.cli.bench.pods import plan as plans
from supervisor.cli.bench.pods.ending import Ending
from supervisor.cli.bench.pods.plan import Plan
from supervisor.cli.errors import CommandError

if TYPE_CHECKING:
    from actors._cri.client import Cri

WIDTH = 16
"""Pods at a time, for which runtimes are about fastest (tests/bench/floor.py)."""
ATTEMPTS = 3
"""A busy containerd now and then fails the end of a pod whose shim ends at the same time."""
ALL_S = 180.0
"""For the start, and for the end, of all pods."""
CLEAR_S = 60.0
"""For the removal of what is left. Each call has a deadline of its own, too."""
LOOK_S = 0.2


class BarePods:
    """The sandboxes of one plan. `clear` removes all that exist, also after an error."""

    def __init__(self, cri: Cri, plan: Plan, image_id: str, ending: Ending) -> None:
        self._cri = cri
        self._plan = plan
        self._image_id = image_id
        self._ending = ending
        self._pool = ThreadPoolExecutor(min(WIDTH, plan.pods), thread_name_prefix="bare-cri")
        self._lock = threading.Lock()
        self._under_way: set[Future[None]] = set()
        self._containers: dict[str, str] = {}
        """Container by sandbox."""

    def start(self) -> float:
        """Start all pods; seconds. Raises CommandError, also when a container ends soon."""
        took_s = self._all(self._start, self._plan.names())
        self._ending.pause(plans.SETTLE_S)
        for container in self._containers.values():
            self._check_runs(container)
        return took_s

    def stop(self) -> float:
        """End and remove all pods; seconds. Raises CommandError."""
        took_s = self._all(self._stop, list(self._containers))
        self._containers.clear()
        return took_s

    def _all(self, work: Callable[[str], None], names: Iterable[str], *, to_the_end: bool = False) -> float:
        from actors._cri.errors import CriError  # noqa: PLC0415

        began = time.monotonic()
        self._under_way = {self._pool.submit(work, name) for name in names}
        try:
            while self._under_way:
                done, self._under_way = wait(self._under_way, LOOK_S, return_when=FIRST_EXCEPTION)
                if not to_the_end:
                    self._ending.check()
                    if time.monotonic() > began + ALL_S:
                        raise CommandError(f"cannot measure pods without the agent: no answer within {ALL_S:g} s")
                for one in done:
                    one.result()
        except CriError as error:
            raise CommandError(f"cannot measure pods without the agent: {error.rpc}: {error}") from error
        return time.monotonic() - began

    def _start(self, name: str) -> None:
        config = plans.sandbox(self._plan, name)
        sandbox = self._cri.run_pod_sandbox(config).result()
        container = self._cri.create_container(sandbox, plans.container(self._plan, self._image_id), config).result()
        with self._lock:
            self._containers[sandbox] = container
        self._cri.start_container(container).result()

    def _stop(self, sandbox: str) -> None:
        from actors._cri.errors import CriError  # noqa: PLC0415

        for attempt in range(1, ATTEMPTS + 1):
            try:
                if container := self._containers.get(sandbox):
                    self._cri.stop_container(container, plans.GRACE_S).result()
                self._cri.stop_pod_sandbox(sandbox).result()
                self._cri.remove_pod_sandbox(sandbox).result()
                return
            except CriError:
                if attempt == ATTEMPTS:
                    raise

    def _check_runs(self, container: str) -> None:
        from proto.cri import api_pb2 as pb  # noqa: PLC0415

        status = _result(self._cri.container_status(container)).status
        if status.state != pb.CONTAINER_RUNNING:
            raise CommandError(
                f"cannot measure pods: the container of {self._plan.image} ended soon with exit code "
                f"{status.exit_code}; name a program that goes on with --command"
            )

    def clear(self) -> list[str]:
        """Remove every sandbox of the plan; a line for each that stays. Nothing can be started afterwards."""
        for one in self._under_way:
            one.cancel()
        wait(self._under_way)  # each call has a deadline, and what it made is in the list below
        deadline = time.monotonic() + CLEAR_S
        while problem := self._remove_listed():
            if time.monotonic() > deadline:
                return [f"cannot remove each sandbox of the benchmark: {problem}; do `{self._removal()}`"]
            time.sleep(LOOK_S)
        self._pool.shutdown()
        return []

    def _remove_listed(self) -> str:
        """Remove the plan's sandboxes; why some may be left, empty when there were none."""
        try:
            if not (found := sandboxes(self._cri, plans.FLOOR_LABEL, self._plan.id)):
                return ""
            self._all(self._stop, found, to_the_end=True)
        except CommandError as error:
            return error.message
        return f"{len(found)} were listed"

    def _removal(self) -> str:
        crictl = f"crictl --runtime-endpoint {self._cri.endpoint}"
        return f"{crictl} pods -q --label {plans.FLOOR_LABEL}={self._plan.id} | xargs -r {crictl} rmp -f"


def sandboxes(cri: Cri, label: str, value: str = "") -> list[str]:
    """IDs of the sandboxes with a label, of any value without one. Raises CommandError."""
    from proto.cri import api_pb2 as pb  # noqa: PLC0415

    wanted = pb.PodSandboxFilter(label_selector={label: value}) if value else None
    return [str(one.id) for one in _result(cri.list_pod_sandbox(wanted)) if label in one.labels]


def _result(call: Any) -> Any:
    """A call's result. Raises CommandError."""
    from actors._cri.errors import CriError  # noqa: PLC0415

    try:
        return call.result()
    except CriError as error:
        raise CommandError(f"the container runtime failed {error.rpc}: {error}") from error
