"""Keys and certificates of a private control plane, by openssl. Valid for a day."""

import base64
import json
import subprocess
from pathlib import Path

SERVER_NAMES = "subjectAltName=IP:127.0.0.1,DNS:localhost,DNS:kubernetes.default.svc"


class Authority:
    """A certificate authority in a directory; every key stays there."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir(mode=0o700)
        self.path = directory / "ca.crt"
        self._openssl(
            "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "1",
            "-subj", "/CN=nodevisor-test-ca", "-keyout", "ca.key", "-out", "ca.crt",
        )  # fmt: skip

    def issue(
        self, name: str, user: str, *groups: str, extension: str = SERVER_NAMES, days: int = 1
    ) -> tuple[Path, Path]:
        """Certificate and key files NAME.crt and NAME.key, for client and server use. `days`: -1 for an expired one."""
        subject = "".join(f"/O={group}" for group in groups) + f"/CN={user}"
        self._openssl(
            "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
            "-subj", subject, "-keyout", f"{name}.key", "-out", f"{name}.csr",
        )  # fmt: skip
        (self.directory / f"{name}.ext").write_text(f"{extension}\nextendedKeyUsage=clientAuth,serverAuth\n")
        self._openssl(
            "x509", "-req", "-in", f"{name}.csr", "-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial",
            "-days", str(days), "-extfile", f"{name}.ext", "-out", f"{name}.crt",
        )  # fmt: skip
        return self.directory / f"{name}.crt", self.directory / f"{name}.key"

    def signing_key(self, name: str) -> None:
        """NAME.key alone, in the form that the API server takes for tokens."""
        self._openssl("ecparam", "-genkey", "-name", "prime256v1", "-noout", "-out", f"{name}.key")

    def _openssl(self, *arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=self.directory, check=True, capture_output=True, timeout=30)


def kubeconfig(server: str, authority: Path, certificate: Path, key: Path) -> str:
    """A file that has everything in it. JSON is YAML, too."""

    def inline(path: Path) -> str:
        return base64.b64encode(path.read_bytes()).decode()

    cluster = {"server": server, "certificate-authority-data": inline(authority)}
    user = {"client-certificate-data": inline(certificate), "client-key-data": inline(key)}
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
            "clusters": [{"name": "test", "cluster": cluster}],
            "users": [{"name": "test", "user": user}],
        },
        indent=1,
    )
