"""Parses and checks CRI endpoints, without gRPC.

The rules are the kubelet's for --container-runtime-endpoint:
https://kubernetes.io/docs/reference/command-line-tools-reference/kubelet/
"""

import logging

log = logging.getLogger(__name__)

USUAL_ENDPOINTS = (
    "unix:///run/containerd/containerd.sock",
    "unix:///run/crio/crio.sock",
    "unix:///var/run/cri-dockerd.sock",
)
"""The default endpoints of the runtimes, in the order in which crictl tries them."""

_LONGEST_PATH = 107  # bytes; sun_path of sockaddr_un less its final NUL


class BadEndpoint(ValueError):
    """The endpoint is invalid. The message says what to write instead."""


def normalized(endpoint: str) -> str:
    """`endpoint` as unix:///PATH. An absolute path is accepted with a warning, as in the kubelet.

    Raises BadEndpoint for every other scheme, for a relative path, and for a path too long for a socket.
    """
    scheme, separator, rest = endpoint.partition(":")
    if endpoint.startswith("/"):
        log.warning(
            "container runtime endpoint %r has no scheme, which is deprecated: write unix://%s", endpoint, endpoint
        )
        path = endpoint
    elif separator and scheme == "unix":
        path = rest.removeprefix("//")
    else:
        raise BadEndpoint(f"cannot use container runtime endpoint {endpoint!r}: write unix:///PATH/TO/SOCKET")
    if not path.startswith("/") or path == "/":
        raise BadEndpoint(
            f"cannot use container runtime endpoint {endpoint!r}: it needs an absolute path, as in unix:///run/x.sock"
        )
    if (length := len(path.encode())) > _LONGEST_PATH:
        raise BadEndpoint(
            f"cannot use container runtime endpoint {endpoint!r}: its path has {length} bytes, a socket's at most "
            f"{_LONGEST_PATH}; move the socket, or link to its directory by a shorter path"
        )
    return f"unix://{path}"
