"""Everything the kubelet exposes is exposed here alike, or verdicts.py says why not."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from actors._cgroup.figures import Pressure, Stalls
from actors._metrics import agent, kubelet, process, text
from actors._metrics.registry import Family
from actors.stats.pages import cadvisor, resource
from tests.metrics.verdicts import ABSENT, reason
from tests.stats.sample import READING

GOLDEN: dict[str, dict[str, dict[str, Any]]] = json.loads(Path(__file__).with_name("golden.json").read_text())
HARDWARE = cadvisor.Hardware("boot", "machine", "uuid", 2, 1, 1, 10, 0, "6.1", "Debian")
DEVICES = [cadvisor.Device("/dev/sda1", 10, 5, 4, 3, tuple(range(11)))]
PSI = {
    "cpu_stalls": Stalls(Pressure(total_us=1_500_000), Pressure(total_us=250_000)),
    "memory_stalls": Stalls(),
    "io_stalls": Stalls(),
}
FULL, HOST = READING.pods
WEB, SIDE = FULL.containers
WITH_PSI = replace(
    READING,
    node=replace(READING.node, **PSI),
    pods=[replace(FULL, containers=[replace(WEB, figures=replace(WEB.figures, **PSI)), SIDE]), HOST],
)


def catalogue(families: list[Family]) -> bytes:
    """Each family with one sample."""
    return text.families_text(
        families, {one.name: {tuple("x" for _ in one.labels): (1.0,) * one.width} for one in families}
    )


def exposed() -> dict[str, bytes]:
    def count(pids: list[int]) -> cadvisor.ProcessFigures:
        return cadvisor.ProcessFigures(len(pids), 3, 1, 1024)

    return {
        "/metrics": catalogue([*kubelet.REGISTRY, *agent.REGISTRY, *process.REGISTRY, *process.STARTED]),
        "/metrics/probes": catalogue([*kubelet.PROBES, *process.STARTED]),
        "/metrics/slis": catalogue([*kubelet.SLIS]),
        "/metrics/resource": resource.text(READING),
        "/metrics/cadvisor": cadvisor.text(WITH_PSI, HARDWARE, count, DEVICES, {"8:0": "/dev/sda"}.__getitem__),
    }


def described(data: bytes) -> dict[str, dict[str, Any]]:
    """Name to type and label names, as golden.json has them."""
    found: dict[str, dict[str, Any]] = {}
    for family in text_string_to_metric_families(data.decode()):
        name = (
            f"{family.name}_total"
            if family.type == "counter" and f" {family.name}_total " in written_names(data)
            else family.name
        )
        labels = {label for sample in family.samples for label in sample.labels} - {"le"}
        found[name] = {"type": family.type, "labels": sorted(labels)}
    return found


def written_names(data: bytes) -> str:
    """The names of all families as they are written: the parser takes _total off."""
    return " ".join(line.split()[2] for line in data.decode().splitlines() if line.startswith("# TYPE ")).join("  ")


ENDPOINTS = sorted(GOLDEN)


def reference() -> dict[str, dict[str, dict[str, Any]]]:
    """reference.txt in the form of golden.json; a type that is not given is empty."""
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for line in Path(__file__).with_name("reference.txt").read_text().splitlines():
        if not line.startswith("#"):
            where, name, kind, *labels = line.split()
            found.setdefault(where, {})[name] = {"type": kind.replace("custom", ""), "labels": sorted(labels)}
    return found


REFERENCE = reference()


@pytest.mark.parametrize("endpoint", ENDPOINTS)
def test_every_metric_is_exposed_alike_or_has_a_reason(endpoint: str) -> None:
    ours = described(exposed()[endpoint])
    wrong = {}
    for name, wanted in GOLDEN[endpoint].items():
        why = reason(endpoint, name)
        if name not in ours and not why:
            wrong[name] = "neither exposed nor given a reason in verdicts.py"
        elif name in ours and why:
            wrong[name] = f"exposed, though verdicts.py says: {why}"
        elif name in ours and ours[name] != wanted:
            wrong[name] = f"{ours[name]}, in the kubelet {wanted}"
    assert wrong == {}


@pytest.mark.parametrize("endpoint", sorted(REFERENCE))
def test_reference_has_no_metric_without_a_verdict(endpoint: str) -> None:
    ours = described(exposed()[endpoint])
    wrong = {}
    for name, wanted in REFERENCE[endpoint].items():
        why, has = reason(endpoint, name), ours.get(name)
        if (has is None) != bool(why):
            wrong[name] = f"exposed: {has}; reason in verdicts.py: {why!r}"
        elif has is not None and (has["labels"] != wanted["labels"] or wanted["type"] not in ("", has["type"])):
            wrong[name] = f"{has}, in the kubelet {wanted}"
    assert wrong == {}


def test_every_verdict_matches_a_metric() -> None:
    names = {where: GOLDEN.get(where, {}).keys() | REFERENCE.get(where, {}).keys() for where in exposed()}
    idle = [pattern for where, pattern, why in ABSENT if not any(reason(where, name) == why for name in names[where])]
    assert idle == []


def test_resource_samples_but_start_times_have_timestamps() -> None:
    families = {one.name: one for one in text_string_to_metric_families(resource.text(READING).decode())}
    (node,) = families["node_cpu_usage_seconds"].samples
    assert (node.value, node.timestamp) == (100, READING.time)
    web = next(one for one in families["container_start_time_seconds"].samples if one.labels["container"] == "web")
    assert (web.value, web.timestamp) == (READING.time - 60, None)
    assert families["resource_scrape_error"].samples[0].value == 0


def test_without_a_reading_the_pages_say_so() -> None:
    assert b"resource_scrape_error 1\n" in resource.text(None)
    page = cadvisor.text(None, HARDWARE, lambda _: cadvisor.ProcessFigures())
    assert b"container_scrape_error 1\n" in page
    assert b"machine_cpu_cores" in page


def test_the_sandbox_has_the_pods_network_and_no_container_name() -> None:
    page = exposed()["/metrics/cadvisor"].decode()
    families = {one.name: one for one in text_string_to_metric_families(page)}
    received = families["container_network_receive_bytes"].samples
    assert {(one.labels["pod"], one.labels["container"], one.labels["interface"]) for one in received} == {
        ("", "", "ens5"),
        ("", "", "eth0"),
        ("full", "", "eth0"),
    }


def samples(page: bytes, name: str) -> list[Sample]:
    """Of a counter, whose name the parser cuts."""
    families = {one.name: one for one in text_string_to_metric_families(page.decode())}
    found = families.get(name.removesuffix("_total"))
    return list(found.samples) if found is not None else []


def no_processes(pids: list[int]) -> cadvisor.ProcessFigures:
    return cadvisor.ProcessFigures()


def test_each_cgroup_has_its_transfers_by_disk() -> None:
    page = exposed()["/metrics/cadvisor"]
    read = samples(page, "container_fs_reads_bytes_total")
    assert {one.labels["device"] for one in read} == {"/dev/sda"}
    assert [one.labels["id"] for one in read if not one.labels["pod"]] == ["/", "/kubepods", "/kubepods/burstable"]
    (web,) = (one for one in read if one.labels["container"] == "web")
    assert (web.value, web.timestamp) == (3 * 4096, READING.time)
    used = [one for one in samples(page, "container_blkio_device_usage_total") if one.labels["container"] == "web"]
    assert {one.labels["operation"]: one.value for one in used} == {"Read": 3 * 4096, "Write": 3 * 512}
    assert {(one.labels["device"], one.labels["major"], one.labels["minor"]) for one in used} == {
        ("/dev/sda", "8", "0")
    }


def test_disk_without_a_name_has_its_numbers() -> None:
    page = cadvisor.text(READING, HARDWARE, no_processes, DEVICES, {"8:0": ""}.__getitem__)
    assert {one.labels["device"] for one in samples(page, "container_fs_writes_bytes_total")} == {"8:0"}


@pytest.mark.parametrize(("device", "reads"), [("/dev/sda1", [0, 100]), ("/dev/sda", [0])])
def test_no_disk_of_the_node_has_two_samples(device: str, reads: list[int]) -> None:
    """A file system on the whole disk: its reads are those of /proc/diskstats, as before."""
    devices = [cadvisor.Device(device, 10, 5, 4, 3, tuple(range(11)))]
    page = cadvisor.text(READING, HARDWARE, no_processes, devices, {"8:0": "/dev/sda"}.__getitem__)
    found = [one for one in samples(page, "container_fs_reads_total") if one.labels["id"] == "/"]
    assert [one.value for one in found] == reads
    for name in ("container_fs_reads_total", "container_fs_writes_total", "container_fs_reads_bytes_total"):
        labels = [tuple(sorted(one.labels.items())) for one in samples(page, name)]
        assert len(labels) == len(set(labels))


def test_transfers_are_there_when_no_file_system_could_be_read() -> None:
    page = cadvisor.text(READING, HARDWARE, no_processes)
    assert len(samples(page, "container_fs_writes_total")) == len(samples(page, "container_fs_writes_bytes_total")) > 0


def test_what_has_no_cgroup_has_no_row() -> None:
    loose = replace(FULL, cgroup="", containers=[WEB, replace(SIDE, cgroup="")])
    page = cadvisor.text(replace(READING, pods=[loose]), HARDWARE, lambda _: cadvisor.ProcessFigures()).decode()
    rows = [line for line in page.splitlines() if line.startswith("container_memory_rss{") and 'pod="full"' in line]
    assert len(rows) == 2, "of the container with a cgroup, and of the sandbox"
    assert f'id="{WEB.cgroup}"' in page
    assert 'id="",' not in page
    pods = resource.text(replace(READING, pods=[loose])).decode()
    assert 'pod_memory_working_set_bytes{pod="full",namespace="default"}' in pods


@pytest.mark.parametrize("short", ["reads_total", "io_time_weighted_seconds_total"])
def test_disk_without_counters_has_zeros(short: str) -> None:
    """The root is on btrfs, ZFS or overlay, which /proc/diskstats does not have."""
    page = cadvisor.text(READING, HARDWARE, lambda _: cadvisor.ProcessFigures(), [cadvisor.Device("/", 10, 5, 4, 3)])
    assert re.search(rf'^container_fs_{short}{{.*,device="/"}} 0 \d+$', page.decode(), re.MULTILINE)


def test_pressure_is_shown_of_cgroups_that_have_it() -> None:
    page = exposed()["/metrics/cadvisor"]
    waiting = samples(page, "container_pressure_cpu_waiting_seconds_total")
    assert {(one.labels["id"], one.labels["container"]): one.value for one in waiting} == {
        ("/", ""): 1.5,
        (WEB.cgroup, "web"): 1.5,
    }
    stalled = samples(page, "container_pressure_cpu_stalled_seconds_total")
    assert [one.value for one in stalled] == [0.25, 0.25]
    assert [one.value for one in samples(page, "container_pressure_io_stalled_seconds_total")] == [0, 0]
    assert b"pressure" not in cadvisor.text(READING, HARDWARE, no_processes)
