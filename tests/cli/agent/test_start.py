"""From a command line of `supervisor start` to settings, with warnings and errors."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from click.testing import CliRunner

from actors._host import system
from actors.node.node_info import node_info
from actors.server.figures.collect import build_info
from proto.agent.settings import Settings, ShutdownGrace
from supervisor.cli import group
from supervisor.cli.agent.kubelet_flags import version_asked
from supervisor.cli.agent.resolve import resolve
from supervisor.cli.agent.runtime import socket_url, with_runtime
from supervisor.cli.agent.start import (
    configuration,
    say,
    settings_of,
)
from supervisor.cli.errors import CommandError
from supervisor.config import missing_files
from supervisor.config.flags.parser import parse
from supervisor.config.kubeletconfig.feature_gates import known
from supervisor.config.kubeletconfig.typed import schema
from supervisor.config.lists.reading import api_types
from supervisor.host import endpoint
from supervisor.supervision.specs import parts_of, why_no_api
from tests.kubeletconfig.samples import KUBEADM

RELEASE = system.KUBELET_VERSION.partition("+")[0]
HEAD = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"


@pytest.fixture
def kubeadm(tmp_path: Path) -> Path:
    """kubeadm's file, with the certificate authority that it names."""
    path, authority = tmp_path / "kubeadm.yaml", tmp_path / "ca.crt"
    authority.touch()
    path.write_text(KUBEADM.replace("/etc/kubernetes/pki/ca.crt", str(authority)))
    return path


def settings(*arguments: str) -> Settings:
    given = parse([*arguments, "--run-dir=/x"])
    return settings_of(configuration(given), given)


@pytest.mark.parametrize(
    ("argument", "attribute", "value"),
    [
        ("--root-dir=/r", "root_dir", "/r"),
        ("--hostname-override=N", "node_name", "n"),
        ("--node-ip=10.0.0.1", "node_ip", "10.0.0.1"),
        ("--pod-manifest-path=/m", "pod_manifest_path", "/m"),
        ("--pod-logs-dir=/l", "pod_logs_dir", "/l"),
        ("--container-logs-dir=/c", "container_logs_dir", "/c"),
        ("--max-pods=7", "max_pods", 7),
        ("--experimental-allocatable-ignore-eviction", "allocatable_ignores_eviction", True),
        ("--pods-per-core=1000", "max_pods", 110),
        ("--pod-max-pids=-1", "pod_pids_limit", -1),
        ("--sync-frequency=1m30s", "sync_frequency_s", 90.0),
        ("--cpu-cfs-quota-period=50ms", "cpu_cfs_quota_period_us", 50_000),
        ("--cpu-cfs-quota=false", "cpu_cfs_quota", False),
        ("--cgroup-root=/a", "cgroup_root", "/a"),
        ("--cluster-dns=10.0.0.10,10.0.0.11", "cluster_dns", ("10.0.0.10", "10.0.0.11")),
        ("--eviction-hard=memory.available<1Gi", "eviction_hard", {"memory.available": "1Gi"}),
        ("--minimum-image-ttl-duration=0s", "image_minimum_gc_age_s", 0.0),
        ("--minimum-container-ttl-duration=1m", "container_gc_min_age_s", 60.0),
        ("--maximum-dead-containers-per-container=2", "container_gc_max_per_pod_container", 2),
        ("--maximum-dead-containers=100", "container_gc_max_containers", 100),
        ("--protect-images=a:1,registry.test/*", "protected_images", ("a:1", "registry.test/*")),
        ("--collect-local-images", "collect_local_images", True),
        ("--logging-format=json", "log_format", "json"),
        ("--max-pods=110", "verbosity", 2),
        ("-v0", "verbosity", 0),
        ("-v4", "verbosity", 4),
        ("--max-pods=110", "container_runtime_endpoint", ""),
        (
            "--container-runtime-endpoint=unix:///run/containerd/containerd.sock",
            "container_runtime_endpoint",
            "unix:///run/containerd/containerd.sock",
        ),
    ],
)
def test_flag_sets_a_setting(argument: str, attribute: str, value: object) -> None:
    assert getattr(settings(argument), attribute) == value


@pytest.mark.needs("root")
def test_without_flags_the_settings_are_the_defaults() -> None:
    found = settings("--hostname-override=n")
    assert found == Settings(run_dir="/x", node_name="n", make_iptables_util_chains=False)  # made in a cluster


def test_flags_win_over_the_file_for_their_fields_only(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(HEAD + "maxPods: 20\nsyncFrequency: 5s\ncrashLoopBackOff: {maxContainerRestartPeriod: 30s}\n")
    found = settings(f"--config={file}", "--max-pods=30")
    assert (found.max_pods, found.sync_frequency_s, found.crash_loop_max_back_off_s) == (30, 5.0, 30.0)


def test_paths_of_flags_are_relative_to_the_working_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    given = parse(["--pod-manifest-path=m", "--root-dir=r", "--run-dir=run"])
    found = settings_of(configuration(given), given)
    assert (found.pod_manifest_path, found.root_dir) == (f"{tmp_path}/m", f"{tmp_path}/r")
    assert found.run_dir == f"{tmp_path}/run"


def test_node_name_is_the_kubelets(monkeypatch: pytest.MonkeyPatch) -> None:
    class Host:
        nodename = "Node-A.Example"

    monkeypatch.setattr("os.uname", lambda: Host)
    assert settings().node_name == "node-a.example"
    assert settings("--hostname-override= B ").node_name == "b"
    Host.nodename = ""
    with pytest.raises(CommandError, match="--hostname-override"):
        settings()


def test_an_endpoint_is_a_unix_socket() -> None:
    for good in ("unix:///run/x.sock", "unix:/run/x.sock", "/run/x.sock"):
        assert socket_url(good) == "unix:///run/x.sock"
    for bad in ("tcp://1.2.3.4:5", "run/x.sock", "unix:", "unix://", "unix://relative", "unix:relative"):
        with pytest.raises(CommandError, match="write unix:///PATH"):
            socket_url(bad)


def test_embedded_runtime_is_used_without_another(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    def none() -> None:
        raise endpoint.NoRuntime("cannot find a container runtime: none. Install one")

    monkeypatch.setattr(endpoint, "find", none)
    caplog.set_level(logging.INFO)
    settings = Settings(run_dir="/r", root_dir=str(tmp_path))
    assert with_runtime(settings).container_runtime_endpoint == "unix:///r/cri.sock"
    assert "embedded" in caplog.text
    assert "cannot" not in caplog.text


def test_embedded_runtime_can_be_configured() -> None:
    found = with_runtime(Settings(run_dir="/r", container_runtime_endpoint="embedded"))
    assert found.container_runtime_endpoint == "unix:///r/cri.sock"
    configuration(parse(["--container-runtime-endpoint=embedded"]))


@pytest.mark.parametrize(("told", "used"), [("systemd", "systemd"), ("cgroupfs", "cgroupfs"), ("", "cgroupfs")])
def test_runtimes_cgroup_driver_wins(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture, told: str, used: str
) -> None:
    socket = tmp_path / "cri.sock"
    socket.touch()
    asked: list[str] = []

    def find(*endpoints: str) -> endpoint.Runtime:
        asked.extend(endpoints)
        return endpoint.Runtime(f"unix://{socket}", "containerd", "2.1", "v1", told)

    monkeypatch.setattr(endpoint, "find", find)
    with caplog.at_level(logging.INFO):
        assert with_runtime(Settings(root_dir=str(tmp_path))).cgroup_driver == used
        given = Settings(root_dir=str(tmp_path), container_runtime_endpoint=str(socket))
        assert with_runtime(given).cgroup_driver == used
    assert asked == [f"unix://{socket}"]
    assert any("the container runtime's, not cgroupfs (cgroupDriver)" in line for line in caplog.messages) is (
        used == "systemd"
    )


def test_missing_or_mute_runtime_leaves_the_configured_driver(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def none(*_: str) -> None:
        raise endpoint.NoRuntime("no answer")

    monkeypatch.setattr(endpoint, "find", none)
    settings = Settings(
        root_dir=str(tmp_path), cgroup_driver="systemd", container_runtime_endpoint=f"{tmp_path}/cri.sock"
    )
    assert with_runtime(settings).cgroup_driver == "systemd"
    assert "cgroup driver" not in caplog.text
    (tmp_path / "cri.sock").touch()
    assert with_runtime(settings).cgroup_driver == "systemd"
    assert "cannot ask the container runtime for its cgroup driver: no answer" in caplog.text


# Messages


def said(caplog: pytest.LogCaptureFixture, *arguments: str) -> list[str]:
    given = parse(arguments)
    with caplog.at_level(logging.WARNING):
        say(configuration(given), given)
    return caplog.messages


def test_ineffective_setting_is_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    lines = said(
        caplog,
        "--boot-id-file=/b",
        "--experimental-mounter-path=",
        "--enable-load-reader=false",
        "--storage-driver-password=s3cret",
        "--pod-infra-container-image=pause",
        "--port=10251",
    )
    assert [line.split(":")[0] for line in lines] == [
        "--pod-infra-container-image",
        "--boot-id-file",
        "--storage-driver-password",
    ]
    assert "s3cret" not in caplog.text


def test_deprecated_flags_are_warned_of(capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture) -> None:
    said(caplog, "--max-pods=3", "--root-dir=/r", "--maximum-dead-containers=1")
    assert capsys.readouterr().err.splitlines() == [
        "Flag --max-pods has been deprecated, set maxPods in the file of --config instead",
        "Flag --maximum-dead-containers has been deprecated, eviction thresholds take its place",
    ]


@pytest.mark.parametrize(
    ("arguments", "messages"),
    [
        (["--max-pods=-1", "--cluster-domain=x y"], ["--max-pods: maxPods: ", "--cluster-domain: clusterDomain: "]),
        (["--cloud-provider=aws"], ["--cloud-provider: must be external or empty"]),
        (["--exit-on-lock-contention"], ["--exit-on-lock-contention: needs --lock-file"]),
        (["--bootstrap-kubeconfig=/b"], ["--bootstrap-kubeconfig: needs --kubeconfig"]),
        (["--node-labels=kubernetes.io/x=y"], ["--node-labels"]),
        (["--node-ip=host"], ["--node-ip: must be an IP address, or one IPv4 and one IPv6 address: 'host' does"]),
        (["--node-ip=192.0.2.1,192.0.2.2"], ["--node-ip: must be one IP address"]),
        (["--node-ip=192.0.2.1,::"], ["--node-ip: must not have 0.0.0.0 or :: in a pair"]),
        (["--runtime-cgroups=/."], ["--runtime-cgroups: must be a cgroup below the root"]),
        (["--config=/nowhere"], ["/nowhere: does not exist"]),
        (["--config=/"], ["/: is a directory"]),
        (["--config-dir=/nowhere"], ["/nowhere: cannot be read: No such file or directory"]),
        (["--config-dir=/etc/hostname"], ["/etc/hostname: cannot be read: Not a directory"]),
        (["--unknown"], ["unknown flag: --unknown", "start [FLAG]..."]),
        (["stray"], ["unknown argument 'stray': no flag and no actor; there are certificates,", "Usage:"]),
        (["--v=2", "stray"], ["unknown argument 'stray': only flags are accepted", "Usage:"]),
        (["--container-runtime=docker"], ["cri-dockerd"]),
        (["--version=soon"], ["'--version' flag"]),
        (
            ["--version=v1.35.9-vendor.1"],
            [f"--version: cannot report 'v1.35.9-vendor.1': write {RELEASE}, or {RELEASE} with"],
        ),
        ([f"--version={RELEASE}-"], [f"--version: cannot report '{RELEASE}-'"]),
        ([f"--version={RELEASE}-a..b"], [f"--version: cannot report '{RELEASE}-a..b'"]),
        (["--runonce"], ["--runonce: runOnce: the kubelet's run-once mode was removed", "--run-once"]),
        (["--run-once", "--run-once-timeout=soon"], ["--run-once-timeout"]),
    ],
)
def test_errors_are_printed_with_exit_code_1(runner: CliRunner, arguments: list[str], messages: list[str]) -> None:
    done = runner.invoke(group, ["start", *arguments])
    assert done.exit_code == 1
    for message in messages:
        assert message in done.output


def test_the_version_is_printed(runner: CliRunner) -> None:
    done = runner.invoke(group, ["start", "--version"])
    assert (done.exit_code, done.output.split()[:2]) == (0, ["supervisor,", "version"])


def test_version_of_this_release_is_reported_instead_of_printed() -> None:
    given = parse([f"--version={RELEASE}-vendor.1+build", "--run-dir=/x"])
    chosen = settings_of(configuration(given), given).kubelet_version
    assert (version_asked(given), chosen) == (False, f"{RELEASE}-vendor.1+build")
    assert node_info("", chosen)["kubeletVersion"] == chosen
    assert build_info(chosen)[:3] == (*RELEASE.removeprefix("v").split(".")[:2], chosen)


@pytest.mark.parametrize("chosen", ["", "v1.37.0"])
def test_other_release_reports_its_own_version(chosen: str) -> None:
    """An upgrade keeps the command line, whose version may be one of the former release."""
    assert node_info("", chosen)["kubeletVersion"] == system.KUBELET_VERSION


def test_the_help_is_grouped_and_shows_every_flag(runner: CliRunner) -> None:
    done = runner.invoke(group, ["start", "-h"])
    assert done.exit_code == 0
    for text in ("\nNode:\n", "\nEviction:\n", "--max-pods N", "[default: 110]", "-v, --v N", "--storage-driver-table"):
        assert text in done.output
    assert all(len(line) <= 100 for line in done.output.splitlines())


# `supervisor config`


def test_kubeadm_file_is_valid_and_shown_unchanged(
    runner: CliRunner, kubeadm: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a machine with systemd and systemd-resolved, as kubeadm expects."""
    for there in ("SYSTEMD", "SYSTEM_BUS"):
        monkeypatch.setattr(missing_files, there, str(kubeadm))
    kubeadm.write_text(kubeadm.read_text().replace("/run/systemd/resolve/resolv.conf", str(kubeadm)))
    assert runner.invoke(group, ["config", "validate", str(kubeadm)]).output == f"{kubeadm}: valid\n"
    done = runner.invoke(group, ["config", "show", "--config", str(kubeadm)])
    shown, written = yaml.safe_load(done.output), yaml.safe_load(kubeadm.read_text())
    assert done.exit_code == 0
    assert_agrees(shown, written)
    found = settings(f"--config={kubeadm}")
    assert (found.cgroup_driver, found.cluster_dns) == ("systemd", ("10.96.0.10",))
    assert found.sync_frequency_s == 60.0


def assert_agrees(shown: Any, written: Any) -> None:
    """Explicit values are shown, except zeros, which mean the default."""
    for key, value in written.items():
        if isinstance(value, dict):
            assert_agrees(shown.get(key, {}), value)
        elif value not in ("0s", 0, "0", ""):
            assert shown[key] == value


def test_sources_are_shown_beside_the_values(runner: CliRunner, tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(HEAD + "maxPods: 20\nevictionHard:\n  memory.available: 1Gi\n")
    arguments = ["config", "show", "--sources", "--config", str(file), "--cluster-dns=10.0.0.1,10.0.0.2", "-v4"]
    lines = runner.invoke(group, arguments).output.splitlines()
    assert f"maxPods: 20  # {file}:3" in lines
    assert f"  memory.available: 1Gi  # {file}:5" in lines
    assert "clusterDNS: [10.0.0.1, 10.0.0.2]  # --cluster-dns" in lines
    assert "  verbosity: 4  # --v" in lines
    assert "syncFrequency: 1m0s  # default" in lines
    shown = json.loads(runner.invoke(group, [*arguments, "-o", "json"]).output)
    assert shown["configuration"]["maxPods"] == 20
    assert shown["sources"]["clusterDNS"] == "--cluster-dns"


def test_shown_yaml_is_an_equal_configuration(runner: CliRunner, kubeadm: Path, tmp_path: Path) -> None:
    first = runner.invoke(group, ["config", "show", "--sources", "--config", str(kubeadm), "--max-pods=9"]).output
    (tmp_path / "again.yaml").write_text(first)
    second = runner.invoke(group, ["config", "show", "--config", str(tmp_path / "again.yaml")]).output
    assert yaml.safe_load(second) == yaml.safe_load(first)


def test_every_invalid_file_is_reported_with_every_line(runner: CliRunner, tmp_path: Path) -> None:
    good, bad = tmp_path / "good.yaml", tmp_path / "bad.yaml"
    good.write_text(HEAD)
    bad.write_text(HEAD + "maxPod: 3\nsyncFrequency: soon\n")
    done = runner.invoke(group, ["config", "validate", str(good), str(bad), str(tmp_path / "none.yaml")])
    assert done.exit_code == 1
    assert f"{good}: valid" in done.output
    assert f"{bad}:3: maxPod: unknown field" in done.output
    assert f"{bad}:4: syncFrequency: " in done.output
    assert f"{tmp_path}/none.yaml: does not exist" in done.output
    assert "2 of 3 files cannot be used" in done.output


def test_reload_warns_of_what_validate_refuses(runner: CliRunner, tmp_path: Path) -> None:
    file = tmp_path / "kubelet.yaml"
    file.write_text(HEAD + "maxPod: 3\nmaxPods: 4\nmaxPods: 5\n")
    found = resolve([f"--config={file}"])
    assert found.candidate is not None
    assert found.candidate.settings.max_pods == 5
    assert found.notes == (
        f"{file}:3: maxPod: unknown field, did you mean maxPods?",
        f"{file}:5: maxPods: the key is there twice, first on line 4; the last value counts",
    )
    done = runner.invoke(group, ["config", "validate", str(file)])
    assert done.exit_code == 1
    assert all(note in done.output for note in found.notes)


def test_url_is_a_source_of_pods() -> None:
    given = parse(["--manifest-url=http://h/p", "--manifest-url-header=X:a,X:b", "--http-check-frequency=7s"])
    found = settings_of(configuration(given), given)
    assert found.pod_sources == ("file", "http")
    assert (found.static_pod_url, found.static_pod_url_header) == ("http://h/p", {"X": ("a", "b")})
    assert found.http_check_frequency_s == 7.0


def test_header_values_are_not_shown(runner: CliRunner) -> None:
    done = runner.invoke(group, ["config", "show", "--manifest-url=http://a/b", "--manifest-url-header=X:s3cret"])
    assert "<masked>" in done.output
    assert "s3cret" not in done.output


def test_fields_are_listed_with_what_they_do(runner: CliRunner) -> None:
    lines = runner.invoke(group, ["config", "fields"]).output.splitlines()
    assert len(lines) == 1 + len(schema.leaves())
    (line,) = runner.invoke(group, ["config", "fields", "MAXPODS"]).output.splitlines()[1:]
    assert line.split()[:5] == ["maxPods", "int32", "110", "--max-pods", "effective"]
    readers = ["pod_workers,", "resources,", "eviction,", "volume,", "node"]
    assert line.split()[5:] == [*readers, "pod_workers/admission/test_allocatable.py"]
    (row,) = json.loads(runner.invoke(group, ["config", "fields", "clusterDNS", "-o", "json"]).output)
    assert (row["type"], row["default"], row["flag"]) == ("list of string", None, "--cluster-dns")


def test_gates_are_listed_with_their_verdicts(runner: CliRunner) -> None:
    lines = runner.invoke(group, ["config", "fields", "--gates"]).output.splitlines()
    assert len(lines) == 1 + len(known())
    (line,) = runner.invoke(group, ["config", "fields", "--gates", "CSIVOLUMEHEALTH"]).output.splitlines()[1:]
    assert line.split()[:5] == ["CSIVolumeHealth", "alpha", "false", "not", "built"]
    (row,) = json.loads(runner.invoke(group, ["config", "fields", "--gates", "NodeSwap", "-o", "json"]).output)
    assert (row["stage"], row["default"], row["here"]) == ("GA, locked", True, "graduated, built")


def test_fields_of_objects_are_listed_with_their_verdicts(runner: CliRunner) -> None:
    lines = runner.invoke(group, ["config", "fields", "--api"]).output.splitlines()
    assert len(lines) == 1 + sum(map(len, api_types().values()))
    (row,) = json.loads(runner.invoke(group, ["config", "fields", "--api", "Spec.HOSTUSERS", "-o", "json"]).output)
    assert row == {"field": "PodSpec.hostUsers", "here": "built", "why": "", "test": "pod_workers/test_userns.py"}


def test_validate_refuses_a_gate_that_is_not_built(runner: CliRunner, tmp_path: Path) -> None:
    file = tmp_path / "k.yaml"
    file.write_text(
        "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
        "featureGates:\n  EnvFiles: false\n  CSIVolumeHealth: true\n"
    )
    done = runner.invoke(group, ["config", "validate", str(file)])
    assert done.exit_code == 1
    assert f"{file}:5: featureGates.CSIVolumeHealth: cannot set feature gate CSIVolumeHealth to true" in done.output
    file.write_text(file.read_text().replace("CSIVolumeHealth", "TopologyManagerPolicyBetaOptions"))
    done = runner.invoke(group, ["config", "validate", str(file)])
    assert done.exit_code == 0
    assert f"warning: {file}:4: featureGates.EnvFiles: has no effect: EnvFiles cannot be switched off" in done.output
    assert f"warning: {file}:5: featureGates.TopologyManagerPolicyBetaOptions: has no effect: no option" in done.output


def test_config_show_needs_an_agent_or_flags(runner: CliRunner, run_dir: Path) -> None:
    done = runner.invoke(group, ["config", "show", "--run-dir", str(run_dir)])
    assert done.exit_code == 1
    assert "start the agent, or give flags" in done.output


# Completion


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script(runner: CliRunner, shell: str) -> None:
    done = runner.invoke(group, ["completion", shell])
    assert done.exit_code == 0
    assert f"_SUPERVISOR_COMPLETE={shell}_complete" in done.output


@pytest.mark.parametrize(
    ("words", "word", "expected"),
    [
        ("supervisor start --image-gc", 2, {"--image-gc-high-threshold", "--image-gc-low-threshold"}),
        ("supervisor start --max-pods 3 --image-gc", 4, {"--image-gc-high-threshold", "--image-gc-low-threshold"}),
        ("supervisor start --cpu-cfs-quota --topology-manager-s", 3, {"--topology-manager-scope"}),
        ("supervisor config sh", 2, {"show"}),
        ("supervisor completion f", 2, {"fish"}),
    ],
)
def test_flags_are_completed(runner: CliRunner, words: str, word: int, expected: set[str]) -> None:
    environment = {"_SUPERVISOR_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(word)}
    done = runner.invoke(group, env=environment, prog_name="supervisor")
    assert {line.split(",")[1] for line in done.output.split()} == expected


@pytest.mark.parametrize(
    ("given", "address"),
    [
        ("10260", "127.0.0.1:10260"),
        (":10260", "127.0.0.1:10260"),
        ("0.0.0.0:80", "0.0.0.0:80"),
        ("[::1]:10260", "[::1]:10260"),
    ],
)
def test_page_is_on_loopback_without_an_address(given: str, address: str) -> None:
    assert settings(f"--page-address={given}").page_address == address


@pytest.mark.parametrize(
    ("flags", "made"),
    [
        ((), False),
        (("--make-iptables-util-chains",), True),
        (("--kubeconfig=/k",), True),
        (("--kubeconfig=/k", "--make-iptables-util-chains=false"), False),
    ],
)
def test_iptables_chains_are_made_in_a_cluster_or_where_written(flags: tuple[str, ...], made: bool) -> None:
    assert settings(*flags).make_iptables_util_chains is made


@pytest.mark.parametrize("gate", [True, False])
def test_provider_with_tokens_needs_its_feature_gate(tmp_path: Path, gate: bool) -> None:
    attributes = {"serviceAccountTokenAudience": "r", "cacheType": "Token", "requireServiceAccount": False}
    provider = {"name": "p", "apiVersion": "credentialprovider.kubelet.k8s.io/v1", "matchImages": ["r.io"]}
    provider |= {"defaultCacheDuration": "0s", "tokenAttributes": attributes}
    config = {"apiVersion": "kubelet.config.k8s.io/v1", "kind": "CredentialProviderConfig", "providers": [provider]}
    (tmp_path / "providers").write_text(json.dumps(config))
    (tmp_path / "p").touch(0o755)
    flags = [
        f"--image-credential-provider-config={tmp_path}/providers",
        f"--image-credential-provider-bin-dir={tmp_path}",
        f"--feature-gates=KubeletServiceAccountTokenForCredentialProviders={gate}",
    ]
    if gate:
        assert settings(*flags).image_credential_provider_bin_dir == str(tmp_path)
    else:
        with pytest.raises(CommandError, match=r"providers\[p\]: tokenAttributes: requires feature gate"):
            settings(*flags)


@pytest.mark.parametrize("given", ["x", "1.2.3.4", "host:80", "127.0.0.1:0", "127.0.0.1:70000", ":", "[::1]"])
def test_invalid_page_address_is_refused(given: str) -> None:
    with pytest.raises(CommandError, match="--page-address"):
        settings(f"--page-address={given}")


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({}, set()),
        ({"page_address": "10260"}, {"server"}),
        ({"objects_dir": "/objects"}, {"objects"}),
        ({"shutdown_grace": (ShutdownGrace(priority=0, grace_s=5),)}, {"node"}),
        ({"pod_cidr": "10.1.0.0/24"}, {"node"}),
        ({"make_iptables_util_chains": True}, {"node"}),
        ({"kubeconfig": "/k"}, {"objects", "node", "server"}),
        ({"kubeconfig": "/k", "rotate_certificates": True}, {"objects", "node", "server", "certificates"}),
    ],
)
def test_optional_processes_run_where_they_have_work(changes: dict[str, Any], parts: set[str]) -> None:
    assert parts_of(msgspec.structs.replace(settings(), **changes)) == parts


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, "authorization.mode is Webhook"),
        ({"client_ca_file": "/ca.crt"}, "authorization.mode is Webhook"),
        ({"authorization_mode": "AlwaysAllow"}, "authentication.x509.clientCAFile"),
        ({"authorization_mode": "AlwaysAllow", "client_ca_file": "/ca.crt"}, ""),
        ({"authorization_mode": "AlwaysAllow", "anonymous_auth": True}, ""),
        ({"kubeconfig": "/kubeconfig"}, ""),
        ({"enable_server": False}, ""),
    ],
)
def test_unusable_api_is_not_served_and_the_reason_given(changes: dict[str, Any], words: str) -> None:
    given = msgspec.structs.replace(settings(), **changes)
    assert (words in why_no_api(given)) if words else not why_no_api(given)
    assert ("server" in parts_of(given)) == (not words and given.enable_server)
