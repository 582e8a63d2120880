"""kubectl through a real API server to the agent's own port: logs, exec, cp, attach, port-forward; and who may not."""

from __future__ import annotations

import hashlib
import json
import os
import pty
import re
import select
import shutil
import signal
import ssl
import struct
import subprocess
import sys
import termios
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from fcntl import ioctl
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from actors.server.table import secure_table
from proto.agent.settings import Settings
from tests.agent.agent import SLEEP, Agent, container, is_ready, pod
from tests.containerd import ContainerdInstance
from tests.controlplane import ControlPlane
from tests.controlplane.certificates import Authority
from tests.controlplane.metrics_server import MetricsServer
from tests.harness import wait_for

pytestmark = pytest.mark.timeout(300)

NAME = "served"
NAMESPACE = "server-tests"
BINDINGS = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"


class Site(NamedTuple):
    """An agent that serves, and its cluster."""

    agent: Agent
    plane: ControlPlane
    port: int

    def kubectl(self, *words: str, **options: Any) -> subprocess.CompletedProcess[bytes]:
        """Run kubectl; return its output and exit code."""
        return subprocess.run(self.command(*words), capture_output=True, timeout=120, check=False, **options)

    def command(self, *words: str) -> list[str]:
        """kubectl as the administrator."""
        program = shutil.which("kubectl")
        assert program, "there is no kubectl here: apt-get install kubernetes-client"
        return [program, f"--kubeconfig={self.plane.admin}", "-n", NAMESPACE, *words]

    def here(self, *words: str, **options: Any) -> subprocess.CompletedProcess[bytes]:
        """The same on the node itself, without the API server."""
        return subprocess.run(self.own(*words), capture_output=True, timeout=120, check=False, **options)

    def own(self, *words: str) -> list[str]:
        """`supervisor WORDS`."""
        return [sys.executable, "-m", "supervisor", words[0], "--run-dir", str(self.agent.run_dir), *words[1:]]

    def create(self, name: str, *containers: dict[str, Any], **spec: Any) -> None:
        """A pod on this node, once it is ready."""
        made = pod(name, *containers, nodeName=NAME, **spec)
        self.plane.call("POST", f"/api/v1/namespaces/{NAMESPACE}/pods", made)
        path = f"/api/v1/namespaces/{NAMESPACE}/pods/{name}"
        wait_for(lambda: is_ready(self.plane.get(path) or {}), 60, f"{name} ready; log: {self.agent.log}")

    def allow(self, role: str, kind: str, name: str) -> None:
        """Bind a cluster role."""
        binding = {
            "metadata": {"name": f"{NAMESPACE}:{role}:{name}"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name}],
        }
        self.plane.call("POST", BINDINGS, binding)


@pytest.fixture(scope="module")
def served(containerd: ContainerdInstance, control_plane: ControlPlane) -> Iterator[Site]:
    control_plane.call("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    with closing(Agent(containerd, NAME)) as agent:
        site = Site(agent, control_plane, agent.port)
        site.allow("system:kubelet-api-admin", "Group", "kubelet-clients")
        config = {
            "authentication": {"x509": {"clientCAFile": str(control_plane.dir / "pki" / "ca.crt")}},
            "authorization": {"webhook": {"cacheUnauthorizedTTL": "1s", "cacheAuthorizedTTL": "1s"}},
            "containerLogMaxSize": "256Ki",
            "containerLogMonitorInterval": "3s",
        }
        agent.config.write_text(json.dumps(yaml.safe_load(agent.config.read_text()) | config))
        agent.start("--kubeconfig", str(control_plane.kubeconfig(NAME)), wait=False)
        wait_for(lambda: agent.rows().get("server", {}).get("state") == "ready", 60, f"the server; log: {agent.log}")
        wait_for(agent.all_ready, 30)
        wait_for(lambda: control_plane.get(f"/api/v1/nodes/{NAME}"), 30, "the node")
        site.create("tool", container("c"))
        yield site
        for one in control_plane.call("GET", f"/api/v1/namespaces/{NAMESPACE}/pods")["items"]:
            control_plane.call(
                "DELETE", f"/api/v1/namespaces/{NAMESPACE}/pods/{one['metadata']['name']}", {"gracePeriodSeconds": 0}
            )


def test_logs_as_kubectl_asks_for_them(served: Site) -> None:
    script = "for i in 1 2 3 4 5; do echo line $i; done; echo oops >&2; sleep 2; echo later; exec sleep 100000"
    served.create("talker", container("c", script))
    wait_for(lambda: b"later" in served.kubectl("logs", "talker").stdout, 30)
    lines = b"line 1\nline 2\nline 3\nline 4\nline 5\noops\nlater\n"
    assert sorted(served.kubectl("logs", "talker").stdout.split(b"\n")) == sorted(lines.split(b"\n"))
    assert served.kubectl("logs", "talker", "--tail=1").stdout == b"later\n"
    assert b"Z later\n" in served.kubectl("logs", "talker", "--tail=1", "--timestamps").stdout
    assert b"later" in served.kubectl("logs", "talker", "--since=1h").stdout
    wait_for(lambda: served.kubectl("logs", "talker", "--since=1s").stdout == b"", 30)
    assert len(served.kubectl("logs", "talker", "--limit-bytes=10").stdout) == 10
    refused = served.kubectl("logs", "talker", "-p")
    assert b'previous terminated container "c" in pod "talker" not found' in refused.stderr


def test_the_log_of_a_run_before(served: Site) -> None:
    script = "test -f /data/x || { touch /data/x; echo first run; exit 3; }; echo second run; exec sleep 100000"
    data = {"name": "data", "mountPath": "/data"}
    made = container("c", script, volumeMounts=[data])
    served.create("crasher", made, volumes=[{"name": "data", "emptyDir": {}}], restartPolicy="OnFailure")
    wait_for(lambda: _restarts(served.plane.get(f"/api/v1/namespaces/{NAMESPACE}/pods/crasher")) == 1, 60, "a crash")
    wait_for(lambda: served.kubectl("logs", "crasher", "-p").stdout == b"first run\n", 30, "the log of the run before")
    wait_for(lambda: served.kubectl("logs", "crasher").stdout == b"second run\n", 30, "the log of the present run")


def _restarts(item: Any) -> int:
    return sum(one["restartCount"] for one in ((item or {}).get("status") or {}).get("containerStatuses") or ())


def test_followed_log_survives_rotations_and_ends_with_container(served: Site) -> None:
    count = 20_000
    pause = "test $((i % 500)) -ne 0 || sleep 0.2"
    begin = "echo begin; until test -e /tmp/go; do sleep 0.1; done"
    lines = f"i=0; while test $i -lt {count}; do i=$((i+1)); echo line $i {'x' * 60}; {pause}; done"
    served.create("writer", container("c", f"{begin}; {lines}; sleep 3; echo end"), restartPolicy="Never")
    with subprocess.Popen(served.command("logs", "-f", "writer"), stdout=subprocess.PIPE) as following:
        assert following.stdout is not None
        # A client after the first rotation gets the current file.
        assert following.stdout.readline() == b"begin\n"
        assert served.kubectl("exec", "writer", "--", "touch", "/tmp/go").returncode == 0
        found = following.stdout.read().split(b"\n")
    numbers = [int(line.split()[1]) for line in found if line.startswith(b"line ")]
    assert numbers == list(range(1, count + 1)), "no line is lost and none is doubled"
    assert found[-2:] == [b"end", b""]
    logs = list((served.agent.dir / "logs").glob(f"{NAMESPACE}_writer_*/c/*"))
    assert any(name.name.startswith("0.log.2") for name in logs), f"it was rotated meanwhile: {logs}"


def test_exec_has_the_exit_code_and_both_outputs(served: Site) -> None:
    for run in (served.kubectl, served.here):
        done = run("exec", "tool", "--", "sh", "-c", "echo out; echo err >&2; exit 7")
        assert (done.returncode, done.stdout) == (7, b"out\n")
        assert done.stderr.startswith(b"err\n")
        assert run("exec", "tool", "--", "true").returncode == 0
    missing = served.kubectl("exec", "nothing", "--", "true")
    assert b"not found" in missing.stderr
    wrong = served.kubectl("exec", "tool", "-c", "nope", "--", "true")
    assert b"nope" in wrong.stderr


@pytest.mark.parametrize("command", [("sha256sum",), ("sh", "-c", "cat > /tmp/big; sha256sum /tmp/big; rm /tmp/big")])
def test_a_pipe_of_100_mb_arrives_whole(served: Site, command: tuple[str, ...]) -> None:
    for run, size in ((served.kubectl, 100), (served.here, 20)):
        data = os.urandom(1_000_000) * size
        done = run("exec", "-i", "tool", "--", *command, input=data)
        assert done.stdout.split()[0].decode() == hashlib.sha256(data).hexdigest(), done.stderr


def test_30_mb_come_out_whole_and_a_file_is_an_input(served: Site, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_bytes(os.urandom(1_000_000))
    with source.open("rb") as file:
        done = served.here("exec", "-i", "tool", "--", "sh", "-c", "cat > /tmp/part; wc -c < /tmp/part", stdin=file)
    assert (done.returncode, done.stdout) == (0, b"1000000\n"), done.stderr
    many = "for i in 0 1 2; do for j in 0 1 2 3 4 5 6 7 8 9; do cat /tmp/part; done; done"
    wanted = hashlib.sha256(source.read_bytes() * 30).hexdigest()
    found = {}
    for run in (served.kubectl, served.here):
        done = run("exec", "tool", "--", "sh", "-c", many)
        found[run.__name__] = (done.returncode, len(done.stdout), hashlib.sha256(done.stdout).hexdigest(), done.stderr)
    assert found == dict.fromkeys(("kubectl", "here"), (0, 30_000_000, wanted, b""))


@pytest.mark.parametrize("by", ["kubectl", "supervisor"])
def test_a_terminal_has_its_size_and_is_told_of_a_change(served: Site, by: str) -> None:
    command = served.command if by == "kubectl" else served.own
    process, master = _on_terminal(command("exec", "-it", "tool", "--", "sh"), 33, 99)
    try:
        # The shell may be there before the size is.
        wait_for(lambda: _type(master, "stty size\n", "33 99", 2), 60, "its size")
        ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", 44, 122, 0, 0))
        process.send_signal(signal.SIGWINCH)
        wait_for(lambda: _type(master, "stty size\n", "44 122", 2), 30, "the new size")
        _type(master, "exit 5\n", "")
        assert process.wait(30) == 5
    finally:
        process.kill()
        process.wait()
        os.close(master)


def _on_terminal(command: list[str], rows: int, columns: int) -> tuple[subprocess.Popen[bytes], int]:
    master, slave = pty.openpty()
    ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    process = subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, start_new_session=True)
    os.close(slave)
    return process, master


def _type(master: int, words: str, wanted: str, seconds: float = 30) -> bool:
    os.write(master, words.encode())
    said, deadline = b"", time.monotonic() + seconds
    while wanted.encode() not in said and time.monotonic() < deadline:
        if select.select([master], [], [], 0.1)[0]:
            said += os.read(master, 4096)
    return wanted.encode() in said


def test_files_are_copied_in_and_out(served: Site, tmp_path: Path) -> None:
    source, back = tmp_path / "source", tmp_path / "back"
    source.write_bytes(os.urandom(3_000_000))
    assert served.kubectl("cp", str(source), "tool:/tmp/there").returncode == 0
    done = served.kubectl("cp", "tool:/tmp/there", str(back))
    assert back.read_bytes() == source.read_bytes(), done.stderr


def test_attach_reaches_the_containers_own_streams(served: Site) -> None:
    script = "while read line; do echo got $line; done"
    for name, attach in (("listener", served.kubectl), ("hearer", served.here)):
        served.create(name, container("c", script, stdin=True, stdinOnce=True), restartPolicy="Never")
        done = attach("attach", "-i", name, input=b"one\ntwo\n")
        assert b"got one\ngot two\n" in done.stdout, done.stderr


BUSY = "while :; do :; done"
LARGE = "kept=$(head -c 30000000 /dev/zero | tr '\\0' x); " + SLEEP


def test_top_has_the_figures_of_the_metrics_endpoint(served: Site) -> None:
    user = "system:serviceaccount:kube-system:metrics-server"
    rule = {"apiGroups": [""], "resources": ["nodes/metrics"], "verbs": ["get"]}
    served.plane.call(
        "POST",
        "/apis/rbac.authorization.k8s.io/v1/clusterroles",
        {"metadata": {"name": "system:metrics-server"}, "rules": [rule]},
    )
    served.allow("system:metrics-server", "User", user)
    limited = {"limits": {"cpu": "200m"}}
    served.create("measured", container("busy", BUSY, resources=limited), container("large", LARGE))

    def top() -> dict[str, list[str]]:
        done = served.kubectl("top", "pod", "measured", "--containers", "--no-headers")
        return {words[1]: words[2:] for line in done.stdout.decode().splitlines() if (words := line.split())}

    def top_node() -> list[str]:
        return served.kubectl("top", "node", NAME, "--no-headers").stdout.decode().split()

    with MetricsServer(served.plane, *served.plane._ca.issue("metrics-server", user)).serving() as server:
        wait_for(lambda: server.failed(NAME) or (len(top()) == 2 and top_node()), 90, "figures of both and of the node")
        assert not server.failed(NAME)
        wait_for(lambda: 20 <= int(top()["busy"][0].removesuffix("m")) <= 260, 60, "what its limit lets it have")
        wait_for(lambda: 28 <= int(top()["large"][1].removesuffix("Mi")) <= 64, 60, "30 MB and a shell")
        wait_for(lambda: int(top()["large"][0].removesuffix("m")) < 20, 60, "it sleeps, once it has made them")
        name, cores, *_ = top_node()
        assert name == NAME
        assert int(cores.removesuffix("m")) > 0

        def agrees() -> bool:
            """Each has looked at another time, between which other programs may take or free memory."""
            summary = json.loads(served.kubectl("get", "--raw", f"/api/v1/nodes/{NAME}/proxy/stats/summary").stdout)
            mebibytes = summary["node"]["memory"]["workingSetBytes"] / 2**20
            return bool(int(top_node()[3].removesuffix("Mi")) == pytest.approx(mebibytes, rel=0.25))

        wait_for(agrees, 60, "memory of the node, in top and in the summary")
    one = f"/api/v1/namespaces/{NAMESPACE}/pods/measured"
    served.plane.call("DELETE", one, {"gracePeriodSeconds": 0})


class Numbered(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        body = f"hello {self.path} of {self.client_address[1]}".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


class Backlog(ThreadingHTTPServer):
    request_queue_size = 512
    daemon_threads = True


@pytest.mark.parametrize("by", ["kubectl", "supervisor"])
def test_port_forward_keeps_200_concurrent_connections_alive(served: Site, by: str) -> None:
    served.create(f"forwarded-{by}", container("c", SLEEP), hostNetwork=True)
    server = Backlog(("127.0.0.1", 0), Numbered)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    port = f":{server.server_address[1]}"
    if by == "kubectl":
        command = served.command("port-forward", f"pod/forwarded-{by}", port)
    else:
        command = served.own("port-forward", f"forwarded-{by}", port)
    forward = subprocess.Popen(command, stdout=subprocess.PIPE)
    try:
        assert forward.stdout is not None
        local = int(forward.stdout.readline().split(b"127.0.0.1:")[1].split()[0])
        kept = HTTPConnection("127.0.0.1", local, timeout=30)
        said = set()
        for number in range(20):
            kept.request("GET", f"/{number}")
            said.add(kept.getresponse().read().split(b" of ")[1])
        assert len(said) == 1, "one connection served them all"
        many = [HTTPConnection("127.0.0.1", local, timeout=60) for _ in range(200)]
        for connection in many:
            connection.connect()
        for number, connection in enumerate(many):
            connection.request("GET", f"/{number}")
        answers = [connection.getresponse().read() for connection in many]
        assert [answer.split()[1].decode() for answer in answers] == [f"/{number}" for number in range(200)]
        for connection in (kept, *many):
            connection.close()
    finally:
        forward.kill()
        forward.wait()
        assert forward.stdout is not None
        forward.stdout.close()
        server.shutdown()
        server.server_close()


def test_an_exec_whose_client_vanishes_leaves_nothing_open(served: Site) -> None:
    def state() -> dict[str, int]:
        found: dict[str, int] = json.loads(served.agent.command("describe", "server", "-o", "json").stdout)["state"]
        return found

    def held() -> int:
        """But for idle ones: the API server keeps some for a while on which it has asked for logs."""
        now = state()
        return now["connections"] - now["idle"]

    others, accepted = held(), state()["accepted"]
    process = subprocess.Popen(served.command("exec", "-i", "tool", "--", "cat"), stdin=subprocess.PIPE)
    # One of the tests before may go just then, so that there are no more than before.
    wait_for(lambda: state()["accepted"] > accepted and held() > 0, 30, "it is there")
    process.kill()
    process.wait()
    wait_for(lambda: held() <= others, 60, "its connection is gone")


# Who may


def example(pattern: str) -> str:
    """A path of a route: of a pod that is not there, so that nothing happens to one."""
    query = "?seconds=0.1" if pattern.endswith("/profile") else ""
    return re.sub(r"{(\w+)(:\*)?}", lambda place: PLACES[place[1]], pattern) + query


def ask(served: Site, path: str, cert: tuple[Path, Path] | None = None, token: str = "", method: str = "GET") -> int:
    """The status."""
    tls = ssl.create_default_context()
    tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    if cert is not None:
        tls.load_cert_chain(*cert)
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    request = urllib.request.Request(f"https://127.0.0.1:{served.port}{path}", headers=headers, method=method)
    try:
        with urllib.request.urlopen(request, context=tls, timeout=30) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


RIGHTS = {
    "/pods": ("pods", "proxy"),
    "/runningpods": ("pods", "proxy"),
    "/healthz": ("healthz", "proxy"),
    "/configz": ("configz", "proxy"),
    "/stats": ("stats",),
    "/metrics": ("metrics",),
    "/logs": ("log",),
    "/checkpoint": ("checkpoint",),
    "/statusz": ("statusz",),
    "/flagz": ("configz",),
}
"""Path root to subresources of nodes, of which each suffices; other paths need proxy. KEP-2862."""
SUBRESOURCES = sorted({"proxy", *(name for names in RIGHTS.values() for name in names)})
PLACES = {
    "namespace": NAMESPACE, "pod": "nobody", "container": "c", "uid": "u", "check": "ping", "path": "x", "file": "x"
}  # fmt: skip
PATHS = sorted(
    {(route.method, example(route.pattern)) for route in secure_table(Settings()).routes}
    | {("GET", f"/containerLogs/{NAMESPACE}/tool/c"), ("GET", "/nothing"), ("GET", "/"), ("GET", "/debug/pprof/heap")}
)
"""All that the port has, and what it has not."""


def rights(path: str) -> tuple[str, ...]:
    """Return the rights of which each suffices for a path."""
    return next((names for root, names in RIGHTS.items() if f"{path}/".startswith(f"{root}/")), ("proxy",))


@pytest.fixture(scope="module")
def people(served: Site, tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, Path]]:
    """Client certificates: a stranger's, one without rights, of each right alone, and of all but those of a path."""
    stranger = Authority(tmp_path_factory.mktemp("wrong") / "pki")
    authority = served.plane._ca
    may: dict[str, tuple[str, ...]] = {f"only-{name}": (name,) for name in SUBRESOURCES}
    may |= {
        all_but(enough): tuple(name for name in SUBRESOURCES if name not in enough)
        for enough in (*RIGHTS.values(), ("proxy",))
    }
    for user, names in may.items():
        rule = {"apiGroups": [""], "resources": [f"nodes/{name}" for name in names], "verbs": ["*"]}
        role = {"metadata": {"name": user}, "rules": [rule]}
        served.plane.call("POST", "/apis/rbac.authorization.k8s.io/v1/clusterroles", role)
        served.allow(user, "User", user)
    last = list(may)[-1]
    asked = {"user": last, "resourceAttributes": {"resource": "nodes", "subresource": may[last][0], "verb": "get"}}
    review = {"spec": asked}
    wait_for(
        lambda: served.plane.call("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", review)["status"].get(
            "allowed"
        ),
        30,
        "the API server knows of the last role and binding, and so of those before",
    )
    return {
        "wrong CA": stranger.issue("wrong", "only-proxy"),
        "without rights": authority.issue("weak", "weak"),
        **{user: authority.issue(user, user) for user in may},
    }


def all_but(names: tuple[str, ...]) -> str:
    """A user with all rights except these."""
    return f"all-but-{'-'.join(names)}"


@pytest.mark.parametrize(("method", "path"), PATHS)
def test_authorization_of_requests(served: Site, people: dict[str, tuple[Path, Path]], method: str, path: str) -> None:
    assert ask(served, path, method=method) == 401
    assert ask(served, path, token="nonsense", method=method) == 401
    assert ask(served, path, people["wrong CA"], method=method) == 401
    assert ask(served, path, people["without rights"], method=method) == 403
    assert ask(served, path, people[all_but(rights(path))], method=method) == 403
    for name in rights(path):
        assert ask(served, path, people[f"only-{name}"], method=method) not in (401, 403), name


def test_a_token_is_reviewed_and_its_finer_rights_are_enough(
    served: Site, people: dict[str, tuple[Path, Path]]
) -> None:
    accounts = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts"
    served.plane.call("POST", accounts, {"metadata": {"name": "reader"}})
    answer = served.plane.call(
        "POST",
        f"{accounts}/reader/token",
        {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}},
    )
    token = answer["status"]["token"]
    assert ask(served, "/pods", token=token) == 403
    role = {
        "metadata": {"name": "pods-of-nodes"},
        "rules": [{"apiGroups": [""], "resources": ["nodes/pods"], "verbs": ["get"]}],
    }
    served.plane.call("POST", "/apis/rbac.authorization.k8s.io/v1/clusterroles", role)
    served.allow("pods-of-nodes", "User", f"system:serviceaccount:{NAMESPACE}:reader")
    wait_for(lambda: ask(served, "/pods", token=token) == 200, 30, "once the old no is forgotten")
    assert ask(served, "/pods", people["wrong CA"], token) == 200, "a certificate of nobody's changes nothing"
    assert ask(served, "/configz", token=token) == 403
    assert ask(served, f"/containerLogs/{NAMESPACE}/tool/c", token=token) == 403


def test_a_killed_server_is_back_and_others_did_not_notice(served: Site) -> None:
    before = served.agent.rows()
    os.kill(before["server"]["pid"], signal.SIGKILL)
    wait_for(lambda: served.kubectl("exec", "tool", "--", "true").returncode == 0, 30, "exec works again")
    after = served.agent.rows()
    assert {name for name in before if before[name]["incarnation"] != after[name]["incarnation"]} == {"server"}
