"""The figures of `make bench` by name, from the results of its parts. Ratios are to a floor of the same run."""

from collections.abc import Iterable, Mapping, Sequence

from tests.bench import cluster
from tests.bench.cluster import Cluster
from tests.bench.measurements import bus, probes, scale
from tests.bench.measurements.idle import Idle
from tests.bench.measurements.latency import Latencies
from tests.bench.measurements.restarts import Bare, Times
from tests.bench.measurements.service import Service
from tests.bench.measurements.streams import Streams
from tests.bench.reporting.report import Report, Step


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
    yield from of_idle(found.idle, pods)
    for seen in found.exit_seen_ms:
        yield "exit seen, ms", _or_late(seen)
    for restarted in found.restarted_ms:
        yield "exit to restarted, ms", _or_late(restarted)
    for start_ms in found.bare_start_ms:
        yield "bare CRI's create and start of a container, ms", start_ms
    yield from of_restarts(found.restarts.quiet_ms, found.restarts.bare, "")
    yield from of_restarts(found.restarts.loaded_ms, found.restarts.bare_loaded, " under load")


def of_idle(found: Idle, pods: int) -> Iterable[tuple[str, float]]:
    """The agent's use while nothing happens."""
    yield f"idle with {pods} pods, % of a core", found.percent
    yield f"idle with {pods} pods, wake-ups a second", found.wakeups_per_s
    yield f"idle with {pods} pods, {found.calls} a second", found.calls_per_s


def of_restarts(found: Times, bare: Bare, how: str) -> Iterable[tuple[str, float]]:
    """Restarts of all actors together, of each, and of a bare parent's child."""
    for name, times in found.items():
        for time_ms in times:
            yield f"actor in service again{how}, ms", _or_late(time_ms)
            yield f"actor in service again{how}, ms: {name}", _or_late(time_ms)
    yield from ((f"bare pidfd's exit seen{how}, ms", time_ms) for time_ms in bare.seen_ms)
    yield from ((f"bare fork of the next process{how}, ms", time_ms) for time_ms in bare.forked_ms)


def _or_late(value: float | None) -> float:
    return float("inf") if value is None else value


def of_bus(rounds: Mapping[str, Sequence[bus.Figures]]) -> dict[str, list[float]]:
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
    """Lateness and cost of probes."""
    found: dict[str, list[float]] = {}
    for one in rounds:
        what = f"{one.handler} probes of {one.pods} pods"
        _add(found, ((f"{what}, late by ms", late_ms) for late_ms in one.late_ms))
        _add(found, ((f"{what}, missed", float(one.missed)), (f"{what}, % of a core", one.core_percent)))
    return found


def of_service(rounds: Iterable[Service]) -> dict[str, list[float]]:
    """An agent's start, its idle without pods, and a takeover."""
    found: dict[str, list[float]] = {}
    for one in rounds:
        _add(found, of_idle(one.idle, 0))
        _add(
            found,
            (
                ("PSS with 0 pods, MB", one.pss_mb),
                ("start to every actor ready, s", one.in_service_s),
                ("start to first pod ready, s", one.first_pod_s),
                ("bare CRI's first pod, s", one.bare_pod_s),
                (f"takeover of {one.pods} pods, s", one.takeover_s),
                (f"bare CRI's reads of {one.pods} pods, s", one.bare_reads_s),
                (f"takeover of {one.pods} pods, containers touched", float(one.containers_touched)),
            ),
        )
    return found


def of_streams(rounds: Iterable[Streams]) -> dict[str, list[float]]:
    """Logs, exec and port-forward, and the same by the runtime's own streams."""
    found: dict[str, list[float]] = {}
    for one in rounds:
        _add(
            found,
            (
                (f"log of {one.log_mb} MB, ms", one.log_ms),
                (f"log of {one.log_mb} MB, by bare TLS", one.log_ms / one.log_by_bare_tls_ms),
                (f"log of {one.log_mb} MB, by reading the file", one.log_ms / one.log_by_file_ms),
                ("exec of true, ms", one.exec_ms),
                ("exec of true, by containerd's own", one.exec_ms / one.own_exec_ms),
                ("port-forward to the first byte, ms", one.forward_ms),
                ("port-forward to the first byte, by containerd's own", one.forward_ms / one.own_forward_ms),
            ),
        )
    return found


def of_cluster(rounds: Iterable[Cluster]) -> dict[str, list[float]]:
    """Pods of an API server by bare CRI's, and changes of a ConfigMap beside a bare watch's."""
    found: dict[str, list[float]] = {}
    for one in rounds:
        for step in one.steps:
            _add(found, _of_api_pods(step))
        _add(found, (("ConfigMap change to file, ms", file_ms) for file_ms in one.file_ms))
        _add(found, (("ConfigMap change to a bare watch, ms", watch_ms) for watch_ms in one.watch_ms))
    return found


def _of_api_pods(step: cluster.Step) -> Iterable[tuple[str, float]]:
    pods = f"{step.pods} API pod{'s' if step.pods > 1 else ''}"
    yield f"{pods} created to ready, s", step.ready_s
    yield f"{pods} created to ready, by bare CRI", step.ready_s / step.floor_start_s
    yield f"{pods} deleted to gone, s", step.gone_s
    yield f"{pods} deleted to gone, by bare CRI", step.gone_s / step.floor_stop_s
    yield f"{pods} up and gone, CPU s", step.cpu_s
    yield f"PSS with {pods}, MB", step.pss_mb


def _add(found: dict[str, list[float]], figures: Iterable[tuple[str, float]]) -> None:
    for name, value in figures:
        found.setdefault(name, []).append(value)
