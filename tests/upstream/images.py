"""Images under the names that the specs use, made of upstream's own test programs and this machine's busybox.

Source of the names: test/utils/image/manifest.go of the suite's version.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.containerd.images import Image
from tests.containerd.machine import CannotBuild
from tests.controlplane.binaries import CACHE
from tests.controlplane.certificates import name_of, new_key, self_signed

PROGRAMS = ("e2e.test", "ginkgo", "agnhost", "nonewprivs")
"""Programs that `.ci/kubernetes` builds for the suite."""
_TESTS, _OLDER, _LIBRARY = "k8s.gcr.io/e2e-test-images", "gcr.io/kubernetes-e2e-test-images", "docker.io/library"


def images() -> list[Image]:
    """The stand-ins. Raises CannotBuild without curl, and FileNotFoundError when the programs are not built."""
    agnhost = (CACHE / "agnhost").read_bytes()
    files = {"/agnhost": agnhost, "/agnhost-2": agnhost, "/bin/nsenter": _nsenter(), **_certificate()}
    return [
        Image(f"{_TESTS}/agnhost:2.21", ("/agnhost",), ("pause",), files=files, programs={"curl": curl()}),
        Image("k8s.gcr.io/pause:3.2", ("/agnhost", "pause"), (), files={"/agnhost": agnhost}),
        Image(f"{_LIBRARY}/busybox:1.29"),
        Image("k8s.gcr.io/build-image/debian-iptables:buster-v1.3.0"),
        Image(f"{_OLDER}/nonroot:1.0", user="1234"),
        Image(f"{_OLDER}/ipc-utils:1.0", tools=True, programs={"ipcs": Path("/usr/bin/ipcs")}),
        Image(f"{_OLDER}/nonewprivs:1.0", cmd=("/nnp",), setuid={"/nnp": (CACHE / "nonewprivs").read_bytes()}),
        *_web_servers(),
    ]


def _web_servers() -> Iterator[Image]:
    """busybox's, started as Apache and nginx are; two versions of each for updates of workloads."""
    for server, versions, root, command, page in (
        ("httpd", ("2.4.38", "2.4.39"), "/usr/local/apache2/htdocs", "httpd-foreground", "<h1>It works!</h1>"),
        ("nginx", ("1.14", "1.15"), "/usr/share/nginx/html", "nginx", "<title>Welcome to nginx!</title>"),
    ):
        start = f"#!/bin/sh\nexec httpd -f -p 80 -h {root}\n"
        files = {f"/bin/{command}": start.encode(), f"{root}/index.html": page.encode()}
        for version in versions:
            yield Image(
                f"{_LIBRARY}/{server}:{version}-alpine", cmd=(command,), files={**files, "/version": version.encode()}
            )


def curl() -> Path:
    """The machine's. Raises CannotBuild without one."""
    found = shutil.which("curl")
    if found is None:
        raise CannotBuild("cannot make the image agnhost: no curl; on Debian: apt-get install curl")
    return Path(found)


def _certificate() -> dict[str, bytes]:
    """`localhost.crt` and `localhost.key`, with which agnhost's porter serves TLS. No client checks them."""
    with tempfile.TemporaryDirectory() as directory:
        paths = self_signed(Path(directory, "localhost"), name_of("localhost"), new_key())
        return {f"/{path.name}": path.read_bytes() for path in paths}


def _nsenter() -> bytes:
    """A script that goes to this process's mounts: those of process 1 need not be the agent's, nor readable.

    Specs call it as `nsenter --mount=PATH -- sh -c SCRIPT`. The scripts are for the node's own tools, not busybox's.
    """
    mounts = Path("/rootfs/proc", str(os.getpid()), "ns/mnt")
    return (
        "#!/bin/sh\nshift 3\nexport PATH=/usr/sbin:/usr/bin:/sbin:/bin\n"
        f'exec /bin/busybox nsenter --mount={mounts} -- /bin/sh "$@"\n'
    ).encode()
