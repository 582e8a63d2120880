"""Parsing of command lines by the kubelet's rules."""

from __future__ import annotations

from typing import Any

import pytest

from supervisor.config.flags.parser import FlagError, parse


def values(*arguments: str) -> dict[str, Any]:
    return parse(arguments).values


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--root-dir", "/r"], {"root-dir": "/r"}),
        (["--root-dir=/r"], {"root-dir": "/r"}),
        (["--root_dir=/r"], {"root-dir": "/r"}),
        (["--root-dir="], {"root-dir": ""}),
        (["--root-dir", "--max-pods"], {"root-dir": "--max-pods"}),
        (["--max-pods", "7"], {"max-pods": 7}),
        (["--max-pods", "7", "--max-pods=8"], {"max-pods": 8}),
        (["--max-pods=0x10"], {"max-pods": 16}),
        (["--max-pods=010"], {"max-pods": 8}),
        (["--pod-max-pids", "-1"], {"pod-max-pids": -1}),
        (["-v", "4"], {"v": 4}),
        (["-v4"], {"v": 4}),
        (["-v=4"], {"v": 4}),
        (["--v=6"], {"v": 6}),
        (["--cpu-cfs-quota"], {"cpu-cfs-quota": True}),
        (["--cpu-cfs-quota=false"], {"cpu-cfs-quota": False}),
        (["--cpu-cfs-quota=F"], {"cpu-cfs-quota": False}),
        (["--cpu-cfs-quota", "--max-pods", "3"], {"cpu-cfs-quota": True, "max-pods": 3}),
        (["--run_once"], {"run-once": True}),
        (["--sync-frequency", "1h2m3.5s"], {"sync-frequency": "1h2m3.5s"}),
        (["--sync-frequency=-1s"], {"sync-frequency": "-1s"}),
        (["--address", "::1"], {"address": "::1"}),
        (["--address=010.0.0.1"], {"address": "10.0.0.1"}),
        (["--address=0.0.0.0"], {"address": "0.0.0.0"}),
        (["--address=::"], {"address": "::"}),
        (["--address="], {}),
        (["--address", ""], {}),
        (["--address=10.0.0.1", "--address="], {"address": "10.0.0.1"}),
        (["--healthz-bind-address="], {}),
        (["--reserved-memory="], {}),
        (["--cluster-dns", "10.0.0.10,10.0.0.11"], {"cluster-dns": ["10.0.0.10", "10.0.0.11"]}),
        (["--cluster-dns=10.0.0.10", "--cluster-dns=10.0.0.11"], {"cluster-dns": ["10.0.0.10", "10.0.0.11"]}),
        (["--allowed-unsafe-sysctls="], {"allowed-unsafe-sysctls": []}),
        (["--tls-cipher-suites", '"A,B",C'], {"tls-cipher-suites": ["A,B", "C"]}),
        (
            ["--eviction-hard", "memory.available<100Mi, nodefs.available<10%"],
            {"eviction-hard": {"memory.available": "100Mi", "nodefs.available": "10%"}},
        ),
        (["--kube-reserved=cpu=1", "--kube-reserved=memory=1Gi"], {"kube-reserved": {"cpu": "1", "memory": "1Gi"}}),
        (["--cpu-manager-policy-options=a=1,2"], {"cpu-manager-policy-options": {"a": "1,2"}}),
        (["--feature-gates=A=true,B=false"], {"feature-gates": {"A": True, "B": False}}),
        (["--node-labels=a=b,c"], {"node-labels": {"a": "b", "c": ""}}),
        (
            ["--manifest-url-header=a:x,b:y", "--manifest-url-header", "a:z"],
            {"manifest-url-header": {"a": ["x", "z"], "b": ["y"]}},
        ),
        (
            ["--register-with-taints=k=v:NoSchedule,l:NoExecute"],
            {
                "register-with-taints": [
                    {"key": "k", "value": "v", "effect": "NoSchedule"},
                    {"key": "l", "effect": "NoExecute"},
                ]
            },
        ),
        (
            ["--register-with-taints=a=b:NoSchedule", "--register-with-taints=c=d:NoExecute"],
            {"register-with-taints": [{"key": "c", "value": "d", "effect": "NoExecute"}]},
        ),
        (["--register-with-taints=a:NoSchedule", "--register-with-taints="], {"register-with-taints": []}),
        (
            ["--register-with-taints=k=v:NoSchedule,k=v:NoSchedule-,a.b/l=:NoExecute-,m-"],
            {"register-with-taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}]},
        ),
        (
            ["--reserved-memory=0:memory=1Gi,hugepages-1M=2Gi"],
            {"reserved-memory": [{"numaNode": 0, "limits": {"memory": "1Gi", "hugepages-1M": "2Gi"}}]},
        ),
        (["--vmodule=a*=3"], {"vmodule": [{"filePattern": "a*", "verbosity": 3}]}),
        (["--vmodule=a=010,"], {"vmodule": [{"filePattern": "a", "verbosity": 10}]}),
        (["--v=010"], {"v": 10}),
        (["--v=2147483647"], {"v": 2147483647}),
        (["--version=T"], {"version": "true"}),
        (["--version=0"], {"version": "false"}),
        (["--version=raw"], {"version": "raw"}),
        (["--version=v1.36.0-rc.1"], {"version": "v1.36.0-rc.1"}),
        (["--log-text-info-buffer-size=64Ki"], {"log-text-info-buffer-size": "64Ki"}),
        (["--version"], {"version": "true"}),
        ([], {}),
        (["--"], {}),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_flag_has_the_kubelets_syntax(arguments: list[str], expected: dict[str, Any]) -> None:
    assert values(*arguments) == expected


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--no-such-flag"], "unknown flag: --no-such-flag"),
        (["--max-pod=3"], "unknown flag: --max-pod; did you mean --max-pods?"),
        (["-x"], "unknown shorthand flag: 'x' in -x"),
        (["start"], "unknown argument 'start'"),
        (["--cpu-cfs-quota", "false"], "unknown argument 'false'"),
        (["--", "x"], "unknown argument 'x'"),
        (["-"], "unknown argument '-'"),
        (["--root-dir"], "flag needs an argument: --root-dir"),
        (["--max-pods", "many"], "invalid argument 'many' for '--max-pods' flag: expected a whole number"),
        (["--max-pods", "1.5"], "expected a whole number"),
        (["--max-pods", "08"], "expected a whole number"),
        (["--max-pods", "2147483648"], "expected a whole number between -2147483648 and 2147483647"),
        (["-v=-1"], "invalid argument '-1' for '-v, --v' flag"),
        (["-v=+1"], "expected a whole number between 0 and 2147483647"),
        (["-v=0x4"], "expected a whole number between 0 and 2147483647"),
        (["-v=2147483648"], "expected a whole number between 0 and 2147483647"),
        (["--max-pods=" + "9" * 5000], "expected a whole number"),
        (["--reserved-memory=" + "9" * 5000 + ":memory=1Gi"], "expected NUMA_NODE:TYPE=QUANTITY"),
        (["-v=" + "9" * 5000], "expected a whole number between 0 and 2147483647"),
        (["--vmodule=a=4294967296"], "expected a whole number between 0 and 2147483647"),
        (["--vmodule=a=\u0663"], "expected a whole number between 0 and 2147483647"),
        (["--version=perhaps"], "invalid argument 'perhaps' for '--version' flag: expected true, false or raw"),
        (["--sync-frequency", "60"], "'60' is not a duration"),
        (["--cpu-cfs-quota=perhaps"], "expected true or false"),
        (["--cpu-cfs-quota="], "expected true or false"),
        (["--address=localhost"], "expected an IP address"),
        (["--eviction-hard", "memory.available"], "expected KEY<VALUE, not 'memory.available'"),
        (["--kube-reserved=cpu"], "expected KEY=VALUE, not 'cpu'"),
        (["--feature-gates=A=perhaps"], "expected A=true or A=false, not A=perhaps"),
        (["--register-with-taints=a=b"], "expected KEY[=VALUE]:EFFECT"),
        (["--register-with-taints=a:NoSchedule,"], "expected KEY[=VALUE]:EFFECT"),
        (["--register-with-taints=a:Never-"], "expected KEY[=VALUE][:EFFECT]-"),
        (["--register-with-taints=a=b-"], "expected KEY[=VALUE][:EFFECT]-"),
        (["--register-with-taints=a--"], "expected KEY[=VALUE][:EFFECT]-"),
        (["--register-with-taints=A.b/c-"], "expected KEY[=VALUE][:EFFECT]-"),
        (["--register-with-taints=-"], "expected KEY[=VALUE][:EFFECT]-"),
        (["--register-with-taints=a=b/c:NoSchedule-"], "expected KEY[=VALUE][:EFFECT]-"),
        (["--register-with-taints=a:Never"], "NoSchedule, PreferNoSchedule, NoExecute"),
        (["--reserved-memory=x"], "expected NUMA_NODE:TYPE=QUANTITY"),
        (["--reserved-memory=0:cpu=1"], "expected memory or hugepages-SIZE, not 'cpu'"),
        (["--reserved-memory=0:memory=lots"], "lots"),
        (["--log-text-info-buffer-size=1Zi"], "1Zi"),
        (["--vmodule=a"], "expected PATTERN=N"),
        (["--container-runtime=rkt"], "--container-runtime=rkt was removed: rkt is gone; use containerd"),
        (["--container_runtime", "docker"], "cri-dockerd: --container-runtime-endpoint=unix:///run/cri-dockerd.sock"),
        (["--container-runtime=remote"], "--container-runtime was removed"),
        (["--network-plugin=cni"], "flag --network-plugin was removed"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_invalid_command_line_is_reported(arguments: list[str], message: str) -> None:
    with pytest.raises(FlagError) as caught:
        parse(arguments)
    assert message in str(caught.value)


def test_invalid_header_is_not_in_the_message() -> None:
    with pytest.raises(FlagError) as caught:
        parse(["--manifest-url-header=Authorization Bearer s3cret"])
    assert "s3cret" not in str(caught.value)


def test_flags_of_older_installers_are_accepted() -> None:
    given = parse(["--pod-infra-container-image", "registry.k8s.io/pause:3.9", "--max-pods=3"])
    assert given.values == {"max-pods": 3}
    assert "pod-infra-container-image" in given.ignored


def test_help_flag_works_at_any_position() -> None:
    assert parse(["--max-pods", "3", "-h", "nonsense"]).help
    assert parse(["--help"]).help


def test_values_are_grouped_by_field_and_setting() -> None:
    given = parse(["--max-pods=3", "--root-dir=/r", "--config=c", "--kubeconfig=k"])
    assert (given.by_field(), given.by_setting()) == ({"maxPods": 3}, {"root_dir": "/r", "kubeconfig": "k"})
