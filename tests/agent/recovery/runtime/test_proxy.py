"""A connection to the runtime that drops and delays. Apart from the other faults: only one agent may have a runtime."""

from __future__ import annotations

import time

import pytest

from tests.agent.agent import Agent
from tests.agent.faults import MIXED, Eye, create, expect_nothing, remove_all
from tests.agent.recovery.runtime.proxy import Proxy
from tests.harness import wait_for


@pytest.mark.timeout(400)
def test_a_connection_that_drops_and_delays(containerd):
    """Every actor reaches the runtime through a proxy that cuts connections at random moments."""
    with Proxy(containerd.socket) as proxy:
        agent = Agent(containerd)
        agent.start("--container-runtime-endpoint", proxy.endpoint)
        eye = Eye(agent)
        try:
            create(eye)
            for pause_s in (0.3, 0.4, 0.5):
                time.sleep(pause_s)
                proxy.cut()
            proxy.delay_s = 0.05
            wait_for(lambda: eye.ready(*MIXED), 150, f"all ready; {agent.log}")
            proxy.delay_s = 0.0
            remove_all(eye)
            for pause_s in (0.1, 0.5):
                time.sleep(pause_s)
                proxy.cut()
            expect_nothing(eye, 60)
            assert all(row.restarts == 0 for row in eye.actors().values())
        finally:
            eye.client.close()
            agent.close()
