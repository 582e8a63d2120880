"""The figures of one run, for people and as plain values for programs."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from tests.bench.floor import WIDTH, Floor
from tests.bench.harness.agent import AgentRun
from tests.bench.measurements.latency import Latencies, percentile
from tests.bench.reporting.table import print_table


@dataclass
class Step:
    """One number of pods: bare CRI, the agent, bare CRI again."""

    floors: list[Floor]
    agent: AgentRun

    @property
    def floor_start_s(self) -> float:
        """Mean of the floors."""
        return sum(floor.start_s for floor in self.floors) / len(self.floors)

    @property
    def floor_stop_s(self) -> float:
        """Mean of the floors."""
        return sum(floor.stop_s for floor in self.floors) / len(self.floors)

    @property
    def start_ratio(self) -> float:
        """The agent's time by the floor's."""
        return self.agent.start_s / self.floor_start_s

    @property
    def stop_ratio(self) -> float:
        """The agent's time by the floor's."""
        return self.agent.stop_s / self.floor_stop_s


@dataclass
class Report:
    """One run of the benchmark."""

    steps: list[Step] = field(default_factory=list)
    latencies: Latencies | None = None

    def plain(self) -> dict[str, Any]:
        """All of it as JSON's types."""
        steps = [
            {
                "pods": step.agent.pods,
                "floor_start_s": step.floor_start_s,
                "floor_stop_s": step.floor_stop_s,
                "start_ratio": step.start_ratio,
                "stop_ratio": step.stop_ratio,
                "floors": [asdict(floor) for floor in step.floors],
                "agent": asdict(step.agent),
            }
            for step in self.steps
        ]
        return {"width": WIDTH, "steps": steps, "latencies": asdict(self.latencies) if self.latencies else None}

    def show(self) -> None:
        """Print it."""
        print(f"\nSeconds until all run, and until all are gone; bare CRI calls {WIDTH} at a time before and after.")
        headers = ("PODS", "BARE CRI", "AGENT", "RATIO", "GONE: CRI", "AGENT", "RATIO", "AGENT CPU S", "PSS MB")
        print_table(headers, [_row(step) for step in self.steps])
        last = self.steps[-1].agent
        _by_process(f"CPU seconds by process, {last.pods} pods up and down", last.cpu_by_process_s)
        _by_process(f"PSS in MB by process, with {last.pods} pods", last.pss_by_process_mb)
        if last.complaints:
            print(f"\nWarnings and errors in the agent's log: {len(last.complaints)}, such as {last.complaints[0]}")
        if self.latencies is not None:
            _latencies(self.latencies, last.pods)


def _row(step: Step) -> Sequence[object]:
    agent = step.agent
    cpu_s = agent.cpu_start_s + agent.cpu_stop_s
    up = (step.floor_start_s, agent.start_s, step.start_ratio)
    return (agent.pods, *up, step.floor_stop_s, agent.stop_s, step.stop_ratio, cpu_s, agent.pss_mb)


def _by_process(title: str, values: dict[str, float]) -> None:
    ordered = sorted(values.items(), key=lambda item: -item[1])
    print(f"\n{title}: {', '.join(f'{name} {value:g}' for name, value in ordered if value)}")


def _latencies(found: Latencies, pods: int) -> None:
    idle = found.idle
    print(
        f"\nIdle with {pods} pods: {idle.percent:.2f} % of one core, {idle.wakeups_per_s:.0f} wake-ups and "
        f"{idle.calls_per_s:.0f} {idle.calls} a second"
    )
    _by_process("Wake-ups a second by process", idle.wakeups_by_process_per_s)
    print("\nMilliseconds after kill -9")
    rows: list[Sequence[object]] = [("container's end seen", *_percentiles(found.exit_seen_ms))]
    rows += [("container replaced", *_percentiles(found.restarted_ms))]
    for times, how in ((found.restarts.quiet_ms, ""), (found.restarts.loaded_ms, " under load")):
        rows += [(f"{name} in service again{how}", *_percentiles(one)) for name, one in times.items()]
        every = [time for one in times.values() for time in one]
        rows += [(f"every actor{how}", *_percentiles(every))]
    print_table(("WHAT", "COUNT", "P50", "P99", "MAX"), rows)
    print(f"Containers touched by the actors' restarts: {found.containers_touched}")


def _percentiles(values: Sequence[float | None]) -> Sequence[object]:
    return (len(values), percentile(values, 0.5), percentile(values, 0.99), percentile(values, 1.0))
