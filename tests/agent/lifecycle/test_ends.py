"""Ends of pods on containerd: signals, grace periods and hooks, with kills of actors at any point."""

from __future__ import annotations

import socket
import time
from contextlib import closing

import pytest

from tests.agent.agent import container
from tests.agent.lifecycle.steps import SLEEPING, STUBBORN, UP, Diary, execs, noting, sidecar
from tests.containerd.images import Image
from tests.harness import PATIENCE, wait_for
from tests.runtime.instance import EmbeddedInstance

pytestmark = pytest.mark.timeout(300)


USR1_IMAGE = Image("docker.io/library/usr1:1", stop_signal="SIGUSR1")


@pytest.fixture(scope="module")
def diary(api):
    one = Diary(api)
    with closing(one.client):
        yield one


@pytest.fixture
def silent_registry():
    """An address that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}/none:1"


def uptime_s():
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def gone(api, name):
    return not any(one.startswith(f"{name}/") for one, _ in api.agent.containers().values())


def test_signal_then_kill_at_the_end_of_the_grace_period(api, diary, containerd):
    containerd.import_images([USR1_IMAGE])
    table = {
        "obedient": (noting("c"), 30),
        "stubborn": (noting("c", STUBBORN), 3),
        "forced": (noting("c", STUBBORN), 0),
        "image-signal": (
            {**noting("c", "trap 'note USR1; exit 0' USR1; note up; sleep 1000 & wait"), "image": USR1_IMAGE.name},
            30,
        ),
    }
    for name, (one, grace_s) in table.items():
        api.add(diary.pod(name, one, terminationGracePeriodSeconds=grace_s))
    diary.wait_up(*table)
    api.hold.update(table)
    began_s = uptime_s()
    for name in table:
        api.delete(name)
    codes = {}
    for name in table:
        shown = wait_for(lambda name=name: (s := diary.status(name)) and s.state.terminated, 40, f"{name} ended")
        codes[name] = shown.exit_code
    assert codes == {"obedient": 0, "stubborn": 137, "forced": 137, "image-signal": 0}
    assert diary.words("image-signal") == ["c up", "c USR1"]
    for name in ("obedient", "stubborn", "forced"):
        assert diary.words(name) == ["c up", "c TERM"], "even a grace period of 0 lets it hear of its end"
    assert diary.at("obedient", "c TERM") - began_s < 15 * PATIENCE
    api.hold.difference_update(table)
    api.wait_gone(*table)


@pytest.mark.parametrize("wanted", ["SIGUSR1", "SIGRTMIN+3"])
def test_status_has_the_stop_signal_that_ends_a_container(api, diary, containerd, wanted):
    name = f"signal-{wanted[3:].lower().replace('+', '-')}"
    number = {"SIGUSR1": 10, "SIGRTMIN+3": 37}[wanted]
    script = f"trap 'note wanted; exit 0' {number}; trap 'note TERM; exit 0' TERM; note up; sleep 1000 & wait"
    one = noting("c", script, lifecycle={"stopSignal": wanted})
    api.add(diary.pod(name, one, os={"name": "linux"}))
    diary.wait_up(name)
    shown = diary.status(name).stop_signal
    # containerd 1.6 and 2.1 ignore it, and then the status does not claim it.
    assert shown in ((wanted,) if isinstance(containerd, EmbeddedInstance) else (wanted, None))
    wait_for(lambda: any(reason == "Started" for reason, _ in diary.reasons(name)), 20, "its events are there")
    assert any(reason == "StopSignalIgnored" for reason, _ in diary.reasons(name)) is (shown is None)
    diary.delete(name)
    assert diary.words(name) == ["c up", "c wanted" if shown else "c TERM"]


def test_later_shorter_delete_shortens_a_running_stop(api, diary):
    spec = {"initContainers": [sidecar("s", STUBBORN)]}
    api.add(diary.pod("hurry", noting("c", STUBBORN), **spec))
    diary.wait_up("hurry", of=("s", "c"))
    api.delete("hurry", 600)
    diary.wait("hurry", "c TERM")
    began = time.monotonic()
    api.delete("hurry", 3)
    api.wait_gone("hurry")
    assert time.monotonic() - began < 20 * PATIENCE
    assert diary.words("hurry").count("c TERM") == 1
    assert "s TERM" in diary.words("hurry")


def test_pods_that_are_deleted_while_they_start(api, diary, silent_registry):
    api.add(diary.pod("pulling", {**noting("c"), "image": silent_registry, "imagePullPolicy": "Always"}))
    api.add(diary.pod("in-init", noting("c"), initContainers=[noting("i", UP)]))
    wait_for(lambda: (now := api.status("pulling")) and now.status.pod_ip, 20, "it has a sandbox")
    diary.wait("in-init", "i up")
    # Nothing waits for it: its sandbox is being made. A container that has begun may not mind the signal yet.
    api.add(diary.pod("sandbox", noting("c"), terminationGracePeriodSeconds=5))
    began = time.monotonic()
    for name in ("pulling", "in-init", "sandbox"):
        api.delete(name)
    api.wait_gone("pulling", "in-init", "sandbox")
    assert time.monotonic() - began < 20 * PATIENCE
    assert diary.words("in-init") == ["i up", "i TERM"]
    wait_for(lambda: not any("sandbox/" in one for one in api.agent.running().values()), 10, "nothing runs")
    api.add(diary.pod("after", noting("c")))
    api.wait_ready("after")
    diary.delete("after")


def test_active_deadlines_also_end_what_hangs(api, diary):
    hang = {"postStart": execs("note hanging; sleep 1000")}
    table = {
        # On a busy machine it has just begun then, and does not mind the signal yet.
        "late": diary.pod("late", noting("c"), activeDeadlineSeconds=3, terminationGracePeriodSeconds=5),
        "late-hook": diary.pod("late-hook", noting("c", lifecycle=hang)),
        "late-init": diary.pod("late-init", noting("c"), initContainers=[noting("i", UP)]),
    }
    for manifest in table.values():
        api.add(manifest)
    for name, words in {"late-hook": ("c up", "c hanging"), "late-init": ("i up",)}.items():
        for word in words:
            diary.wait(name, word)
        api.update(name, active_deadline_seconds=1)
    for name in table:
        shown = api.wait_phase(name, "Failed", 40).status
        message = "Pod was active on the node longer than the specified deadline"
        assert (shown.reason, shown.message) == ("DeadlineExceeded", message)
        diary.wait_event(name, "DeadlineExceeded", message)
        wait_for(lambda name=name: diary.running(name) == [], 30, f"{name} ends")
        api.delete(name)
    api.wait_gone(*table)
    *began, ended = diary.words("late-hook")
    assert (set(began), ended) == ({"c up", "c hanging"}, "c TERM"), "the hook and the container begin side by side"


def test_a_probes_own_grace_period_goes_before_the_pods(api, diary):
    # Before the runtime's first process executes the command, SIGTERM would end it.
    fails = {"exec": {"command": ["sh", "-c", "until test -e /tmp/up; do sleep 0.1; done; exit 1"]}}
    probe = {**fails, "periodSeconds": 1, "failureThreshold": 1, "timeoutSeconds": 30}
    slow = noting("c", f"touch /tmp/up; {STUBBORN}", livenessProbe={**probe, "terminationGracePeriodSeconds": 2})
    api.add(diary.pod("sick", slow, terminationGracePeriodSeconds=600))
    wait_for(lambda: (s := diary.status("sick")) and s.restart_count >= 1, 60, f"restarted; log: {api.agent.log}")
    assert diary.status("sick").last_state.terminated.exit_code == 137
    diary.wait_event("sick", "Killing", "Container c failed liveness probe, will be restarted")
    diary.delete("sick", 1)


def test_pod_workers_killed_in_a_hook(api, diary):
    wait_then = "note {0}; while ! test -e /out/go; do sleep 0.1; done; note {0}-over"
    post = noting("c", lifecycle={"postStart": execs(wait_then.format("post"))})
    pre = noting("c", lifecycle={"preStop": execs(wait_then.format("pre"))})
    api.add(diary.pod("killed-post", post, noting("d")))
    api.add(diary.pod("killed-pre", pre))
    diary.wait_up("killed-pre")
    diary.wait("killed-post", "c post")
    api.delete("killed-pre", 60)
    diary.wait("killed-pre", "c pre")
    api.agent.kill_actors("pod_workers")
    # As in the kubelet: what was started runs on, and its hook is not run again; the others follow.
    api.wait_ready("killed-post")
    assert diary.words("killed-post").count("c post") == 1
    assert diary.status("killed-post").restart_count == 0
    # A stop begins anew, with its hook.
    wait_for(lambda: diary.words("killed-pre").count("c pre") == 2, 40, "the hook again")
    assert "c TERM" not in diary.words("killed-pre")
    (diary.dir / "go").touch()
    api.wait_gone("killed-pre")
    assert diary.words("killed-pre")[-1] == "c TERM"
    diary.delete("killed-post")


def test_exits_are_shown_while_another_container_ends(api, diary):
    """A container that ends at once, and a sidecar that crashes, beside a container in its hook."""

    def exit_code(container):
        state = diary.status("exits", container).state
        return state.terminated.exit_code if state.terminated is not None else None

    hook = execs("note hook; while ! test -e /out/exits.go; do sleep 0.1; done")
    crashing = "trap '' TERM; note up; while ! test -e /out/exits.die; do sleep 0.1; done; exit 7"
    containers = noting("quick"), noting("slow", lifecycle={"preStop": hook})
    spec = {"initContainers": [sidecar("s", crashing)], "terminationGracePeriodSeconds": 600}
    api.add(diary.pod("exits", *containers, **spec))
    diary.wait_up("exits", of=("s", "quick", "slow"))
    api.delete("exits")
    wait_for(lambda: exit_code("quick") == 0, 30, f"its end is shown; log: {api.agent.log}")
    assert not diary.status("exits", "quick").ready
    assert diary.status("exits", "slow").state.running
    (diary.dir / "exits.die").touch()
    wait_for(lambda: exit_code("s") == 7, 30, f"its crash is shown; log: {api.agent.log}")
    api.agent.kill_actors("pod_workers")
    wait_for(lambda: diary.words("exits").count("slow hook") == 2, 40, "the hook again")
    assert [exit_code(one) for one in ("quick", "s", "slow")] == [0, 7, None]
    assert api.status("exits").status.phase == "Running"
    (diary.dir / "exits.go").touch()
    api.wait_gone("exits")


def test_the_runtime_killed_in_a_hook(api, diary, containerd):
    hook = {"preStop": execs("note hook; test -e /out/away.again && exit 0; touch /out/away.again; sleep 1000")}
    api.add(diary.pod("away", noting("c", lifecycle=hook), terminationGracePeriodSeconds=60))
    api.add(diary.pod("away-post", noting("c", lifecycle={"postStart": execs("note hook; sleep 1000")})))
    diary.wait_up("away")
    diary.wait("away-post", "c hook")
    api.delete("away")
    diary.wait("away", "c hook")
    wait_for((diary.dir / "away.again").exists, 20, "the next one will end at once")
    containerd.kill()
    containerd.start()
    api.wait_gone("away", timeout_s=60)
    assert diary.words("away") == ["c up", "c hook", "c hook", "c TERM"], "the signal waits for a hook that has ended"
    assert "FailedPreStopHook" not in {reason for reason, _ in diary.reasons("away")}
    api.wait_ready("away-post")
    assert diary.status("away-post").restart_count == 0
    assert "FailedPostStartHook" not in {reason for reason, _ in diary.reasons("away-post")}
    diary.delete("away-post", 1)


def test_a_stop_of_the_actor_waits_for_no_call(api, diary):
    api.add(diary.pod("stopping", noting("c", STUBBORN)))
    hook = {"preStop": execs("note pre; sleep 1000")}
    api.add(diary.pod("hooking", noting("c", lifecycle=hook)))
    diary.wait_up("stopping", "hooking")
    for name in ("stopping", "hooking"):
        api.delete(name, 600)
    diary.wait("stopping", "c TERM")
    diary.wait("hooking", "c pre")
    began = time.monotonic()
    before = api.agent.rows()["pod_workers"]["incarnation"]
    api.agent.command("restart", "pod_workers")
    wait_for(lambda: api.agent.rows().get("pod_workers", {}).get("incarnation", 0) > before, 10, "restarted")
    wait_for(api.agent.all_ready, 10, "in service")
    assert time.monotonic() - began < 10 * PATIENCE
    for name in ("stopping", "hooking"):
        api.delete(name, 1)
    api.wait_gone("stopping", "hooking")
    wait_for(lambda: gone(api, "stopping") and gone(api, "hooking"), 20, "nothing is left")


def test_hooks_of_a_pod_whose_spec_is_lost(api, diary):
    named = {"httpGet": {"port": "web", "path": "/bye"}}
    httpd = "mkdir /www; echo fine > /www/bye; note up; httpd -f -vv -p 8080 -h /www 2>> /out/lost-httpd & wait"
    ports = [{"name": "web", "containerPort": 8080}]
    main = [
        noting("c", lifecycle={"preStop": execs("note pre")}),
        noting("d", httpd, ports=ports, lifecycle={"preStop": named}),
    ]
    api.agent.write("lost", diary.pod("lost", *main, terminationGracePeriodSeconds=5))
    full = f"lost-{api.agent.node}"
    wait_for(lambda: {"c up", "d up"} <= set(diary.words(full)), 30, "it runs")
    api.agent.stop()
    (api.agent.manifests / "lost.yaml").unlink()
    api.agent.start()
    wait_for(lambda: diary.words(full)[-1] == "c TERM", 40, f"ended in grace; log: {api.agent.log}")
    assert diary.words(full)[-2:] == ["c pre", "c TERM"]
    wait_for(lambda: "url:/bye" in (diary.dir / "lost-httpd").read_text(), 10, "the hook that names a port")
    wait_for(lambda: gone(api, full), 30, "nothing is left")


def test_replaced_static_pod_starts_after_the_old_ones_hook(api, diary):
    hook = {"preStop": execs("note pre; sleep 2; note pre-over")}
    full = f"twice-{api.agent.node}"
    api.agent.write("twice", diary.pod("twice", noting("c", lifecycle=hook)))
    wait_for(lambda: diary.words(full) == ["c up"], 30, "it runs")
    api.agent.write("twice", diary.pod("twice", noting("e", lifecycle=hook)))
    wait_for(lambda: "e up" in diary.words(full), 40, f"the new one; log: {api.agent.log}")
    assert diary.words(full) == ["c up", "c pre", "c pre-over", "c TERM", "e up"]
    (api.agent.manifests / "twice.yaml").unlink()
    wait_for(lambda: gone(api, full), 30, "nothing is left")


def test_two_hundred_containers_in_one_pod_hold_up_no_other(api, diary):
    api.add(diary.pod("crowd", *[container(f"c{n}", SLEEPING) for n in range(200)], terminationGracePeriodSeconds=1))
    wait_for(lambda: len(diary.running("crowd")) >= 5, 60, "it has begun")
    began = time.monotonic()
    api.add(diary.pod("single", noting("c")))
    diary.wait_up("single")
    assert len(diary.running("crowd")) < 200, "the other one was ready before all of these"
    assert time.monotonic() - began < 20 * PATIENCE
    shown = api.status("crowd").status
    assert (shown.phase, len(shown.container_statuses)) == ("Pending", 200)
    assert diary.delete("single") < 20 * PATIENCE
    diary.delete("crowd", 1)
