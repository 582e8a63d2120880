"""Commands, environment, ends and termination messages of containers: a small pod for each rule."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import yaml

from tests.agent.agent import SLEEP, Agent, container, pod
from tests.agent.table import Case, Seen, Table, once, over, ready, running, waits
from tests.containerd import ContainerdInstance
from tests.containerd.images import Image
from tests.runtime.instance import EmbeddedInstance

ENTRY = "docker.io/library/spec-entry:1"
"""Prints the words of its entry point and command, and its working directory is /."""
IMAGES = [Image(ENTRY, entrypoint=("echo", "entry"), cmd=("cmd",), env={"OF_IMAGE": "yes", "OTHER": "image"})]

KIB = 1024


def env(*variables: tuple[str, str]) -> list[dict[str, str]]:
    return [{"name": name, "value": value} for name, value in variables]


def field(name: str, path: str) -> dict[str, Any]:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def resource(name: str, which: str, divisor: str = "", of: str = "") -> dict[str, Any]:
    selector = {"resource": which, **({"divisor": divisor} if divisor else {}), **({"containerName": of} if of else {})}
    return {"name": name, "valueFrom": {"resourceFieldRef": selector}}


def image(command: list[str] | None = None, args: list[str] | None = None, **fields: Any) -> dict[str, Any]:
    """A pod of the image with an entry point; command and args only where given."""
    one = {"name": "c", "image": ENTRY, "imagePullPolicy": "Never", **fields}
    one |= {"command": command} if command is not None else {}
    one |= {"args": args} if args is not None else {}
    return pod("", one, restartPolicy="Never")


def writes(text: str) -> Callable[[Seen], None]:
    """Its whole output; POD stands for its name, UID and IP for what they are."""

    def check(seen: Seen) -> None:
        assert seen.phase == "Succeeded", seen.status
        meta = seen.item["metadata"]
        wanted = text.replace("POD", meta["name"]).replace("UID", meta["uid"]).replace("IP", seen.status["podIP"])
        assert seen.log() == wanted

    return check


def ends(code: int, reason: str, *, phase: str = "Failed", name: str = "c", **more: Any) -> Callable[[Seen], None]:
    """Exit code and reason of a container that ended; `more` are further fields of its state."""

    def check(seen: Seen) -> None:
        state = seen.state(name)
        wanted = {"exitCode": code, "reason": reason, **more}
        assert {key: state.get(key) for key in wanted} == wanted, state
        assert seen.phase == phase
        assert seen.container(name)["ready"] is False

    return check


def message(text: str, *, phase: str = "Succeeded") -> Callable[[Seen], None]:
    def check(seen: Seen) -> None:
        assert seen.message() == text
        assert seen.phase == phase

    return check


def tells(end: str) -> Callable[[Seen], bool]:
    """Its last words end so: containerd may write an output's last lines after the exit, and they are shown later."""
    return lambda seen: over(seen) and seen.message().endswith(end)


def killed_by(number: int) -> dict[str, Any]:
    """Killed from inside, which works as it is not the first process of its namespace. `$$$$` is `$$` there."""
    return once(f"kill -{number} $$$$; sleep 1000", spec={"shareProcessNamespace": True})


def once_the_runtime_has_seen_it(seen: Seen) -> bool:
    """Return True when the case is over and containerd has seen its OOM kill.

    First let the container continue once containerd listens for OOM kills, which is by its answer to the start. The
    container stays until then: containerd misses the kill when the cgroup is gone first.
    """
    agent, meta = seen.table.agent, seen.item["metadata"]
    says = agent.root_dir / "pods" / meta["uid"] / "volumes/kubernetes.io~empty-dir/says"
    if "running" in seen.container().get("state", {}):
        (says / "started").touch()
        identity = seen.container()["containerID"].partition("://")[2]
        heard = agent.containerd.cri.container_status(identity).result().status.reason == "OOMKilled"
        if heard or isinstance(agent.containerd, EmbeddedInstance):  # that one looks when it ends
            (says / "seen").touch()
    return over(seen)


def restarted(seen: Seen) -> bool:
    return bool(seen.container().get("restartCount", 0))


def fails(reason: str, text: str) -> Callable[[Seen], None]:
    """It cannot start: `text` is in the message of why it waits, or of how its start ended."""

    def check(seen: Seen) -> None:
        assert seen.reason() == reason
        assert text in seen.message(), seen.message()

    return check


def is_too_long(seen: Seen) -> None:
    """Only the kernel knows, so runtimes differ: runc's first process says it after its start."""
    assert seen.phase == "Failed"
    assert seen.reason() in ("StartError", "Error")
    assert "argument list too long" in (seen.message() + seen.log()).lower()


def shares_the_room(seen: Seen) -> None:
    """12 KiB of last words are for all containers of a pod together."""
    assert [len(seen.message(name)) for name in "abcdef"] == [2 * KIB] * 6


def keeps_its_end(seen: Seen) -> None:
    assert seen.state("c", "lastState") | {"exitCode": 3, "reason": "Error", "message": "last words\n"} == seen.state(
        "c", "lastState"
    )
    assert seen.log("c", seen.container()["restartCount"]) == "life\n"


LIMITED = {"resources": {"requests": {"cpu": "125m", "memory": "10Mi"}, "limits": {"cpu": "250m", "memory": "20Mi"}}}
NAMED = {"CAPS": "yes", "FROM": "$(CAPS)-$(LATER)"}
FULL_LOG = "i=0; while [ $i -lt 100 ]; do echo line $i; i=$((i+1)); done; exit 1"

TABLE = {
    # The image's entry point, command and args
    "image-defaults": Case(image(), writes("entry cmd\n")),
    "args": Case(image(args=["own", "args"]), writes("entry own args\n")),
    "command": Case(image(command=["echo", "own"]), writes("own\n")),
    "command-and-args": Case(image(command=["echo", "own"], args=["args"]), writes("own args\n")),
    "image-env": Case(
        image(command=["sh", "-c", "echo $OF_IMAGE $OTHER"], env=env(("OTHER", "spec"))), writes("yes spec\n")
    ),
    "working-dir": Case(once("pwd", workingDir="/tmp"), writes("/tmp\n")),
    "working-dir-made": Case(once("pwd", workingDir="/not/there/yet"), writes("/not/there/yet\n")),
    # $(NAME)
    "expansion": Case(
        image(
            command=["echo", "$(A)", "$$(A)", "$(NONE)", "$A", "$(A", "$$$(A)"],
            args=["$(B)", "$(POD_NAME)"],
            env=[*env(("A", "a"), ("B", "$(A)-$(LATER)-$$(A)"), ("LATER", "l")), field("POD_NAME", "metadata.name")],
        ),
        writes("a $(A) $(NONE) $A $(A $a a-$(LATER)-$(A) POD\n"),
    ),
    "expansion-not-of-image-env": Case(image(command=["echo", "$(OF_IMAGE)"]), writes("$(OF_IMAGE)\n")),
    "env-order": Case(
        once("echo $A $B", env=env(("A", "1"), ("B", "$(A)"), ("A", "2"))), writes("2 1\n")
    ),
    "env-empty": Case(once('env | grep -c "^E=$"', env=[{"name": "E"}]), writes("1\n")),
    "env-odd-name": Case(
        once("", command=["env"], env=env(("odd.name-1", "x"))),
        lambda seen: _true("odd.name-1=x" in seen.lines()),
    ),
    # Downward API
    "fields": Case(
        {
            **once(
                "echo $NAME $NS $UID_ $NODE $SA $HOST $IP $IPS $L $A",
                env=[
                    field("NAME", "metadata.name"), field("NS", "metadata.namespace"), field("UID_", "metadata.uid"),
                    field("NODE", "spec.nodeName"), field("SA", "spec.serviceAccountName"),
                    field("HOST", "status.hostIP"), field("IP", "status.podIP"), field("IPS", "status.podIPs"),
                    field("L", "metadata.labels['app']"), field("A", "metadata.annotations['note']"),
                ],
            ),
            "metadata": {"labels": {"app": "label"}, "annotations": {"note": "annotation"}},
        },
        writes("POD default UID vm 127.0.0.1 IP IP label annotation\n"),
    ),
    "fields-host-network": Case(
        once(
            "echo $HOST $HOSTS $IP $IPS",
            spec={"hostNetwork": True},
            env=[
                field("HOST", "status.hostIP"),
                field("HOSTS", "status.hostIPs"),
                field("IP", "status.podIP"),
                field("IPS", "status.podIPs"),
            ],
        ),
        lambda seen: _equal(seen.log(), "127.0.0.1 " * 3 + "127.0.0.1\n"),
    ),
    "resources": Case(
        once(
            "echo $LC $LC1 $LM $LMM $RC $RM $RCM",
            env=[
                resource("LC", "limits.cpu"), resource("LC1", "limits.cpu", "1m"), resource("LM", "limits.memory"),
                resource("LMM", "limits.memory", "1Mi"), resource("RC", "requests.cpu"),
                resource("RM", "requests.memory", "1Ki"), resource("RCM", "requests.cpu", "1m", "c"),
            ],
            **LIMITED,
        ),
        writes(f"1 250 {20 * KIB * KIB} 20 1 {10 * KIB} 125\n"),
    ),
    "resources-unlimited": Case(
        once(
            "[ $C -ge 1 ] && [ $M -ge 100 ] && echo of=the-node",
            env=[resource("C", "limits.cpu"), resource("M", "limits.memory", "1Mi")],
        ),
        writes("of=the-node\n"),
    ),
    # Standard input and terminals
    # A pipe, with a name or without: that is the runtime's affair.
    "stdin": Case(once("test -p /proc/self/fd/0 && echo pipe", stdin=True, stdinOnce=True), writes("pipe\n")),
    "no-stdin": Case(once("cat; echo end"), writes("end\n")),
    "tty": Case(once("tty", tty=True, stdin=True), lambda seen: _true(seen.log().startswith("/dev/"))),
    "no-tty": Case(once("tty || true"), writes("not a tty\n")),
    # Ends
    "exit-0": Case(once("exit 0"), ends(0, "Completed", phase="Succeeded")),
    "exit-3": Case(once("exit 3"), ends(3, "Error")),
    "exit-255": Case(once("exit 255"), ends(255, "Error")),
    "killed": Case(killed_by(9), ends(137, "Error")),
    "terminated": Case(killed_by(15), ends(143, "Error")),
    "out-of-memory": Case(
        once(
            "until test -e /says/started; do sleep 0.1; done; tail -c 100000000 /dev/zero; s=$?; "
            "until test -e /says/seen; do sleep 0.1; done; exit $s",
            spec={"volumes": [{"name": "says", "emptyDir": {}}]},
            volumeMounts=[{"name": "says", "mountPath": "/says"}],
            resources={"limits": {"memory": "16Mi"}},
        ),
        ends(137, "OOMKilled"),
        once_the_runtime_has_seen_it,
    ),
    "one-fails": Case(
        pod("", container("c", "exit 0"), container("d", "exit 7"), restartPolicy="Never"),
        ends(7, "Error", name="d"),
    ),
    "init-fails": Case(
        pod("", container("c"), restartPolicy="Never", initContainers=[container("i", "exit 9")]),
        ends(9, "Error", name="i"),
    ),
    "on-failure": Case(
        once(
            "[ -e /data/f ] && exit 0; touch /data/f; exit 1",
            spec={"restartPolicy": "OnFailure", "volumes": [{"name": "data", "emptyDir": {}}]},
            volumeMounts=[{"name": "data", "mountPath": "/data"}],
        ),
        lambda seen: _equal(seen.container()["restartCount"], 1),
    ),
    "restarted": Case(
        pod("", container("c", "echo life; echo last words > /dev/termination-log; sleep 0.2; exit 3")),
        keeps_its_end,
        lambda seen: restarted(seen) and seen.reason() == "CrashLoopBackOff",
    ),
    # Containers that cannot start
    "no-such-command": Case(
        once("", command=["/no/such"]), ends(128, "StartError"),
    ),
    "no-such-command-again": Case(
        pod("", container("c", command=["/no/such"])),
        lambda seen: _equal(seen.state("c", "lastState")["exitCode"], 128),
        waits("RunContainerError", "CrashLoopBackOff"),
    ),
    "no-such-directory": Case(
        once("", command=["sh"], workingDir="/etc/passwd"), ends(128, "StartError")
    ),
    "too-much-environment": Case(
        once("", env=env(("BIG", "x" * KIB * KIB))), is_too_long
    ),
    "long-command": Case(once("", command=["sh", "-c", "echo " + "y" * 100_000 + " | wc -c"]), writes("100001\n")),
    "too-long-command": Case(once("", command=["sh", "-c", "z" * 2_000_000]), is_too_long),
    # Last words
    "words": Case(once("echo -n DONE > /dev/termination-log"), message("DONE")),
    "words-elsewhere": Case(
        once(
            "echo -n DONE > /dev/custom",
            terminationMessagePath="/dev/custom",
            securityContext={"runAsUser": 10000},
        ),
        message("DONE"),
    ),
    "words-read-only-root": Case(
        once("echo -n DONE > /dev/termination-log", securityContext={"readOnlyRootFilesystem": True, "runAsUser": 1}),
        message("DONE"),
    ),
    "words-new-directory": Case(
        once("echo -n DONE > /some/where/words", terminationMessagePath="/some/where/words"), message("DONE")
    ),
    "words-log-unused": Case(once("echo printed; exit 1"), message("", phase="Failed")),
    "words-of-log": Case(
        once("echo -n DONE; exit 1", terminationMessagePolicy="FallbackToLogsOnError"),
        message("DONE", phase="Failed"),
        tells("DONE"),
    ),
    "words-of-log-on-success": Case(
        once("echo -n DONE", terminationMessagePolicy="FallbackToLogsOnError"), message("")
    ),
    "words-of-file-first": Case(
        once("echo -n OK > /dev/termination-log; echo DONE", terminationMessagePolicy="FallbackToLogsOnError"),
        message("OK"),
    ),
    "words-last-lines": Case(
        once(FULL_LOG, terminationMessagePolicy="FallbackToLogsOnError"),
        message("".join(f"line {number}\n" for number in range(20, 100)), phase="Failed"),
        tells("line 99\n"),
    ),
    "words-too-many": Case(
        once("head -c 10000 /dev/zero | tr '\\0' x > /dev/termination-log"),
        lambda seen: _equal(len(seen.message()), 4 * KIB),
    ),
    "words-log-too-long": Case(
        once(
            "head -c 10000 /dev/zero | tr '\\0' x; exit 1", terminationMessagePolicy="FallbackToLogsOnError"
        ),
        lambda seen: _equal(len(seen.message()), 2 * KIB),
        tells("x" * 2 * KIB),
    ),
    "words-of-six": Case(
        pod(
            "",
            *(container(name, "head -c 4000 /dev/zero | tr '\\0' x > /dev/termination-log") for name in "abcdef"),
            restartPolicy="Never",
        ),
        shares_the_room,
    ),
    # Image pull policies
    "never-pulled": Case(
        once("", image="example.invalid/none:1", imagePullPolicy="Never"),
        fails("ErrImageNeverPull", 'Container image "example.invalid/none:1" is not present with pull policy of Never'),
        waits("ErrImageNeverPull"),
    ),
    "bad-image-name": Case(
        once("", image="Not/A/Good:Name:1", imagePullPolicy="IfNotPresent"),
        fails("InvalidImageName", 'Failed to apply default image tag "Not/A/Good:Name:1"'),
        waits("InvalidImageName"),
    ),
    # Plain containers run
    "runs": Case(pod("", container("c", SLEEP)), lambda seen: _equal(seen.container()["started"], True), ready),
}  # fmt: skip


def _equal(found: object, wanted: object) -> None:
    assert found == wanted


def _true(found: object) -> None:
    assert found


@pytest.fixture(scope="module")
def table(containerd: ContainerdInstance) -> Iterator[Table]:
    containerd.import_images(IMAGES)
    with running(containerd, TABLE, lets_a_shell_outlive_its_child) as one:
        yield one


def lets_a_shell_outlive_its_child(agent: Agent) -> tuple[str, ...]:
    """On cgroup v2 an OOM kill takes the whole container by default, and containerd may miss it then."""
    config = yaml.safe_load(agent.config.read_text())
    agent.config.write_text(yaml.safe_dump({**config, "singleProcessOOMKill": True}))
    return ()


@pytest.mark.parametrize("name", TABLE)
def test_containers(table: Table, name: str) -> None:
    table.check(name)
