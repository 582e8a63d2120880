"""`supervisor config validate` on the configurations of four kinds of real nodes says what will not happen, no more.

`nodes/KIND` has the files and the flags of a kubelet: kubeadm's and k3s' of 1.36, the ones of nodeadm on EKS'
AL2023, and the files of GKE's nodes, as far as they are public. The files that these name are made below a test's
directory, or are missing.
"""

import re
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from supervisor.cli import group
from supervisor.config import missing_files
from tests.kubeletconfig.samples import HEAD

NODES = Path(__file__).parents[1] / "nodes"
NAMED = re.compile(r"(?<=[ =\"])(?=/(?:etc|var|run/systemd)/)")
"""Matches before an absolute path."""
PRESENT = (
    "etc/kubernetes/kubelet.conf",
    "etc/kubernetes/pki/ca.crt",
    "run/systemd/resolve/resolv.conf",
    "etc/srv/kubernetes/pki/ca-certificates.crt",
    "var/lib/kubelet/kubeconfig",
    "var/lib/rancher/k3s/agent/client-ca.crt",
    "var/lib/rancher/k3s/agent/kubelet.kubeconfig",
    "var/lib/rancher/k3s/agent/serving-kubelet.crt",
    "var/lib/rancher/k3s/agent/serving-kubelet.key",
)
MISSING = {
    "kubeadm": [
        "config.yaml:9: authentication.x509.clientCAFile",
        "config.yaml:41: resolvConf",
        "--kubeconfig",
    ],
    "k3s": [
        "kubelet.conf.d/00-k3s-defaults.conf:13: authentication.x509.clientCAFile",
        "kubelet.conf.d/00-k3s-defaults.conf:61: tlsCertFile",
        "kubelet.conf.d/00-k3s-defaults.conf:62: tlsPrivateKeyFile",
        "kubelet.conf.d/00-k3s-defaults.conf:53: resolvConf",
        "--kubeconfig",
    ],
    "eks": ["config.json:5: authentication.x509.clientCAFile", "--kubeconfig"],
    "gke": ["kubelet-config.yaml:8: authentication.x509.clientCAFile", "--kubeconfig"],
}
"""The places of the named files."""


@pytest.fixture(params=["kubeadm", "k3s", "eks", "gke"])
def node(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of a node's files, which is the working directory. Paths in them are below it. Systemd seems to run."""
    monkeypatch.setattr(missing_files, "SYSTEMD", str(tmp_path))
    monkeypatch.setattr(missing_files, "SYSTEM_BUS", str(tmp_path))
    made = shutil.copytree(NODES / request.param, tmp_path / request.param)
    for file in made.rglob("*"):
        if file.is_file():
            file.write_text(NAMED.sub(str(made), file.read_text()))
    (made / "bin").mkdir()
    for plugin in ("ecr-credential-provider", "auth-provider-gcp"):
        (made / "bin" / plugin).touch(mode=0o755)
    monkeypatch.chdir(made)
    return made


def validate(node: Path) -> str:
    done = CliRunner().invoke(group, ["config", "validate", *(node / "flags").read_text().split()])
    assert done.exit_code == 0
    return done.output


def test_validate_says_what_will_not_happen_on_a_node(node: Path) -> None:
    for name in PRESENT:
        (node / name).parent.mkdir(parents=True, exist_ok=True)
        (node / name).touch()
    assert validate(node) == (node / "expected").read_text() + "configuration: valid\n"


def test_validate_warns_of_named_files_that_are_missing(node: Path) -> None:
    *lines, last = validate(node).splitlines()
    assert last == "configuration: valid"
    missing = [line for line in lines if f"{node}/" in line]
    assert [line.partition(f": {node}/")[0] for line in missing] == [f"warning: {at}" for at in MISSING[node.name]]
    assert all("is not there now" in line for line in missing)
    assert [f"{line}\n" for line in lines if line not in missing] == (node / "expected").open().readlines()


def test_validate_asks_for_one_of_the_kubeconfigs(tmp_path: Path) -> None:
    """A node that joins has a bootstrap file only, and a node that has joined may have none."""
    for present in ("kubeconfig", "bootstrap"):
        (tmp_path / present).touch()
        flags = [f"--kubeconfig={tmp_path}/kubeconfig", f"--bootstrap-kubeconfig={tmp_path}/bootstrap"]
        assert CliRunner().invoke(group, ["config", "validate", *flags]).output == "configuration: valid\n"
        (tmp_path / present).unlink()


def test_validate_needs_no_key_that_the_cluster_signs(tmp_path: Path) -> None:
    flags = [f"--tls-cert-file={tmp_path}/a.crt", f"--tls-private-key-file={tmp_path}/a.key"]
    assert "is not there now" in CliRunner().invoke(group, ["config", "validate", *flags]).output
    file = tmp_path / "c.yaml"
    file.write_text(HEAD + "serverTLSBootstrap: true\n")
    done = CliRunner().invoke(group, ["config", "validate", f"--config={file}", *flags])
    assert done.output == "configuration: valid\n"


def test_validate_warns_of_a_resolv_conf_that_is_missing(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(HEAD + f"resolvConf: {tmp_path}/resolv.conf\n")
    done = CliRunner().invoke(group, ["config", "validate", str(file)])
    problem = f"resolvConf: {tmp_path}/resolv.conf is not there now; no pod can start until there is one"
    assert done.output == f"warning: {file}:3: {problem}\n{file}: valid\n"
    (tmp_path / "resolv.conf").symlink_to("/dev/null")
    assert CliRunner().invoke(group, ["config", "validate", str(file)]).output == f"{file}: valid\n"


@pytest.mark.parametrize(("absent", "name"), [("SYSTEMD", "systemd"), ("SYSTEM_BUS", "D-Bus")])
def test_validate_warns_of_a_cgroup_driver_without_systemd(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, absent: str, name: str
) -> None:
    for one in ("SYSTEMD", "SYSTEM_BUS"):
        monkeypatch.setattr(missing_files, one, str(tmp_path / "gone") if one == absent else str(tmp_path))
    output = CliRunner().invoke(group, ["config", "validate", "--cgroup-driver=systemd"]).output
    assert f"cgroupDriver: systemd needs {name}, which does not run here: there is no {tmp_path}/gone" in output
    assert "cgroupDriver" not in CliRunner().invoke(group, ["config", "validate", "--cgroup-driver=cgroupfs"]).output
