"""The figures of `make bench` by name, from the results of its parts. Ratios are to a floor of the same run."""

from collections.abc import Iterable, Sequence

from tests.bench import bus, probes, scale
from tests.bench.latency import Latencies
from tests.bench.report import Report, Step


def of_pods(reports: Iterable[Report]) -> dict[str, list[float]]:
    """Times of pods by bare CRI's, CPU, memory and latencies; one report for each round."""
    found: dict[str, list[float]] = {}
    for report in reports:
        for step in report.steps:
            _add(found, _of_step(step))
        if report.latencies is not None:
            _add(found, _of_latencies(report.latencies, report.steps[-1].agent.pods))
    return found


def _of_step(step: Step) -> Iterable[tuple[str, float]]:
    pods = f"{step.agent.pods} pod{'s' if step.agent.pods > 1 else ''}"
    yield f"{pods} up, by bare CRI", step.start_ratio
    yield f"{pods} gone, by bare CRI", step.stop_ratio
    yield f"{pods} up and gone, CPU s", step.agent.cpu_start_s + step.agent.cpu_stop_s
    yield f"PSS with {pods}, MB", step.agent.pss_mb


def _of_latencies(found: Latencies, pods: int) -> Iterable[tuple[str, float]]:
    yield f"idle with {pods} pods, % of a core", found.idle_percent
    for seen in found.exit_seen_ms:
        yield "exit seen, ms", _or_late(seen)
    for restarted in found.restarted_ms:
        yield "exit to restarted, ms", _or_late(restarted)
    for times in found.restart_ms.values():
        for time_ms in times:
            yield "actor in service again, ms", _or_late(time_ms)


def _or_late(value: float | None) -> float:
    return float("inf") if value is None else value


def of_bus(rounds: dict[str, Sequence[bus.Figures]]) -> dict[str, list[float]]:
    """Two actors by bare pyzmq with msgpack."""
    found: dict[str, list[float]] = {}
    for bare, actors in zip(rounds["bare"], rounds["actors"], strict=True):
        _add(
            found,
            (
                ("ask, by bare pyzmq with msgpack", actors.round_trip_us / bare.round_trip_us),
                ("asks a second, by bare pyzmq with msgpack", actors.per_second / bare.per_second),
            ),
        )
    return found


def of_scale(rounds: Iterable[Sequence[scale.Cost]]) -> dict[str, list[float]]:
    """The agent's own cost for a pod on a runtime that does nothing."""
    found: dict[str, list[float]] = {}
    for costs in rounds:
        _add(found, ((f"own CPU for a pod of {cost.pods}, ms", cost.cpu_ms) for cost in costs))
        cpu, memory_mb = scale.growth(costs)
        fewest = next((cost.pods for cost in costs if cost.pods == scale.BASE), costs[0].pods)
        _add(
            found,
            (
                (f"CPU for a pod of {costs[-1].pods}, by that of {fewest}", cpu),
                (f"PSS for each pod to {costs[-1].pods}, MB", memory_mb),
            ),
        )
    return found


def of_probes(rounds: Iterable[probes.Probing]) -> dict[str, list[float]]:
    """How late probes are, and what they cost."""
    found: dict[str, list[float]] = {}
    for one in rounds:
        what = f"{one.handler} probes of {one.pods} pods"
        _add(found, ((f"{what}, late by ms", late_ms) for late_ms in one.late_ms))
        _add(found, ((f"{what}, missed", float(one.missed)), (f"{what}, % of a core", one.core_percent)))
    return found


def _add(found: dict[str, list[float]], figures: Iterable[tuple[str, float]]) -> None:
    for name, value in figures:
        found.setdefault(name, []).append(value)
