"""The files a private containerd starts from: its own configuration and its pods' network."""

import json
from pathlib import Path

from tests.containerd.images import PAUSE
from tests.containerd.requirements import can_lower_oom_score, cni_dir

_UNNEEDED = (
    "io.containerd.snapshotter.v1.aufs",
    "io.containerd.snapshotter.v1.btrfs",
    "io.containerd.snapshotter.v1.devmapper",
    "io.containerd.snapshotter.v1.zfs",
    "io.containerd.internal.v1.restart",
    "io.containerd.internal.v1.tracing",
    "io.containerd.tracing.processor.v1.otlp",
)


def write_config(directory: Path, socket: Path, snapshotter: str) -> Path:
    """Write config.toml for a containerd that keeps all it has under `directory`; its path."""
    oom = str(not can_lower_oom_score()).lower()
    text = f"""\
version = 2
root = "{directory}/root"
state = "{directory}/state"
disabled_plugins = {json.dumps(_UNNEEDED)}

[grpc]
  address = "{socket}"

[plugins."io.containerd.internal.v1.opt"]
  path = "{directory}/opt"

[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE}"
  restrict_oom_score_adj = {oom}
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
    path = directory / "config.toml"
    path.write_text(text)
    return path


def write_network(directory: Path, name: str, subnet: str, *, host_ports: bool = False) -> None:
    """Write the CNI configuration of a bridge called `name`, which is also the network's name, with pods in `subnet`.

    The node reaches the pods, and they reach the node. No masquerading: nobody's iptables are touched, but for
    `host_ports`.
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
