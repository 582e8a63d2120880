"""The flags that /flagz shows: each with its value in force, and no secret."""

from __future__ import annotations

from pathlib import Path

import msgspec

from supervisor.cli.agent import start
from supervisor.config.flags import table
from supervisor.config.flags.parser import parse

FILE = """
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
maxPods: 42
syncFrequency: 90s
failSwapOn: false
evictionHard: {memory.available: 1Gi, nodefs.available: 5%}
staticPodURL: https://user:secret@host/pods
staticPodURLHeader: {Authorization: [secret]}
registerWithTaints: [{key: a, value: b, effect: NoSchedule}]
logging: {vmodule: [{filePattern: pod*, verbosity: 5}]}
reservedMemory: [{numaNode: 0, limits: {memory: 100Mi}}]
"""


def shown(tmp_path: Path, *line: str) -> dict[str, str]:
    (tmp_path / "config").write_text(FILE)
    given = parse([*line, "--config", str(tmp_path / "config")])
    encoded = msgspec.json.decode(bytes(start.encoded(start.configuration(given), given)))
    assert encoded.pop("secrets")["staticPodURLHeader"] == {"Authorization": ["secret"]}
    assert "secret" not in str(encoded)
    flags: dict[str, str] = encoded["flags"]
    return flags


def test_flag_has_its_value_of_line_file_or_default(tmp_path: Path) -> None:
    flags = shown(tmp_path, "--max-pods=20", "--node-labels=a=b,c=", "--take-over")
    assert flags.keys() == table.flags().keys()
    expected = {
        "max-pods": "20", "sync-frequency": "1m30s", "fail-swap-on": "false", "take-over": "true",
        "eviction-hard": "memory.available<1Gi,nodefs.available<5%", "node-labels": "a=b,c=",
        "register-with-taints": "a=b:NoSchedule", "vmodule": "pod*=5", "reserved-memory": "0:memory=100Mi",
        "manifest-url": "https://<masked>@host/pods", "manifest-url-header": "Authorization:<masked>",
        "port": "10250", "cluster-dns": "[]", "hostname-override": "", "config": str(tmp_path / "config"),
    }  # fmt: skip
    assert {name: flags[name] for name in expected} == expected


def test_written_zero_is_shown_instead_of_the_flags_default(tmp_path: Path) -> None:
    assert shown(tmp_path, "--read-only-port=0")["read-only-port"] == "0"
    assert shown(tmp_path, "--anonymous-auth=false")["anonymous-auth"] == "false"
