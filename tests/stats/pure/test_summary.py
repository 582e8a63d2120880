"""/stats/summary: the shape of the kubelet's recorded documents, and the sums."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace as with_fields

from actors._host.files.disk_use import DiskUse
from actors.stats.pages import cadvisor, hardware, resource, summary
from actors.stats.policy import POD_FILES
from proto.node.summary import Summary
from tests.stats.sample import DISK, MACHINE, MIB, READING

GOLDEN = json.loads(Path(__file__).parents[1].joinpath("golden-summary.json").read_text())
RATES = dict.fromkeys(summary.cpu_times(READING), 1000)


PVC = {f".pods[].volume[].pvcRef{field}" for field in ("", ".name", ".namespace")}


def document(disk: summary.Disk | None = DISK, rates: dict[str, int] = RATES) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(msgspec.json.encode(summary.build(READING, rates, MACHINE, disk)))
    return found


def shape(value: Any, at: str = "") -> dict[str, str]:
    """The JSON type of each path in a document; the items of a list are merged."""
    match value:
        case dict():
            return {k: v for key, one in value.items() for k, v in shape(one, f"{at}.{key}").items()} | {at: "object"}
        case list():
            return {k: v for one in value for k, v in shape(one, f"{at}[]").items()} | {at: "array"}
        case bool():
            return {at: "boolean"}
        case int() | float():
            return {at: "number"}
        case _:
            return {at: type(value).__name__}


def test_summary_has_every_field_of_the_kubelets() -> None:
    ours, theirs = shape(document()), shape(GOLDEN)
    assert {path: kind for path, kind in theirs.items() if ours.get(path) != kind} == {}
    assert set(ours) - set(theirs) == PVC, "no pod of the golden node had a claim"


def test_kubelet_document_decodes_into_our_types() -> None:
    read = msgspec.json.decode(json.dumps(GOLDEN), type=Summary)
    assert json.loads(msgspec.json.encode(read)) == GOLDEN


def test_only_cpu_and_memory_omits_expensive_figures() -> None:
    found = document(None)
    assert set(found["node"]) == {"nodeName", "startTime", "systemContainers", "cpu", "memory", "swap"}
    assert set(found["pods"][0]) == {"podRef", "startTime", "containers", "cpu", "memory", "swap"}
    assert set(found["pods"][0]["containers"][0]) == {"name", "startTime", "cpu", "memory", "swap"}


def test_cpu_and_memory() -> None:
    full = document()["pods"][0]
    web = full["containers"][0]
    assert web["cpu"]["usageNanoCores"] == 1000
    assert web["cpu"]["usageCoreNanoSeconds"] == 3_000_000_000
    assert web["memory"]["availableBytes"] == 32 * MIB - 3 * MIB // 2
    assert web["swap"] == {"time": "2026-11-21T22:26:40Z", "swapUsageBytes": 3, "swapAvailableBytes": 32 * MIB - 3}
    assert "availableBytes" not in full["containers"][1]["memory"], "it has no limit"
    assert full["process_stats"] == {"process_count": 2}


def test_forbidden_swap_is_shown_as_none_available() -> None:
    full = READING.pods[0]
    web, side = full.containers
    forbidden = replace(web, figures=replace(web.figures, swap_bytes=0, swap_max_bytes=0))
    reading = replace(READING, pods=[replace(full, containers=[forbidden, side])])
    shown = summary.build(reading, RATES, MACHINE).pods[0].containers
    assert [one.swap and one.swap.swap_available_bytes for one in shown] == [0, None], "side has no limit"
    page = resource.text(reading).decode()
    samples = [line.split()[:2] for line in page.splitlines() if line.startswith("container_swap_limit_bytes")]
    assert samples == [['container_swap_limit_bytes{container="web",pod="full",namespace="default"}', "0"]]


def test_logs_of_ended_containers_are_not_ephemeral_storage() -> None:
    logs = {"web": DiskUse(7, 1), "init": DiskUse(1000, 10), POD_FILES: DiskUse(5, 1)}
    used = document(replace(DISK, logs={"uid-full": logs}))["pods"][0]["ephemeral-storage"]
    assert used["usedBytes"] == 2 * 50 + (7 + 5) + 20
    assert used["inodesUsed"] == 2 * 5 + (1 + 1) + 2


def test_ephemeral_storage_sums_layers_logs_hosts_and_volumes() -> None:
    full = document()["pods"][0]
    assert full["ephemeral-storage"]["usedBytes"] == 2 * 50 + 7 + 4 + 20
    assert full["ephemeral-storage"]["inodesUsed"] == 2 * 5 + 1 + 1 + 2
    disk, memory = full["volume"]
    assert memory["pvcRef"] == {"name": "claim", "namespace": "default"}
    assert (disk["capacityBytes"], disk["usedBytes"], disk["inodes"]) == (1000, 20, 100)
    assert (memory["capacityBytes"], memory["availableBytes"], memory["inodesFree"]) == (64, 34, 7)


def test_volume_without_capacity_has_no_figures_of_the_node() -> None:
    """As of a CSI driver that reports inodes only."""
    volumes = DISK.volumes["uid-full"]
    disk, memory = volumes.volumes
    none = with_fields(memory, used_bytes=0, capacity_bytes=0, available_bytes=0)
    shown = document(replace(DISK, volumes={"uid-full": with_fields(volumes, volumes=(disk, none))}))
    disk, none = shown["pods"][0]["volume"]
    assert (none["capacityBytes"], none["availableBytes"], none["usedBytes"]) == (0, 0, 0)
    assert (none["inodes"], none["inodesFree"], none["inodesUsed"]) == (10, 7, 3)
    assert (disk["capacityBytes"], disk["inodes"]) == (1000, 100)


def test_host_network_pod_has_no_network_figures() -> None:
    host = document()["pods"][1]
    assert "network" not in host
    assert "volume" not in host


def test_pod_without_a_running_container_is_left_out() -> None:
    """As in CrashLoopBackOff or ImagePullBackOff: its sandbox alone is on cAdvisor's page only."""
    full, host = READING.pods
    reading = replace(READING, pods=[replace(full, containers=[]), host])
    for disk in (DISK, None):
        shown = summary.build(reading, RATES, MACHINE, disk)
        assert [one.pod_ref.name for one in shown.pods] == ["host"]
    assert 'pod="host"' in resource.text(reading).decode()
    assert 'pod="full"' not in resource.text(reading).decode()
    cadvisors = cadvisor.text(reading, hardware.hardware(), lambda _: cadvisor.ProcessFigures(1, 1, 1, 1024)).decode()
    assert 'pod="full"' in cadvisors


def test_pod_without_a_cgroup_has_sums_and_no_stalls() -> None:
    full = READING.pods[0]
    web, side = full.containers
    loose = replace(READING, pods=[replace(full, cgroup="", containers=[web, replace(side, cgroup="")])])
    times = summary.cpu_times(loose)
    assert "" not in times
    assert times[side.identity.id] == side.figures.cpu_ns

    def pod(rates: dict[str, int]) -> Any:
        return json.loads(msgspec.json.encode(summary.build(loose, rates, MACHINE, DISK)))["pods"][0]

    shown = pod(dict.fromkeys(times, 1000))
    assert shown["cpu"]["usageNanoCores"] == 2000
    assert shown["memory"]["availableBytes"] == 32 * MIB - 3 * MIB // 2
    assert shown["swap"]["swapAvailableBytes"] == 32 * MIB - 3
    assert [one for one in ("cpu", "memory", "io") if "psi" in shown[one]] == []
    assert ["psi" in one["cpu"] for one in shown["containers"]] == [True, False], "the runtime tells no stalls"
    assert "usageNanoCores" not in pod({})["cpu"]


def test_without_an_earlier_reading_there_is_no_rate() -> None:
    found = document(rates={})
    assert "usageNanoCores" not in found["node"]["cpu"]
    assert "usageNanoCores" not in found["pods"][0]["containers"][0]["cpu"]
