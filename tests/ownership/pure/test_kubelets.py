"""Kubelets and the directories that their command lines name."""

from __future__ import annotations

import pytest

from supervisor.ownership.kubelets import Kubelet, recognize

FOUND = {
    "plain": ("kubelet", ["/usr/bin/kubelet"], Kubelet("kubelet")),
    "flags": (
        "kubelet",
        ["kubelet", "--root-dir=/a", "--cgroup_root", "/b", "--cgroup-driver=systemd", "--config", "/c", "--v=2"],
        Kubelet("kubelet", "/a", "/b", "systemd", "/c"),
    ),
    "lock file": ("kubelet", ["kubelet", "--lock-file=/l", "--root-dir="], Kubelet("kubelet", lock_file="/l")),
    "by name only": ("kubelet", [], Kubelet("kubelet")),
    "started by another name": ("exe", ["/opt/kubelet", "--root-dir=/a"], Kubelet("kubelet", "/a")),
    "k3s by its title": ("k3s-server", ["/usr/local/bin/k3s server"], Kubelet("k3s")),
    "k3s with flags": (
        "k3s",
        ["k3s", "agent", "--kubelet-arg=root-dir=/a", "--kubelet-arg", "cgroup-root=/b"],
        Kubelet("k3s", "/a", "/b"),
    ),
    "rke2": ("rke2", ["/usr/bin/rke2", "agent"], Kubelet("rke2")),
    "k0s worker": ("k0s", ["/usr/bin/k0s", "worker"], Kubelet("k0s", "/var/lib/k0s/kubelet")),
    "k0s alone": ("k0s", ["k0s", "controller", "--single"], Kubelet("k0s", "/var/lib/k0s/kubelet")),
    "microk8s": ("kubelite", ["kubelite"], Kubelet("kubelite", "/var/snap/microk8s/common/var/lib/kubelet")),
    "k3s as a client": ("k3s", ["k3s", "kubectl", "get", "pods"], None),
    "k3s without a kubelet": ("k3s", ["k3s", "server", "--disable-agent"], None),
    "k0s without a worker": ("k0s", ["k0s", "controller"], None),
    "an editor": ("vim", ["vim", "kubelet"], None),
    "a kernel thread": ("kthreadd", [], None),
    "a hostile line": ("sh", ["\udcff" * 1000, "--root-dir"], None),
    "a flag without its value": ("kubelet", ["kubelet", "--root-dir"], Kubelet("kubelet")),
}


@pytest.mark.parametrize(("comm", "arguments", "expected"), FOUND.values(), ids=FOUND)
def test_kubelet_is_known_by_its_name_and_its_flags(comm: str, arguments: list[str], expected: Kubelet | None) -> None:
    assert recognize(comm, arguments) == expected
