"""Containers that answer probes and hooks with bytes that are no HTTP, have no end, or are far too many.

Each answer fails its own probe or hook. The actor lives on, in little memory, and runs the other probes in time.
"""

import re
from collections.abc import Iterator

import psutil
import pytest

from proto.pods.probe import ProbedContainer, SetPods
from tests.harness import ActorProcess, actor_process, wait_for
from tests.probe import hooking_messages as m
from tests.probe import hostile, pods
from tests.probe.hostile import ATTACKS, Attack, Server

MB = 1024 * 1024
PRELUDE = (
    "import sys; import tests.probe.hooking_messages as messages; sys.modules['proto.agent.hooking'] = messages;"
    "messages.__name__ = 'proto.agent.hooking';"
    "[setattr(t, '__module__', 'proto.agent.hooking') for t in vars(messages).values() if isinstance(t, type)];"
    "import tests.probe.hooking as hooking; sys.modules['actors.hooking.actor'] = hooking; "
)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with hostile.hostile_server() as running:
        yield running


@pytest.fixture(scope="module")
def actor() -> Iterator[ActorProcess]:
    with actor_process("probe", peers=("pod_workers",)) as process:
        yield process


@pytest.fixture(scope="module")
def probed(actor: ActorProcess, server: Server) -> dict[str, ProbedContainer]:
    """Every attack at once, each by its own pod."""
    containers = {}
    for attack in ATTACKS:
        one = pods.http(server.port, f"/{attack.name}", timeout=attack.timeout_s)
        containers[attack.name] = pods.container(readiness=one, liveness=one)
    actor.tell(SetPods(pods=tuple(pods.pod(container) for container in containers.values())))
    return containers


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
def test_hostile_answer_fails_its_own_probe(
    actor: ActorProcess, server: Server, probed: dict[str, ProbedContainer], attack: Attack
) -> None:
    container_id = probed[attack.name].container_id

    def said() -> str:
        for kind in ("readiness", "liveness"):
            if found := pods.told(actor, container_id, kind):
                return found[0].message or "ready"
        return ""

    if attack.probe == "unknown":
        wait_for(lambda: server.asked[attack.name] >= 6, 60)  # three tries of each
        assert said() == ""
    else:
        text = wait_for(said, 60)
        assert re.search(f"(?s){attack.probe}", text), text
        assert len(text) < 12 * 1024


def test_actor_stays_small_and_runs_good_probes_under_attack(
    actor: ActorProcess, server: Server, probed: dict[str, ProbedContainer]
) -> None:
    good = pods.container(readiness=pods.http(server.port, "/good"))
    actor.tell(SetPods(pods=(pods.pod(good),)))
    assert pods.first_told(actor, good.container_id, "readiness", 30).result == "success"
    assert actor.incarnation == 1
    assert psutil.Process(actor.pid).memory_info().rss < 150 * MB


def test_garbage_for_tls_fails_the_probe(actor: ActorProcess, hooking: ActorProcess) -> None:
    with hostile.garbage_for_tls() as port:
        container = pods.container(liveness=pods.http(port, "/", scheme="HTTPS", timeout=5))
        actor.tell(SetPods(pods=(pods.pod(container),)))
        assert "Get" in pods.first_told(actor, container.container_id, "liveness", 30).message
        assert hooking.ask(m.Hook(port=port, path="/", timeout_s=5, scheme="https")).kind == "failure"


@pytest.fixture(scope="module")
def hooking() -> Iterator[ActorProcess]:
    with ActorProcess("hooking", prelude=PRELUDE) as process:
        yield process


@pytest.mark.parametrize("host", ["a..b", f"{'a' * 64}.b", ".", "\u0130" * 64])
def test_host_that_is_no_name_fails_its_own_hook(hooking: ActorProcess, server: Server, host: str) -> None:
    before = hooking.pid
    came = hooking.ask(m.Hook(port=server.port, path="/good", timeout_s=5, host=host), 60)
    assert (came.kind, "lookup" in came.output) == ("failure", True)
    assert hooking.ask(m.Hook(port=server.port, path="/good", timeout_s=10), 30).kind == "success"
    assert hooking.pid == before


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
def test_hostile_answer_ends_its_own_hook(hooking: ActorProcess, server: Server, attack: Attack) -> None:
    came = hooking.ask(m.Hook(port=server.port, path=f"/{attack.name}", timeout_s=attack.timeout_s), 60)
    said = "success" if came.kind == "success" else came.output
    assert re.search(f"(?s){attack.hook}", said), said
    assert len(said) < 80 * 1024
    assert hooking.ask(m.Hook(port=server.port, path="/good", timeout_s=10), 30).kind == "success"
