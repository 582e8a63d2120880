"""An agent one of whose actors never serves: the node's event says which, and the others serve."""

from __future__ import annotations

import contextlib

from proto.wire.errors import ActorError
from tests.agent.agent import Agent
from tests.agent.embedded import embedded_agent
from tests.agent.events.test_event_reasons import said
from tests.harness import wait_for

BROKEN = "container_gc"


def test_actor_that_never_serves_is_an_event_of_the_node() -> None:
    def in_the_way(agent: Agent) -> None:
        (agent.run_dir / f"{BROKEN}.sock" / "x").mkdir(parents=True)
        agent.run_dir.chmod(0o700)

    with embedded_agent(prepare=in_the_way, wait=False) as agent:
        ((name, kind, message),) = wait_for(lambda: failed(agent), 60, f"said; log: {agent.log}")
        assert (name, kind) == ("vm", "Warning")
        assert message.startswith(f"{BROKEN}: degraded: more than ")
        assert "Address already in use" in message
        wait_for(lambda: set(not_ready(agent)) == {BROKEN}, 60, f"the others serve; log: {agent.log}")


def failed(agent: Agent) -> set[tuple[str, str, str]]:
    """(object, type, message) of the events; empty while the agent does not answer."""
    with contextlib.suppress(ActorError):
        return said(agent, "KubeletSetupFailed")
    return set()


def not_ready(agent: Agent) -> dict[str, str]:
    return {name: row["state"] for name, row in agent.rows().items() if row["state"] != "ready"}
