"""The cgroups and units below kubepods.slice: what the kubelet sets (kubelet_slices.json), and what is there.

Descriptions and drop-ins are left out: they name the library that made a unit, and its calls.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from actors._cgroup.quantities.resources import milli_cpu_to_shares, shares_to_weight
from actors._host.machine import read_machine
from tests.agent.agent import Agent
from tests.agent.changing import CGROUPS

FACTS = json.loads(Path(__file__).with_name("kubelet_slices.json").read_text())
PODS: dict[str, dict[str, Any]] = FACTS["pods"]
RESERVED_MILLI_CPU, RESERVED_BYTES = 400, 400 << 20
CONFIGURATION = {
    "cgroupDriver": "systemd",
    "podPidsLimit": 200,
    "systemReserved": {"cpu": "200m", "memory": "200Mi"},
    "kubeReserved": {"cpu": "200m", "memory": "200Mi"},
}
"""The kubelet's when the facts were taken."""

Values = dict[str, dict[str, str]]
"""Kind (cgroup, systemd) to file or property to value."""


def expected(uids: Mapping[str, str], agent: Agent) -> dict[str, Values]:
    """The kubelet's values by path below the cgroup root, for the pods with these UIDs."""
    found = {name: _over(FACTS["level"], values) for name, values in _levels().items()}
    for name, uid in uids.items():
        facts, slug = PODS[name], uid.replace("-", "_")
        path = facts["slice"].replace("UID", slug)
        found[path] = _over(FACTS["slice"], facts)
        for of, scope in _scopes(agent, name).items():
            values = _over(FACTS["container"], facts["containers"][of])
            values["systemd"] = {key: value.replace("UID", slug) for key, value in values["systemd"].items()}
            found[f"{path}/{scope}"] = values
    return found


def _levels() -> dict[str, dict[str, Any]]:
    """The facts of the slices above pods, with this machine's CPUs, memory and processes."""
    levels: dict[str, dict[str, Any]] = dict(FACTS["levels"])
    machine = read_machine("/")
    weight = shares_to_weight(milli_cpu_to_shares(machine.cpus * 1000 - RESERVED_MILLI_CPU))
    memory = machine.memory_bytes - RESERVED_BYTES
    cgroup = {"cpu.weight": weight, "memory.max": memory, "pids.max": machine.pids, "cpuset.cpus": machine.cpu_list}
    unit = {"CPUWeight": weight, "MemoryMax": memory, "TasksMax": machine.pids, "AllowedCPUs": machine.cpu_list}
    top = levels["kubepods.slice"]
    levels["kubepods.slice"] = {
        "cgroup": top["cgroup"] | {key: str(value) for key, value in cgroup.items()},
        "systemd": top["systemd"] | {key: str(value) for key, value in unit.items()},
    }
    return {str(Path(*_parents(name))): values for name, values in levels.items()}


def _parents(name: str) -> list[str]:
    return ["kubepods.slice"] if name == "kubepods.slice" else ["kubepods.slice", name]


def _scopes(agent: Agent, pod: str) -> dict[str, str]:
    """The scope of each container that runs, by the container's name."""
    running = {name: identity for identity, name in agent.running().items()}
    own = {name.partition("/")[2]: identity for name, identity in running.items() if name.startswith(f"{pod}/")}
    sandboxes = agent.containerd.cri.list_pod_sandbox().result()
    own["(sandbox)"] = next(one.id for one in sandboxes if one.metadata.name == pod)
    assert own.keys() == PODS[pod]["containers"].keys(), own
    return {name: f"cri-containerd-{identity}.scope" for name, identity in own.items()}


def _over(common: Values, own: Mapping[str, Any]) -> Values:
    return {kind: common[kind] | own.get(kind, {}) for kind in common}


def differences(wanted: Mapping[str, Values]) -> list[str]:
    """What differs: `PATH KEY: value, not the kubelet's value`. Files that this kernel lacks are left out, too."""
    return [line for path, values in wanted.items() for line in _differing(path, values)]


def _differing(path: str, values: Values) -> Iterator[str]:
    unit = path.rpartition("/")[2]
    directory = CGROUPS / path
    if not directory.is_dir():
        yield f"{path} is missing"
        return
    files = {key: (directory / key).read_text().strip() for key in values["cgroup"] if (directory / key).exists()}
    assert len(files) > 10, f"{path} has only {list(files)}"
    shown = properties(unit, values["systemd"])
    for found, kind in ((files, "cgroup"), (shown, "systemd")):
        for key, value in found.items():
            if value != values[kind][key]:
                yield f"{path} {key}: {value!r}, not the kubelet's {values[kind][key]!r}"


def properties(unit: str, keys: Mapping[str, str]) -> dict[str, str]:
    """The unit's properties as systemctl shows them."""
    command = ["systemctl", "show", unit, *(f"--property={key}" for key in keys)]
    lines = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout.splitlines()
    found = dict(line.split("=", 1) for line in lines)
    found["DelegateControllers"] = " ".join(sorted(found.get("DelegateControllers", "").split()))
    return found


def slices() -> set[str]:
    """Units and directories of slices below kubepods.slice, that one among them."""
    command = ["systemctl", "list-units", "--all", "--plain", "--no-legend", "kubepods*"]
    lines = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout.splitlines()
    # Unlike rglob, walk passes over what goes meanwhile.
    names = (name for _, directories, _ in os.walk(CGROUPS / "kubepods.slice") for name in directories)
    below = {name for name in names if name.endswith(".slice")}
    return {line.split()[0] for line in lines} | below
