"""Settings from flags and from a KubeletConfiguration file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import pytest

from proto.settings import Settings
from supervisor.cli import CommandError
from supervisor.cli.start import effective, socket_url, start
from supervisor.configuration import ConfigurationError, parse
from supervisor.options import OPTIONS

HEAD = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"


def flags(*arguments: str) -> dict[str, Any]:
    """What `start` makes of its flags."""
    context = start.make_context("start", list(arguments))
    own = ("run_dir", "config", "supervisor_config")
    return {name: value for name, value in context.params.items() if value is not None and name not in own}


def test_every_option_is_a_setting_once() -> None:
    fields = Settings.__struct_fields__
    attributes = [option.attribute for option in OPTIONS]
    assert set(attributes) <= set(fields)
    assert len(set(attributes)) == len(attributes)


@pytest.mark.parametrize(
    ("arguments", "attribute", "value"),
    [
        (["--root-dir", "/r"], "root_dir", "/r"),
        (["--hostname-override=N"], "node_name", "N"),
        (["--max-pods", "7"], "max_pods", 7),
        (["--pod-max-pids", "-1"], "pod_pids_limit", -1),
        (["--sync-frequency", "1m30s"], "sync_frequency_s", 90.0),
        (["--cpu-cfs-quota-period=50ms"], "cpu_cfs_quota_period_us", 50_000),
        (["--cpu-cfs-quota=false"], "cpu_cfs_quota", False),
        (["--cpu-cfs-quota"], "cpu_cfs_quota", True),
        (["--cluster-dns", "10.0.0.10,10.0.0.11"], "cluster_dns", ("10.0.0.10", "10.0.0.11")),
        (
            ["--eviction-hard", "memory.available<100Mi,nodefs.available<10%"],
            "eviction_hard",
            {"memory.available": "100Mi", "nodefs.available": "10%"},
        ),
        (["--minimum-image-ttl-duration", "0s"], "image_minimum_gc_age_s", 0.0),
        (["-v", "4"], "verbosity", 4),
        (["--v=6"], "verbosity", 6),
    ],
)
def test_a_flag_has_the_kubelets_syntax(arguments: list[str], attribute: str, value: object) -> None:
    assert flags(*arguments) == {attribute: value}


def test_a_flag_after_a_bare_boolean_is_a_flag() -> None:
    assert flags("--cpu-cfs-quota", "--max-pods", "3") == {"cpu_cfs_quota": True, "max_pods": 3}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--max-pods", "many"], "'--max-pods': expected a whole number, not 'many'"),
        (["--max-pods", "-1"], "expected a number at least 0, not -1"),
        (["--image-gc-high-threshold", "101"], "expected a number between 0 and 100, not 101"),
        (["--sync-frequency", "60"], "'60' is not a duration"),
        (["--sync-frequency=-1s"], "expected a duration of at least 0"),
        (["--cpu-cfs-quota=perhaps"], "expected true or false, not 'perhaps'"),
        (["--eviction-hard", "memory.available"], "expected SIGNAL<THRESHOLD, not 'memory.available'"),
        (["--no-such-flag"], "No such option"),
    ],
)
def test_a_flag_that_is_wrong_is_said(arguments: list[str], message: str) -> None:
    with pytest.raises(click.UsageError) as caught:
        flags(*arguments)
    assert message in caught.value.format_message()


def test_a_file_sets_what_it_has_and_flags_win(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(
        HEAD + "maxPods: 20\nstaticPodPath: /m\nsyncFrequency: 5s\nclusterDNS: [10.0.0.1]\n"
        "crashLoopBackOff: {maxContainerRestartPeriod: 30s}\nevictionHard: {memory.available: 1Gi}\npodLogsDir: null\n"
    )
    settings = effective({"max_pods": 30}, str(file), "/x")
    assert (settings.max_pods, settings.pod_manifest_path, settings.sync_frequency_s) == (30, "/m", 5.0)
    assert (settings.cluster_dns, settings.crash_loop_max_back_off_s) == (("10.0.0.1",), 30.0)
    assert settings.eviction_hard == {"memory.available": "1Gi"}
    assert settings.pod_logs_dir == Settings().pod_logs_dir


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (HEAD + "maxPod: 3\n", "cannot use F:3: unknown field 'maxPod'; this version does not support it"),
        (HEAD + "maxPods: '3'\n", "cannot use F:3: maxPods: expected a whole number, not '3'"),
        (HEAD + "maxPods: 3\nmaxPods: 4\n", "cannot use F:4: maxPods is given twice"),
        (HEAD + "crashLoopBackOff:\n  maxPeriod: 3s\n", "cannot use F:4: unknown field 'crashLoopBackOff.maxPeriod'"),
        (HEAD + "clusterDNS: 10.0.0.1\n", "cannot use F:3: clusterDNS: expected a list of strings"),
        (HEAD + "evictionHard:\n  memory.available: 5\n", "evictionHard: expected a string, not 5"),
        (HEAD + "cpuCFSQuota: 'true'\n", "cpuCFSQuota: expected true or false, not 'true'"),
        ("kind: Pod\napiVersion: v1\n", "expected apiVersion kubelet.config.k8s.io/v1beta1 and kind"),
        ("- a\n", "expected a KubeletConfiguration object"),
        ("", "expected a KubeletConfiguration object"),
        ("a: [\n", "cannot use F:2: not YAML"),
        (HEAD + "maxPods: !!python/object:os.system x\n", "cannot use F:3:"),
        ("\x00", "cannot use F: not YAML"),
    ],
)
def test_a_file_that_is_wrong_is_said_with_its_line(text: str, message: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse(text, "F")
    assert message in str(caught.value)


def test_a_file_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match=r"cannot read configuration .*: No such file"):
        effective({}, str(tmp_path / "none.yaml"), "/x")


def test_the_node_is_named_as_the_kubelet_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    class Host:
        nodename = "Node-A.Example"

    monkeypatch.setattr("os.uname", lambda: Host)
    assert effective({}, None, "/x").node_name == "node-a.example"
    assert effective({"node_name": " B "}, None, "/x").node_name == "b"
    Host.nodename = ""
    with pytest.raises(CommandError, match="--hostname-override"):
        effective({}, None, "/x")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"image_gc_high_threshold_percent": 80}, "low threshold"),
        ({"cgroup_driver": "none"}, "neither cgroupfs nor systemd"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(CommandError, match=message):
        effective(given, None, "/x")


def test_paths_are_absolute_whatever_the_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    settings = effective({"pod_manifest_path": "m", "root_dir": "r"}, None, "run")
    assert (settings.pod_manifest_path, settings.root_dir) == (f"{tmp_path}/m", f"{tmp_path}/r")
    assert settings.run_dir == f"{tmp_path}/run"


def test_an_endpoint_is_a_unix_socket() -> None:
    assert socket_url("unix:///run/x.sock") == socket_url("/run/x.sock") == "unix:///run/x.sock"
    for bad in ("tcp://1.2.3.4:5", "run/x.sock", "unix://", "unix://relative"):
        with pytest.raises(CommandError, match="write unix:///PATH"):
            socket_url(bad)
