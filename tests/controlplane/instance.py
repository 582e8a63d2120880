"""The control plane's processes: started in order, stopped and started again one by one, gone at the end.

Each dies with the process that started it, however that ends.
"""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec

from actors._kube.connection.kubeconfig import load
from actors._kube.connection.session import Session
from actors._kube.errors import ApiError
from tests.controlplane.binaries import API_SERVER, CONTROLLERS, ETCD, SCHEDULER, find
from tests.controlplane.certificates import Authority, kubeconfig
from tests.harness import wait_for
from tests.ports import free_ports

START_S = 120.0


class ControlPlane:
    """One cluster without nodes. `admin` is a kubeconfig file, `kubeconfig(node)` one for a node of it."""

    def __init__(self, *, controllers: bool = False) -> None:
        """`controllers`: with kube-controller-manager and kube-scheduler; without them pods need no service account."""
        self.dir = Path(tempfile.mkdtemp(prefix="nvcp-", dir="/tmp"))
        self._with_controllers = controllers
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._etcd_port, self._peer_port, self.port = free_ports(3)
        self.server = f"https://127.0.0.1:{self.port}"

    def __enter__(self) -> ControlPlane:
        try:
            self._ca = Authority(self.dir / "pki")
            self._serving = self._ca.issue("server", "kube-apiserver", "kubelet-clients")
            self._ca.signing_key("service-accounts")
            self.admin = self._kubeconfig("admin", "admin", "system:masters")
            self.session = Session(load(str(self.admin)))
            self.start_etcd()
            self.start_api()
            if self._with_controllers:
                self.start_controllers()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End everything and remove every file."""
        for name in reversed(list(self._processes)):
            self.stop(name)
        shutil.rmtree(self.dir, ignore_errors=True)

    # Clients

    def kubeconfig(self, node: str) -> Path:
        """A kubeconfig of system:node:NODE."""
        return self._kubeconfig(f"node-{node}", f"system:node:{node}", "system:nodes")

    def expired_kubeconfig(self, node: str) -> Path:
        """One whose certificate was good until yesterday."""
        return self._kubeconfig(f"expired-{node}", f"system:node:{node}", "system:nodes", days=-1)

    def _kubeconfig(self, name: str, user: str, *groups: str, days: int = 1) -> Path:
        path = self.dir / f"{name}.kubeconfig"
        if not path.exists():
            path.write_text(kubeconfig(self.server, self._ca.path, *self._ca.issue(name, user, *groups, days=days)))
            path.chmod(0o600)
        return path

    def call(self, method: str, path: str, obj: Any = None, content_type: str = "application/json") -> Any:
        """A call as the administrator. Raises ApiError."""
        body = None if obj is None else msgspec.json.encode(obj)
        content = self.session.call(method, path, body=body, content_type=content_type, timeout_s=20)
        return msgspec.json.decode(content)

    def get(self, path: str) -> Any:
        """An object, or None when there is none or no answer."""
        try:
            return self.call("GET", path)
        except ApiError:
            return None

    # Processes

    def start_etcd(self) -> None:
        """etcd, with what it holds."""
        url, peer = f"https://127.0.0.1:{self._etcd_port}", f"https://127.0.0.1:{self._peer_port}"
        certificate, key = self._serving
        self._start(
            ETCD, "--name=test", f"--data-dir={self.dir}/etcd",
            f"--listen-client-urls={url}", f"--advertise-client-urls={url}",
            f"--listen-peer-urls={peer}", f"--initial-advertise-peer-urls={peer}", f"--initial-cluster=test={peer}",
            "--client-cert-auth", f"--trusted-ca-file={self._ca.path}",
            f"--cert-file={certificate}", f"--key-file={key}",
            "--peer-client-cert-auth", f"--peer-trusted-ca-file={self._ca.path}",
            f"--peer-cert-file={certificate}", f"--peer-key-file={key}",
        )  # fmt: skip

    def start_api(self, *, wait: bool = True) -> None:
        """kube-apiserver; with `wait` until it serves."""
        certificate, key = self._serving
        accounts = f"{self.dir}/pki/service-accounts.key"
        self._start(
            API_SERVER, "--bind-address=127.0.0.1", "--advertise-address=127.0.0.1", f"--secure-port={self.port}",
            f"--etcd-servers=https://127.0.0.1:{self._etcd_port}", f"--etcd-cafile={self._ca.path}",
            f"--etcd-certfile={certificate}", f"--etcd-keyfile={key}",
            f"--tls-cert-file={certificate}", f"--tls-private-key-file={key}", f"--client-ca-file={self._ca.path}",
            f"--kubelet-client-certificate={certificate}", f"--kubelet-client-key={key}",
            "--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction",
            *([] if self._with_controllers else ["--disable-admission-plugins=ServiceAccount"]),
            "--feature-gates=EphemeralContainers=true",
            "--service-account-issuer=https://kubernetes.default.svc", f"--service-account-key-file={accounts}",
            f"--service-account-signing-key-file={accounts}", "--service-cluster-ip-range=10.96.0.0/24",
            "--endpoint-reconciler-type=none", "--allow-privileged=true", "--enable-bootstrap-token-auth=true",
            "--shutdown-delay-duration=0s", "--kubelet-preferred-address-types=InternalIP",
        )  # fmt: skip
        if wait:
            wait_for(self.is_ready, START_S, f"kube-apiserver ready; log: {self.dir}/{API_SERVER}.log")

    def is_ready(self) -> bool:
        """Return True when the API server serves. Fails the test after its exit."""
        process = self._processes[API_SERVER]
        assert process.poll() is None, f"kube-apiserver ended: {(self.dir / f'{API_SERVER}.log').read_text()[-2000:]}"
        try:
            # The namespace `default` and its Service come after the server says that it is ready.
            return self.session.call("GET", "/readyz", timeout_s=5) == b"ok" and all(
                self.call("GET", f"/api/v1/namespaces/{one}")
                for one in ("kube-node-lease", "default/services/kubernetes")
            )
        except ApiError:
            return False

    def start_controllers(self) -> None:
        """kube-controller-manager and kube-scheduler, as the administrator."""
        accounts = f"{self.dir}/pki/service-accounts.key"
        self._start(
            CONTROLLERS, f"--kubeconfig={self.admin}", "--bind-address=127.0.0.1", "--secure-port=0", "--port=0",
            "--leader-elect=false", f"--service-account-private-key-file={accounts}",
            f"--root-ca-file={self._ca.path}", f"--cluster-signing-cert-file={self._ca.path}",
            f"--cluster-signing-key-file={self.dir}/pki/ca.key", "--use-service-account-credentials=false",
        )  # fmt: skip
        self._start(
            SCHEDULER, f"--kubeconfig={self.admin}", "--bind-address=127.0.0.1", "--secure-port=0", "--port=0",
            "--leader-elect=false",
        )  # fmt: skip

    def start_signers(self, duration: str) -> None:
        """Start only the controllers that approve and sign nodes' certificate requests, valid for `20s` or the like.

        `stop("signers")` ends them.
        """
        self._start(
            CONTROLLERS, f"--kubeconfig={self.admin}", "--bind-address=127.0.0.1", "--secure-port=0", "--port=0",
            "--leader-elect=false", "--controllers=csrapproving,csrsigning", f"--cluster-signing-duration={duration}",
            f"--cluster-signing-cert-file={self._ca.path}", f"--cluster-signing-key-file={self.dir}/pki/ca.key",
            "--use-service-account-credentials=false", name="signers",
        )  # fmt: skip

    def bootstrap_kubeconfig(self) -> Path:
        """A kubeconfig with a bootstrap token, whose bearer may ask for a node's client certificate and have it."""
        path = self.dir / "bootstrap.kubeconfig"
        if path.exists():
            return path
        token = {"token-id": "abcdef", "token-secret": "0123456789abcdef", "usage-bootstrap-authentication": "true"}
        meta = {"name": "bootstrap-token-abcdef", "namespace": "kube-system"}
        secret = {"metadata": meta, "type": "bootstrap.kubernetes.io/token", "stringData": token}
        self.call("POST", "/api/v1/namespaces/kube-system/secrets", secret)
        requests = "system:certificates.k8s.io:certificatesigningrequests"
        for role, group in (
            ("system:node-bootstrapper", "system:bootstrappers"),
            (f"{requests}:nodeclient", "system:bootstrappers"),
            (f"{requests}:selfnodeclient", "system:nodes"),
        ):
            binding = {
                "metadata": {"name": f"test:{role}"},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
                "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": group}],
            }
            self.call("POST", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding)
        config = json.loads(self.admin.read_text())
        config["users"][0]["user"] = {"token": "abcdef.0123456789abcdef"}
        path.write_text(json.dumps(config))
        return path

    def _start(self, program_name: str, *arguments: str, name: str = "") -> None:
        name = name or program_name
        program = find(program_name)
        assert program is not None, program_name
        with (self.dir / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", program, *arguments],
                stdout=log, stderr=log, stdin=subprocess.DEVNULL, cwd=self.dir,
            )  # fmt: skip

    @contextmanager
    def paused(self, name: str) -> Iterator[None]:
        """Meanwhile that one does nothing, and goes on after."""
        process = self._processes[name]
        process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            process.send_signal(signal.SIGCONT)

    def stop(self, name: str) -> None:
        """End one of them at once, by SIGKILL: nothing it could still do is worth the wait."""
        process = self._processes.pop(name, None)
        if process is not None:
            process.kill()
            process.wait()
