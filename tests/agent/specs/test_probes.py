"""Effects of probes: each handler, threshold and gate on a small pod of its own.

Whole pods become ready, stay unready, and restart. tests/probe covers single requests and their results.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import grpc
import psutil
import pytest

from tests.agent.agent import SLEEP, container, pod
from tests.agent.changing import content
from tests.agent.table import Case, Seen, Table, ready, running
from tests.cgroups import cgroup_name
from tests.containerd import ContainerdInstance
from tests.harness import PATIENCE, wait_for

QUICK = {"periodSeconds": 1, "failureThreshold": 1, "timeoutSeconds": round(10 * PATIENCE)}
"""A probe that fails at the first failure, with a timeout that a busy machine keeps."""
SICK_SERVICE = "sick"
WEB = "mkdir -p /w; echo ok > /w/ok; exec httpd -f -p 8080 -h /w"
STUBBORN = "trap '' TERM; touch /up; while :; do sleep 1; done"
HANGING_COMMAND = ["sleep", "4713"]


def answering(*head: str) -> str:
    """A script that reads each HTTP request and gives this answer.

    Without the reading the kernel resets the connection, and the client loses unread data.
    """
    text = "\\r\\n".join([*head, "Connection: close", "", ""])
    script = f'#!/bin/sh\\nwhile read -r line && [ ${{#line}} -gt 1 ]; do :; done\\nprintf "{text}"\\n'
    return f"printf '{script}' > /answer; chmod +x /answer; exec nc -ll -p 8080 -e /answer"


def http(path: str = "/ok", port: Any = 8080, **fields: Any) -> dict[str, Any]:
    return {"httpGet": {"path": path, "port": port, **fields.pop("get", {})}, **QUICK, **fields}


def command(*words: str, **fields: Any) -> dict[str, Any]:
    return {"exec": {"command": list(words)}, **QUICK, **fields}


def shell(script: str, **fields: Any) -> dict[str, Any]:
    return command("sh", "-c", script, **fields)


def tcp(port: Any = 8080, **fields: Any) -> dict[str, Any]:
    return {"tcpSocket": {"port": port}, **QUICK, **fields}


def probed(script: str = SLEEP, spec: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    """A pod whose container `c` has these fields: probes, and what else there is."""
    return pod("", container("c", script, **fields), **(spec or {}))


def fails_once_up(**fields: Any) -> dict[str, Any]:
    """A probe that fails once the container's script has made /up, and so minds signals. See `is_restarted`."""
    return shell("until test -e /up; do sleep 0.1; done; exit 1", **fields)


def after(file: str) -> dict[str, Any]:
    """A startup probe: the others begin once the container's script has made this file."""
    return command("test", "-e", file, failureThreshold=1000)


def health(port: int, service: str | None, **fields: Any) -> dict[str, Any]:
    """A probe of the health server beside the agent, whose pod therefore has the node's network."""
    return {"grpc": {"port": port, **({"service": service} if service is not None else {})}, **QUICK, **fields}


def restarts(seen: Seen, name: str = "c") -> int:
    return int(seen.container(name).get("restartCount", 0))


def restarted(seen: Seen) -> bool:
    return restarts(seen) >= 1


def lived(seconds: float) -> Callable[[Seen], bool]:
    """Its container has run for so long."""

    def settled(seen: Seen) -> bool:
        started = seen.state().get("startedAt")
        return (
            bool(started) and (datetime.now().astimezone() - datetime.fromisoformat(started)).total_seconds() > seconds
        )

    return settled


def stays(*, is_ready: bool) -> Callable[[Seen], None]:
    def check(seen: Seen) -> None:
        assert restarts(seen) == 0, seen.events("Unhealthy")
        assert ready(seen) is is_ready, seen.events("Unhealthy")
        assert seen.container()["started"] is True

    return check


def warned(seen: Seen) -> None:
    stays(is_ready=True)(seen)
    said = "Readiness probe warning: Probe terminated redirects, Response body: "
    wait_for(lambda: said in seen.events("ProbeWarning"), 20, "its event, which goes another way than its result")


def not_started(seen: Seen) -> None:
    assert seen.container()["started"] is False
    assert seen.container()["ready"] is False
    assert restarts(seen) == 0


def is_restarted(seen: Seen) -> None:
    """`runc init` ends with 2, as any Go program, if the probe's SIGTERM is sooner than its execve of the command."""
    assert restarts(seen) >= 1
    assert seen.state("c", "lastState")["exitCode"] in (0, 2, 137, 143)


def ready_after(seconds: float) -> Callable[[Seen], None]:
    """Not ready before that; both times are whole seconds."""

    def check(seen: Seen) -> None:
        condition = next(one for one in seen.status["conditions"] if one["type"] == "Ready")
        began, became = seen.state()["startedAt"], condition["lastTransitionTime"]
        waited = datetime.fromisoformat(became) - datetime.fromisoformat(began)
        assert waited.total_seconds() >= seconds - 1, seen.status

    return check


def killed_in_the_probes_grace(seen: Seen) -> None:
    """SIGKILL after a second or two, though the pod's own grace is ten minutes."""
    last = seen.state("c", "lastState")
    assert last["exitCode"] == 137
    took = datetime.fromisoformat(last["finishedAt"]) - datetime.fromisoformat(last["startedAt"])
    assert took.total_seconds() < 60 * PATIENCE


def sidecar_gates_ready(seen: Seen) -> None:
    assert seen.container("s")["started"] is True
    assert seen.container("s")["ready"] is False
    assert seen.container("c")["ready"] is True
    assert not ready(seen)


def main_waits(seen: Seen) -> None:
    assert seen.container("s")["started"] is False
    assert seen.reason() == "PodInitializing"


def with_sidecar(script: str, **fields: Any) -> dict[str, Any]:
    return pod("", container("c"), initContainers=[container("s", script, restartPolicy="Always", **fields)])


def cases(port: int, directory: Path) -> dict[str, Case]:
    """`port`: of the health server; `directory`: what a container and its test tell each other."""
    on_node = {"hostNetwork": True}
    return {
        # Each handler, good
        "exec": Case(
            probed(readinessProbe=command("true"), livenessProbe=command("true")), stays(is_ready=True), ready
        ),
        "http": Case(
            probed(WEB, readinessProbe=http(), livenessProbe=http(failureThreshold=60)), stays(is_ready=True), ready
        ),
        "tcp": Case(
            probed(WEB, readinessProbe=tcp(), livenessProbe=tcp(failureThreshold=60)), stays(is_ready=True), ready
        ),
        "grpc": Case(
            probed(spec=on_node, readinessProbe=health(port, None), livenessProbe=health(port, "")),
            stays(is_ready=True),
            ready,
        ),
        "named-port": Case(
            probed(
                WEB,
                ports=[{"name": "web", "containerPort": 8080}],
                readinessProbe=http(port="web"),
                livenessProbe=tcp(port="web", failureThreshold=60),
            ),
            stays(is_ready=True),
            ready,
        ),
        # Each handler, bad
        "exec-bad": Case(probed(livenessProbe=command("false")), is_restarted, restarted),
        "exec-no-such": Case(probed(readinessProbe=command("/no/such")), stays(is_ready=False), lived(3)),
        "http-bad": Case(probed(WEB, livenessProbe=http("/lost", initialDelaySeconds=1)), is_restarted, restarted),
        "tcp-bad": Case(probed(WEB, livenessProbe=tcp(81)), is_restarted, restarted),
        "grpc-bad": Case(probed(spec=on_node, livenessProbe=health(port, SICK_SERVICE)), is_restarted, restarted),
        "becomes-bad": Case(
            probed(
                f"touch /ok /up; (sleep 3; rm /ok) & {SLEEP}",
                startupProbe=after("/up"),
                livenessProbe=command("cat", "/ok"),
            ),
            is_restarted,
            restarted,
        ),
        # Redirects: within the host they are followed, elsewhere they prove it alive
        "redirect-here": Case(
            probed(
                answering("HTTP/1.1 302 Found", "Location: /elsewhere"),
                livenessProbe=http("/", failureThreshold=3, initialDelaySeconds=1),
            ),
            is_restarted,
            restarted,
        ),
        "redirect-elsewhere": Case(
            probed(
                answering("HTTP/1.1 302 Found", "Location: http://192.0.2.1/"),
                startupProbe=tcp(failureThreshold=1000),
                livenessProbe=http("/"),
                readinessProbe=http("/"),
            ),
            warned,
            ready,
        ),
        # Variables in commands are the container's own literal ones
        "exec-variable": Case(
            probed(
                readinessProbe=shell('test "$(WORD)" = yes'),
                env=[{"name": "WORD", "value": "yes"}],
            ),
            stays(is_ready=True),
            ready,
        ),
        # Times
        "exec-late": Case(probed(livenessProbe=command(*HANGING_COMMAND, timeoutSeconds=1)), is_restarted, restarted),
        "exec-late-readiness": Case(
            probed(readinessProbe=command(*HANGING_COMMAND, timeoutSeconds=1)), stays(is_ready=False), lived(5)
        ),
        "never-answers": Case(
            probed(
                "nc -ll -p 8080 -e sleep 1000 & " + SLEEP,
                startupProbe=tcp(failureThreshold=1000),
                livenessProbe=http(timeoutSeconds=1),
            ),
            is_restarted,
            restarted,
        ),
        "unresolvable-host": Case(
            probed(readinessProbe=http(get={"host": "no-such-host.invalid"})), stays(is_ready=False), lived(4)
        ),
        "initial-delay": Case(probed(readinessProbe=command("true", initialDelaySeconds=4)), ready_after(4), ready),
        "success-threshold": Case(probed(readinessProbe=command("true", successThreshold=4)), ready_after(3), ready),
        "failure-threshold": Case(
            probed(
                "touch /ok /up; (sleep 3; rm /ok; sleep 1; touch /ok) & " + SLEEP,
                startupProbe=after("/up"),
                livenessProbe=command("cat", "/ok", failureThreshold=6),
            ),
            stays(is_ready=True),
            # On a machine that is busy with all these probes the first good one may come later than that.
            lambda seen: lived(6)(seen) and ready(seen),
        ),
        # Startup gates the others
        "startup-pending": Case(
            probed(
                startupProbe=command("false", failureThreshold=1000),
                livenessProbe=command("false"),
                readinessProbe=command("true"),
            ),
            not_started,
            lived(4),
        ),
        "startup-done": Case(
            probed(
                f"(sleep 2; touch /up) & {SLEEP}",
                startupProbe=after("/up"),
                livenessProbe=command("cat", "/up"),
                readinessProbe=command("true", periodSeconds=1000),
            ),
            stays(is_ready=True),
            ready,
        ),
        "startup-then-liveness": Case(
            probed(startupProbe=command("true", failureThreshold=1000), livenessProbe=command("false")),
            is_restarted,
            restarted,
        ),
        "startup-fails": Case(probed(startupProbe=command("false", failureThreshold=3)), is_restarted, restarted),
        # A probe's own grace
        "liveness-grace": Case(
            probed(
                STUBBORN,
                spec={"terminationGracePeriodSeconds": 600},
                livenessProbe=fails_once_up(terminationGracePeriodSeconds=1),
            ),
            killed_in_the_probes_grace,
            restarted,
        ),
        "startup-grace": Case(
            probed(
                STUBBORN,
                spec={"terminationGracePeriodSeconds": 600},
                startupProbe=fails_once_up(terminationGracePeriodSeconds=1),
            ),
            killed_in_the_probes_grace,
            restarted,
        ),
        # Sidecars
        "sidecar-readiness": Case(
            with_sidecar(SLEEP, readinessProbe=command("false")),
            sidecar_gates_ready,
            lambda seen: bool(seen.container("c").get("ready")),
        ),
        "sidecar-liveness": Case(
            with_sidecar(SLEEP, livenessProbe=command("false")),
            lambda seen: _equal(restarts(seen), 0),
            lambda seen: restarts(seen, "s") >= 1,
        ),
        "sidecar-startup": Case(
            with_sidecar(SLEEP, startupProbe=command("false", failureThreshold=1000)),
            main_waits,
            lambda seen: lived(3)(_of_sidecar(seen)),
        ),
        # Unready while it ends, and not restarted by what its liveness probe finds then
        "ends": Case(
            probed(
                "trap 'rm /ok; until test -e /out/go; do sleep 0.1; done; exit 0' TERM; "
                "touch /ok /up; while :; do sleep 0.1; done",
                spec={
                    "terminationGracePeriodSeconds": 60,
                    "volumes": [{"name": "out", "hostPath": {"path": str(directory)}}],
                },
                volumeMounts=[{"name": "out", "mountPath": "/out"}],
                startupProbe=after("/up"),
                readinessProbe=shell("cat /ok || { echo >> /out/unready; exit 1; }"),
                livenessProbe=command("cat", "/ok"),
            ),
            stays(is_ready=True),
            ready,
        ),
    }


def _of_sidecar(seen: Seen) -> Seen:
    """The same with the sidecar in the main container's place."""
    item = {**seen.item, "status": {**seen.status, "containerStatuses": [{**seen.container("s"), "name": "c"}]}}
    return Seen(seen.table, seen.name, item)


def _equal(found: object, wanted: object) -> None:
    assert found == wanted


@contextmanager
def health_server() -> Iterator[int]:
    """A gRPC health server on loopback that serves all services but one; its port."""

    def check(request: bytes, _: grpc.ServicerContext) -> bytes:
        return b"\x08\x02" if SICK_SERVICE.encode() in request else b"\x08\x01"

    server = grpc.server(ThreadPoolExecutor(2))
    handler = grpc.unary_unary_rpc_method_handler(check)
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler("grpc.health.v1.Health", {"Check": handler}),)
    )
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield port
    server.stop(0).wait()


NAMES = tuple(cases(1, Path()))


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("out")


@pytest.fixture(scope="module")
def table(containerd: ContainerdInstance, out: Path) -> Iterator[Table]:
    with health_server() as port, running(containerd, cases(port, out)) as one:
        yield one


@pytest.mark.parametrize("name", NAMES)
def test_probes(table: Table, name: str) -> None:
    table.check(name)


def test_a_pod_that_ends_is_unready_and_not_restarted(table: Table, out: Path) -> None:
    (table.agent.manifests / "ends.yaml").unlink()
    seen: list[Seen] = []

    def shown(settled: Callable[[Seen | None], bool]) -> Callable[[], bool]:
        def look() -> bool:
            now = table.see("ends")
            seen.extend([now] if now is not None else [])
            return settled(now)

        return look

    def unready(now: Seen | None) -> bool:
        return now is not None and not ready(now) and "running" in now.container()["state"]

    wait_for(shown(unready), 30, "unready while it runs")
    # In all this time a liveness probe would have failed, too.
    wait_for(lambda: len(content(out / "unready")) >= 3, 30, "its readiness probe fails again and again")
    (out / "go").touch()
    wait_for(shown(lambda now: now is None), 40, "it has ended")
    assert {restarts(one) for one in seen} == {0}, seen[-1].status


def test_commands_that_ran_over_their_time_are_ended(table: Table) -> None:
    """Two pods probe with a command that never ends: one command of each runs at a time.

    A probe may begin while the last command is being killed. Without the kill there would be one more each second.
    """
    wait_for(lambda: hanging(table) <= 2, 10, "no more than one of each")


def hanging(table: Table) -> int:
    """Return the number of these commands in this agent's pods."""
    commands = (one.info for one in psutil.process_iter(["pid", "cmdline"]))
    pids = [one["pid"] for one in commands if one["cmdline"] == HANGING_COMMAND]
    own = cgroup_name(table.agent.dir.name)
    return sum(f"{own}/" in cgroups(pid) for pid in pids)


def cgroups(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cgroup").read_text()
    except OSError:  # it has ended
        return ""
