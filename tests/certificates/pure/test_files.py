"""The kubelet's files: certificates in --cert-dir, and the kubeconfig that names them."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest
import yaml

from actors._kube.connection.credentials import Credentials
from actors._kube.connection.kubeconfig import KubeconfigError, load
from actors.certificates import kubeconfig
from actors.certificates.store import Store
from tests.kube.test_credentials import Clock

DAY = 86_400.0


def test_current_certificate_links_to_a_dated_root_only_file(tmp_path: Path) -> None:
    store = Store(str(tmp_path / "pki"), "kubelet-client")
    assert store.read() == b""
    written = store.replace(b"CERT\n", "KEY\n", 1_700_000_000)
    dated = tmp_path / "pki" / "kubelet-client-2023-11-14-22-13-20.pem"
    assert store.current == tmp_path / "pki" / "kubelet-client-current.pem"
    assert store.current.readlink() == dated
    assert store.read() == written == dated.read_bytes() == b"CERT\nKEY\n"
    assert stat.S_IMODE(dated.stat().st_mode) == 0o600


def test_previous_certificate_is_kept_and_older_ones_removed(tmp_path: Path) -> None:
    store, other = Store(str(tmp_path), "kubelet-client"), Store(str(tmp_path), "kubelet-server")
    other.replace(b"S", "S", 0)
    for day in range(4):
        store.replace(b"CERT%d" % day, "KEY", day * DAY)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == [
        "kubelet-client-1970-01-03-00-00-00.pem", "kubelet-client-1970-01-04-00-00-00.pem",
        "kubelet-client-current.pem", "kubelet-server-1970-01-01-00-00-00.pem", "kubelet-server-current.pem",
    ]  # fmt: skip
    assert store.read() == b"CERT3\nKEY"


def test_request_key_survives_a_kill_until_the_certificate(tmp_path: Path) -> None:
    Store(str(tmp_path), "kubelet-client").keep_key("K")
    store = Store(str(tmp_path), "kubelet-client")
    assert store.pending_key() == "K"
    store.replace(b"C", "K", 0)
    assert store.pending_key() == ""


def bootstrap(tmp_path: Path) -> Path:
    path = tmp_path / "bootstrap.json"
    cluster = {"server": "https://api:6443", "certificate-authority": "ca.crt"}
    path.write_text(
        json.dumps(
            {
                "current-context": "x",
                "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
                "clusters": [{"name": "c", "cluster": cluster}, {"name": "other", "cluster": cluster}],
                "users": [{"name": "u", "user": {"token": "t"}}, {"name": "v", "user": {"token": "w"}}],
            }
        )
    )
    return path


def test_bootstrapped_kubeconfig_names_certificate_and_cluster(tmp_path: Path) -> None:
    made = tmp_path / "etc" / "kubelet.conf"
    kubeconfig.write(str(made), kubeconfig.bootstrapped(load(str(bootstrap(tmp_path))), "/pki/current.pem"))
    access = load(str(made))
    assert (access.cluster.server, access.cluster.certificate_authority) == (
        "https://api:6443",
        str(tmp_path / "ca.crt"),
    )
    assert access.user.client_certificate == access.user.client_key == "/pki/current.pem"
    assert access.user.token == ""
    assert stat.S_IMODE(made.stat().st_mode) == 0o600


def test_written_kubeconfig_has_a_line_for_each_field(tmp_path: Path) -> None:
    """As from kubeadm and client-go: operators change `server:` by sed, and Ansible's lineinfile finds it."""
    made = tmp_path / "kubelet.conf"
    kubeconfig.write(str(made), kubeconfig.bootstrapped(load(str(bootstrap(tmp_path))), "/pki/current.pem"))
    lines = made.read_text().splitlines()
    assert lines[:5] == ["apiVersion: v1", "kind: Config", "clusters:", "- name: default-cluster", "  cluster:"]
    assert "    server: https://api:6443" in lines
    assert "    client-certificate: /pki/current.pem" in lines


def test_changed_kubeconfig_stays_yaml_in_its_order(tmp_path: Path) -> None:
    path = tmp_path / "kubelet.conf"
    text = (
        "kind: Config\napiVersion: v1\ncurrent-context: x\n"
        "clusters:\n- cluster:\n    server: https://api:6443\n    certificate-authority-data: " + "QUFB" * 100 + "\n"
        "  name: c\ncontexts:\n- context:\n    cluster: c\n    user: u\n  name: x\n"
        "users:\n- name: u\n  user:\n    client-certificate-data: QQ==\n    client-key-data: QQ==\n"
    )
    path.write_text(text)
    kubeconfig.write(str(path), kubeconfig.pointed_at(str(path), "/c.pem"))
    wanted = text.replace("client-certificate-data: QQ==", "client-certificate: /c.pem")
    assert path.read_text() == wanted.replace("client-key-data: QQ==", "client-key: /c.pem")


def test_operators_kubeconfig_keeps_all_but_credentials(tmp_path: Path) -> None:
    path = bootstrap(tmp_path)
    before = json.loads(path.read_text())
    kubeconfig.write(str(path), kubeconfig.pointed_at(str(path), "/c.pem"))
    after = yaml.safe_load(path.read_text())
    assert after["users"][0]["user"] == {"client-certificate": "/c.pem", "client-key": "/c.pem"}
    after["users"][0] = before["users"][0]
    assert after == before


@pytest.mark.parametrize("text", ["", "[]", "{a", '{"current-context": "x", "contexts": []}'])
def test_a_kubeconfig_that_cannot_be_changed_says_so(tmp_path: Path, text: str) -> None:
    path = tmp_path / "k"
    path.write_text(text)
    with pytest.raises(KubeconfigError, match="cannot change the kubeconfig"):
        kubeconfig.pointed_at(str(path), "/c.pem")


def test_clients_follow_the_link_to_the_next_certificate(tmp_path: Path) -> None:
    store = Store(str(tmp_path / "pki"), "kubelet-client")
    store.replace(b"ONE", "KEY1", 0)
    path = tmp_path / "k"
    kubeconfig.write(str(path), kubeconfig.bootstrapped(load(str(bootstrap(tmp_path))), str(store.current)))
    who = Credentials(load(str(path)), Clock())
    assert who.current().certificate == b"ONE\nKEY1"
    store.replace(b"TWO", "KEY2", 1)
    assert who.current().certificate == b"TWO\nKEY2"
