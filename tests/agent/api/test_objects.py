"""Static pods that use ConfigMaps, Secrets, Services and RuntimeClasses of --objects-dir, seen from inside."""

from __future__ import annotations

import hashlib
import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tests.agent.agent import ACTORS, Agent, container, pod
from tests.agent.api.canary import holding
from tests.agent.changing import files
from tests.agent.table import SAID_S, Case, Seen, Table, once, over, running, waits
from tests.containerd import ContainerdInstance
from tests.harness import wait_for

pytestmark = pytest.mark.timeout(300)

CANARY = "hunter2-canary-value"
CONFIG_ERROR = "CreateContainerConfigError"


def document(kind: str, name: str, namespace: str = "default", **fields: Any) -> dict[str, Any]:
    versions = {"RuntimeClass": "node.k8s.io/v1"}
    meta = {"name": name} if kind in versions else {"name": name, "namespace": namespace}
    return {"apiVersion": versions.get(kind, "v1"), "kind": kind, "metadata": meta} | fields


OBJECTS = [
    document("ConfigMap", "settings", data={"colour": "blue", "2nd.key": "two"}, binaryData={"blob": "/wA="}),
    document("Secret", "db", data={"user": "cm9vdA=="}, stringData={"password": CANARY}),
    document("Service", "my-web", spec={"clusterIP": "10.96.0.7", "ports": [{"port": 80, "name": "http"}]}),
    document("Service", "kubernetes", spec={"clusterIP": "10.96.0.1", "ports": [{"port": 443, "name": "https"}]}),
    document("RuntimeClass", "usual", handler="runc"),
    document("RuntimeClass", "odd", handler="no-such-handler"),
]


def prepare(agent: Agent) -> tuple[str, ...]:
    directory = agent.dir / "objects"
    directory.mkdir()
    (directory / "all.yaml").write_text(yaml.safe_dump_all(OBJECTS))
    return ("--objects-dir", str(directory))


def put(agent: Agent, *documents: dict[str, Any], file: str = "more.yaml") -> None:
    temporary = agent.dir / "objects" / f".{file}"
    temporary.write_text(yaml.safe_dump_all(documents))
    temporary.rename(agent.dir / "objects" / file)


def env(name: str, **source: Any) -> dict[str, Any]:
    return {"name": name, "valueFrom": source}


def sees(**wanted: str) -> Any:
    """These lines of `env`, and none of a name given as empty."""

    def check(seen: Seen) -> None:
        assert seen.phase == "Succeeded", seen.status
        found = seen.values()
        assert {name: found.get(name, "") for name in wanted} == wanted

    return check


def fails(message: str) -> Any:
    def check(seen: Seen) -> None:
        assert seen.message() == message

    return check


FILE_ENV = [env("F", fileKeyRef={"volumeName": "v", "path": "a/f.env", "key": "KEY"})]
FILE_VOLUME = {"volumes": [{"name": "v", "emptyDir": {}}]}
WRITER = container(
    "w", "mkdir /v/a; printf \"KEY='from file'\\n\" > /v/a/f.env", volumeMounts=[{"name": "v", "mountPath": "/v"}]
)
BAD_WRITER = container("w", "mkdir /v/a; ln -s /etc/passwd /v/a/f.env", volumeMounts=[{"name": "v", "mountPath": "/v"}])

CASES = {
    "keys": Case(
        once(
            "env",
            env=[
                env("C", configMapKeyRef={"name": "settings", "key": "colour"}),
                env("U", secretKeyRef={"name": "db", "key": "user"}),
                env("NO_MAP", configMapKeyRef={"name": "none", "key": "k", "optional": True}),
                env("NO_KEY", secretKeyRef={"name": "db", "key": "none", "optional": True}),
                {"name": "ALL", "value": "$(U)@$(MY_WEB_SERVICE_HOST)"},
            ],
        ),
        sees(C="blue", U="root", ALL="root@10.96.0.7", NO_MAP="", NO_KEY=""),
    ),
    "whole": Case(
        once(
            "tr '\\0' '\\n' < /proc/1/environ | grep -v password",  # a shell leaves out what is no identifier
            envFrom=[
                {"prefix": "M_", "configMapRef": {"name": "settings"}},
                {"secretRef": {"name": "db"}},
                {"secretRef": {"name": "none", "optional": True}},
            ],
        ),
        sees(M_colour="blue", M_blob="", user="root", **{"M_2nd.key": "two"}),
    ),
    "secret": Case(
        once(
            "echo hash=$(printf %s $P | sha256sum | cut -d' ' -f1)",
            env=[env("P", secretKeyRef={"name": "db", "key": "password"})],
        ),
        sees(hash=hashlib.sha256(CANARY.encode()).hexdigest()),
    ),
    "services": Case(
        once("env"),
        sees(
            MY_WEB_SERVICE_HOST="10.96.0.7",
            MY_WEB_SERVICE_PORT_HTTP="80",
            MY_WEB_PORT="tcp://10.96.0.7:80",
            KUBERNETES_SERVICE_PORT="443",
        ),
    ),
    "no-links": Case(
        once("env", spec={"enableServiceLinks": False}),
        sees(MY_WEB_SERVICE_HOST="", KUBERNETES_SERVICE_HOST="10.96.0.1"),
    ),
    "file": Case(once("env", spec={**FILE_VOLUME, "initContainers": [WRITER]}, env=FILE_ENV), sees(F="from file")),
    "file-out": Case(
        once("env", spec={**FILE_VOLUME, "initContainers": [BAD_WRITER]}, env=FILE_ENV),
        fails("couldn't parse env file"),
        waits(CONFIG_ERROR),
    ),
    "no-map": Case(
        once("env", env=[env("X", configMapKeyRef={"name": "none", "key": "k"})]),
        fails('configmap "none" not found'),
        waits(CONFIG_ERROR),
    ),
    "no-secret": Case(
        once("env", envFrom=[{"secretRef": {"name": "none"}}]), fails('secret "none" not found'), waits(CONFIG_ERROR)
    ),
    "no-key": Case(
        once("env", env=[env("X", secretKeyRef={"name": "db", "key": "none"})]),
        fails("couldn't find key none in Secret default/db"),
        waits(CONFIG_ERROR),
    ),
    "binary": Case(
        once("env", env=[env("X", configMapKeyRef={"name": "settings", "key": "blob"})]),
        fails("couldn't find key blob in ConfigMap default/settings"),
        waits(CONFIG_ERROR),
    ),
    "class": Case(once("true", spec={"runtimeClassName": "usual"}), sees()),
}  # fmt: skip


@pytest.fixture(scope="module")
def table(containerd: ContainerdInstance) -> Iterator[Table]:
    with running(containerd, CASES, prepare) as one:
        yield one


@pytest.mark.parametrize("name", CASES)
def test_objects_as_seen_by_a_pod(table: Table, name: str) -> None:
    table.check(name)


def wait_over(table: Table, name: str, timeout_s: float = 30.0) -> Seen:
    def found() -> Seen | None:
        seen = table.see(name)
        return seen if seen is not None and over(seen) else None

    seen: Seen = wait_for(found, timeout_s, f"{name} is over")
    return seen


def wait_said(table: Table, name: str, key: str, timeout_s: float = 30.0) -> str:
    """The value that a pod has printed, once it is over: its last lines may be in the log after its end."""
    seen = wait_over(table, name, timeout_s)
    return str(wait_for(lambda: seen.values().get(key), SAID_S, f"{key} in the log of {name}"))


def waiting(table: Table, name: str, reason: str) -> Seen:
    """The pod once its container waits for that."""

    def found() -> Seen | None:
        seen = table.see(name)
        return seen if seen is not None and seen.reason() == reason else None

    seen: Seen = wait_for(found, 60, f"{name} waits with {reason}")
    return seen


def named(name: str, manifest: dict[str, Any]) -> dict[str, Any]:
    return {**manifest, "metadata": {"name": name}}


def test_a_pod_that_waits_for_an_object_starts_when_it_appears(table: Table) -> None:
    agent = table.agent
    variables = [
        env("A", configMapKeyRef={"name": "late", "key": "k"}),
        env("B", secretKeyRef={"name": "later", "key": "k"}),
    ]
    agent.write("late", named("late", once("env", env=variables)))
    waiting(table, "late", CONFIG_ERROR)
    put(agent, document("ConfigMap", "late", data={"k": "1"}), file="late.yaml")

    def lacks_the_secret() -> bool:
        seen = table.see("late")
        return seen is not None and seen.message() == 'secret "later" not found'

    wait_for(lacks_the_secret, 8, "its next want is seen before the retry, which is 10 s later")
    put(agent, document("Secret", "later", stringData={"k": "2"}), file="later.yaml")
    assert wait_said(table, "late", "B", 8) == "2"


def test_object_that_appears_during_a_kill_is_found(table: Table) -> None:
    agent = table.agent
    agent.write("found", named("found", once("env", env=[env("A", configMapKeyRef={"name": "found", "key": "k"})])))
    waiting(table, "found", CONFIG_ERROR)
    os.kill(agent.rows()["objects"]["pid"], signal.SIGKILL)
    put(agent, document("ConfigMap", "found", data={"k": "1"}), file="found.yaml")
    assert wait_said(table, "found", "A") == "1"
    rows = agent.command("objects", "-o", "json").stdout
    assert '"found"' in rows
    wait_for(agent.all_ready, 20, "objects is back")


def test_pods_keep_their_objects_when_their_actors_are_killed(table: Table) -> None:
    agent = table.agent
    agent.kill_actors("pod_workers")
    agent.write(
        "again", named("again", once("env", env=[env("C", configMapKeyRef={"name": "settings", "key": "colour"})]))
    )
    assert wait_said(table, "again", "C") == "blue"


@pytest.mark.parametrize(
    ("runtime_class", "message"),
    [("none", 'runtimeclass.node.k8s.io "none" not found'), ("odd", 'no runtime for "no-such-handler" is configured')],
)
def test_a_runtime_class_that_does_not_serve_is_said(table: Table, runtime_class: str, message: str) -> None:
    agent, name = table.agent, f"class-{runtime_class}"
    agent.write(name, named(name, once("true", spec={"runtimeClassName": runtime_class})))
    wait_for(lambda: message in agent.log.read_text(), 30, f"{message} in {agent.log}")
    (agent.manifests / f"{name}.yaml").unlink()


def test_a_secret_is_in_no_file_log_or_answer_of_the_agent(table: Table) -> None:
    agent = table.agent
    manifest = pod("holder", container("c", env=[env("P", secretKeyRef={"name": "db", "key": "password"})]))
    agent.write("holder", manifest)
    wait_for(
        lambda: (seen := table.see("holder")) is not None and seen.phase == "Running", 30, "it runs with the Secret"
    )
    agent.kill_actors("pod_workers", "objects", number=signal.SIGABRT)
    wait_for(agent.all_ready, 20, "every actor is back")
    shown = "".join(agent.command("describe", name).stdout for name in (*ACTORS, "objects"))
    shown += agent.command("objects", "-o", "json").stdout + agent.command("pods", "-o", "json").stdout
    assert CANARY not in shown
    there = [path for path in files(agent.dir) if agent.dir / "objects" not in path.parents]
    assert agent.log in there
    assert any(path.suffix == ".rec" for path in there)
    assert holding(there, CANARY.encode()) == []
