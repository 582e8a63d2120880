"""The files a private containerd starts from: its own configuration and its pods' network."""

import json
from pathlib import Path

from tests.containerd.images import PAUSE
from tests.containerd.requirements import can_lower_oom_score, cni_dir, containerd_version

_UNNEEDED = (
    "io.containerd.snapshotter.v1.aufs",
    "io.containerd.snapshotter.v1.blockfile",
    "io.containerd.snapshotter.v1.btrfs",
    "io.containerd.snapshotter.v1.devmapper",
    "io.containerd.snapshotter.v1.erofs",
    "io.containerd.snapshotter.v1.zfs",
    "io.containerd.internal.v1.restart",
    "io.containerd.monitor.container.v1.restart",
    "io.containerd.internal.v1.tracing",
    "io.containerd.tracing.processor.v1.otlp",
)
"""Of any version; containerd passes over names that it does not know."""


def write_config(directory: Path, socket: Path, snapshotter: str, *, systemd: bool = False) -> Path:
    """Write config.toml for a containerd that keeps all it has under `directory`; its path.

    `systemd`: containers are in systemd's scopes.
    """
    version = containerd_version()
    cri = _cri_2(directory, snapshotter, version) if version >= (2, 0) else _cri_1(directory, snapshotter)
    cri = cri.replace('/runc"\n', f'/runc"\nSystemdCgroup = {str(systemd).lower()}\n')
    text = f"""\
version = {3 if version >= (2, 0) else 2}
root = "{directory}/root"
state = "{directory}/state"
disabled_plugins = {json.dumps(_UNNEEDED)}

[grpc]
  address = "{socket}"

[plugins."io.containerd.internal.v1.opt"]
  path = "{directory}/opt"

{cri}"""
    path = directory / "config.toml"
    path.write_text(text)
    return path


def _cri_1(directory: Path, snapshotter: str) -> str:
    """Return the CRI part of a configuration of version 2, for containerd 1.6 and 1.7."""
    return f"""\
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE}"
  restrict_oom_score_adj = {_restrict_oom_score()}
  netns_mounts_under_state_dir = true
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "{snapshotter}"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        Root = "{directory}/runc"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{cni_dir()}"
    conf_dir = "{directory}/net.d"
  [plugins."io.containerd.grpc.v1.cri".registry]
    config_path = "{directory}/registries"
"""


def _cri_2(directory: Path, snapshotter: str, version: tuple[int, int]) -> str:
    """The same by a configuration of version 3. What 2.x would share with the machine's containerd by itself (NRI's
    socket, CDI's directories, verifiers of images) is the instance's own, or off."""
    bin_dirs = f'bin_dirs = ["{cni_dir()}"]' if version >= (2, 1) else f'bin_dir = "{cni_dir()}"'
    return f"""\
[plugins."io.containerd.nri.v1.nri"]
  disable = true

[plugins."io.containerd.image-verifier.v1.bindir"]
  bin_dir = "{directory}/verifiers"

[plugins."io.containerd.cri.v1.images"]
  snapshotter = "{snapshotter}"
  [plugins."io.containerd.cri.v1.images".pinned_images]
    sandbox = "{PAUSE}"
  [plugins."io.containerd.cri.v1.images".registry]
    config_path = "{directory}/registries"

[plugins."io.containerd.cri.v1.runtime"]
  restrict_oom_score_adj = {_restrict_oom_score()}
  netns_mounts_under_state_dir = true
  cdi_spec_dirs = ["{directory}/cdi"]
  [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
      Root = "{directory}/runc"
  [plugins."io.containerd.cri.v1.runtime".cni]
    {bin_dirs}
    conf_dir = "{directory}/net.d"
"""


def _restrict_oom_score() -> str:
    return str(not can_lower_oom_score()).lower()


def write_network(directory: Path, name: str, subnet: str, *, host_ports: bool = False) -> None:
    """Write the CNI configuration of a bridge called `name`, which is also the network's name, with pods in `subnet`.

    The node reaches the pods, and they reach the node. There is no masquerading: iptables stay untouched, except
    for `host_ports`.
    """
    bridge = {
        "type": "bridge",
        "bridge": name,
        "isGateway": True,
        "ipMasq": False,
        "ipam": {
            "type": "host-local",
            "dataDir": f"{directory}/ipam",
            "ranges": [[{"subnet": subnet}]],
            "routes": [{"dst": "0.0.0.0/0"}],
        },
    }
    plugins: list[dict[str, object]] = [bridge]
    if host_ports:
        plugins.append({"type": "portmap", "capabilities": {"portMappings": True}, "snat": False})
    net_d = directory / "net.d"
    net_d.mkdir(exist_ok=True)
    (net_d / "10-pods.conflist").write_text(json.dumps({"cniVersion": "1.0.0", "name": name, "plugins": plugins}))
