"""The early end of injected faults."""

from __future__ import annotations

from pathlib import Path

from proto.agent.faults import Fault
from proto.agent.supervisor import EndFaults, InjectFault
from tests.harness import wait_for
from tests.supervisor.agent import Agent, spec


def state(pid: int) -> str:
    """As in proc_pid_stat(5)."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_fault_that_is_named_twice_ends() -> None:
    """A stopped process goes on only when its fault ends."""
    with Agent(spec("good_a", heartbeat_period_s=0.0, stopped_deadline_s=0.0), fault_injection=True) as agent:
        pid = agent.wait_ready("good_a")["good_a"].pid
        agent.ask(InjectFault(fault=Fault(kind="stop", actor="good_a"), duration_s=600.0))
        wait_for(lambda: state(pid) == "T", 10, "it is stopped")
        assert agent.ask(EndFaults(ids=(1, 1))).faults == ()
        wait_for(lambda: state(pid) != "T", 10, "it goes on")
        assert agent.text().count("has ended") == 1
