"""Flags of former kubelets, with their replacements, for the error message on an old command line.

The kubelet itself only reports such a flag as unknown.
"""

from __future__ import annotations

_RUNTIME = "the runtime is found, or named with --container-runtime-endpoint; leave the flag out"
_CRI_DOCKERD = (
    "the kubelet's own Docker support is gone; Docker is used through cri-dockerd: "
    "--container-runtime-endpoint=unix:///run/cri-dockerd.sock"
)
_CNI = "the container runtime sets up pod networks; configure CNI there"
_LOGS = "logs go to stderr, from where the service manager or the shell sends them on"
_CLOUD = "cloud providers run outside of the kubelet; use --cloud-provider=external"
_RKT = "rkt is gone; use containerd or CRI-O with --container-runtime-endpoint=unix:///PATH"
_KUBECONFIG = "use --kubeconfig"
_FIELDS = "no field or flag took its place; leave it out"

_INSTEAD = {
    _CRI_DOCKERD: "docker docker-endpoint docker-exec-handler docker-root docker-only docker-env-metadata-whitelist "
    "docker-tls docker-tls-ca docker-tls-cert docker-tls-key experimental-dockershim "
    "experimental-dockershim-root-directory dockershim-checkpoint-dir image-pull-progress-deadline",
    _CNI: "network-plugin network-plugin-dir network-plugin-mtu cni-conf-dir cni-bin-dir cni-cache-dir "
    "configure-cbr0 reconcile-cidr non-masquerade-cidr",
    _LOGS: "log-dir log-file log-file-max-size logtostderr alsologtostderr one-output stderrthreshold "
    "skip-headers skip-log-headers add-dir-header log-backtrace-at",
    "use --logging-format and the file's logging.options": "log-json-info-buffer-size log-json-split-stream",
    _CLOUD: "cloud-config azure-container-registry-config",
    _RKT: "rkt-path rkt-api-endpoint rkt-stage1-image",
    _KUBECONFIG: "api-servers auth-path require-kubeconfig experimental-bootstrap-kubeconfig",
    "use --config": "dynamic-config-dir init-config-dir",
    "use --register-with-taints=node.kubernetes.io/unschedulable:NoSchedule": "register-schedulable",
    "use --kernel-memcg-notification": "experimental-kernel-memcg-notification",
    "use --allowed-unsafe-sysctls": "experimental-allowed-unsafe-sysctls",
    "use --qos-reserved": "experimental-qos-reserved",
    "use --kubelet-cgroups": "resource-container",
    "use --system-cgroups": "system-container",
    "use --eviction-hard": "low-diskspace-threshold-mb outofdisk-transition-frequency",
    "seccomp profiles are below ROOT_DIR/seccomp": "seccomp-profile-root",
    "privileged pods are a matter of admission to the cluster": "allow-privileged host-ipc-sources "
    "host-network-sources host-pid-sources",
    _FIELDS: "babysit-daemons bootstrap-checkpoint-path cadvisor-port chaos-chance containerized enable-custom-metrics "
    "enable-tracing enable-cadvisor-json-endpoints experimental-check-node-capabilities-before-mount "
    "experimental-fail-swap-on experimental-flannel-overlay experimental-nvidia-gpus iptables-drop-bit "
    "iptables-masquerade-bit keep-terminated-pod-volumes master-service-namespace "
    "really-crash-for-testing redirect-container-streaming",
}
_BY_NAME = {name: instead for instead, names in _INSTEAD.items() for name in names.split()}

STILL_TAKEN = {
    "pod-infra-container-image": "the pause image is the container runtime's setting (older kubeadms write it)"
}
"""Removed flags that present installers of the kubelet still write: accepted without effect."""


def explain(name: str, value: str | None) -> str:
    """A sentence on the replacement of the removed flag `name`; empty for an unknown flag."""
    if name == "container-runtime":
        if value == "docker":
            return f"flag --container-runtime=docker was removed: {_CRI_DOCKERD}"
        if value == "rkt":
            return f"flag --container-runtime=rkt was removed: {_RKT}"
        return f"flag --container-runtime was removed: {_RUNTIME}"
    instead = _BY_NAME.get(name)
    return f"flag --{name} was removed: {instead}" if instead else ""
