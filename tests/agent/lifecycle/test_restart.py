"""Restarts of containers: policies and rules (KEP-5307), all at once (KEP-5532), and ephemeral ones without any."""

from __future__ import annotations

import time
from contextlib import closing

import pytest

from tests.agent.lifecycle.steps import SLEEPING, UP, Diary, noting, sidecar
from tests.containerd.images import Image
from tests.harness import PATIENCE, wait_for

pytestmark = pytest.mark.timeout(300)

FIRST = "note up; test -e /out/$POD.$NAME || { touch /out/$POD.$NAME; exit %d; }; "
"""The first life ends with that code, the next ones go on."""


@pytest.fixture(scope="module")
def diary(api):
    one = Diary(api)
    with closing(one.client):
        yield one


def rule(action, operator, *values):
    return {"action": action, "exitCodes": {"operator": operator, "values": list(values)}}


def test_policies_and_rules_of_single_containers(api, diary):
    stays = noting("c")
    table = {
        # name: (pod's policy, the container, its restart count in the end, its exit code in the end)
        "never": ("Always", noting("x", "note up; exit 1", restartPolicy="Never"), 0, 1),
        "on-failure-ok": ("Always", noting("x", "note up; exit 0", restartPolicy="OnFailure"), 0, 0),
        "on-failure": ("Never", noting("x", FIRST % 3 + "exit 0", restartPolicy="OnFailure"), 1, 0),
        "always": ("Never", noting("x", FIRST % 0 + "sleep 1000", restartPolicy="Always"), 1, None),
        "in": (
            "Never",
            noting(
                "x", FIRST % 42 + "exit 1", restartPolicy="Never", restartPolicyRules=[rule("Restart", "In", 41, 42)]
            ),
            1,
            1,
        ),
        "not-in": (
            "Never",
            noting(
                "x", FIRST % 9 + "exit 1", restartPolicy="Never", restartPolicyRules=[rule("Restart", "NotIn", 0, 1)]
            ),
            1,
            1,
        ),
    }
    for name, (policy, one, _, _) in table.items():
        api.add(diary.pod(name, stays, one, restartPolicy=policy))
    for name, (_, _, restarts, code) in table.items():

        def settled(name=name, restarts=restarts, code=code):
            found = diary.status(name, "x")
            if found is None or found.restart_count != restarts or found.state.waiting is not None:
                return False
            ended = found.state.terminated
            as_wanted = ended is None if code is None else ended is not None and ended.exit_code == code
            return as_wanted and diary.words(name).count("x up") == restarts + 1

        try:
            wait_for(settled, 60)
        except AssertionError:
            raise AssertionError(f"{name}: {diary.words(name)}, {diary.status(name, 'x')}") from None
        assert api.status(name).status.phase == "Running"
    for name in table:
        api.delete(name)
    api.wait_gone(*table, timeout_s=60)


def test_policies_and_rules_of_init_containers(api, diary):
    once = noting("i", "note up; exit 1", restartPolicy="Never")
    api.add(diary.pod("init-never", noting("c"), initContainers=[once], restartPolicy="Always"))
    again = noting("i", FIRST % 42, restartPolicy="Never", restartPolicyRules=[rule("Restart", "In", 42)])
    api.add(diary.pod("init-rule", noting("c"), initContainers=[again], restartPolicy="Never"))
    api.wait_phase("init-never", "Failed")
    assert diary.words("init-never") == ["i up"]
    diary.wait_up("init-rule")
    assert diary.words("init-rule") == ["i up", "i up", "c up"]
    assert diary.status("init-rule", "i").restart_count == 1
    for name in ("init-never", "init-rule"):
        api.delete(name)
    api.wait_gone("init-never", "init-rule")


def restarting_pod(diary, name):
    """One rule, and beside it: a finished container, a running one with a hook, an init one, a sidecar."""
    hook = {"preStop": {"sleep": {"seconds": 60}}}
    trigger = noting(
        "x",
        "note up; while ! test -e /out/$POD.go; do sleep 0.1; done; rm /out/$POD.go; note out; exit 88",
        restartPolicy="Never",
        restartPolicyRules=[rule("RestartAllContainers", "In", 88)],
    )
    main = [trigger, noting("done", "note up; exit 1"), noting("c", lifecycle=hook)]
    noted = {"exec": {"command": ["test", "-e", "/tmp/up"]}, "periodSeconds": 1, "failureThreshold": 60}
    beside = sidecar("s", UP.replace("note up", "note up; touch /tmp/up"), startupProbe=noted)
    return diary.pod(name, *main, initContainers=[noting("i", "note up"), beside], restartPolicy="Never")


def sandboxes_of(api, name):
    """IDs of one pod's: those of the pods before may just be collected."""
    return [one.id for one in api.agent.containerd.cri.list_pod_sandbox().result() if one.metadata.name == name]


def counts(diary, name):
    found = {one: diary.status(name, one) for one in ("i", "s", "x", "done", "c")}
    return {one: status.restart_count for one, status in found.items() if status is not None}


def test_a_rule_restarts_all_containers_in_place(api, diary):
    api.add(restarting_pod(diary, "all"))
    wait_for(lambda: {"x up", "done up", "c up"} <= set(diary.words("all")), 30, "all run")
    sandboxes = sandboxes_of(api, "all")
    before = api.status("all").status.pod_ip
    (diary.dir / "all.go").touch()
    wait_for(lambda: set(counts(diary, "all").values()) == {1}, 40, f"all ran twice; log: {api.agent.log}")
    wait_for(lambda: diary.words("all").count("c up") == 2, 30, "up again")
    assert sandboxes_of(api, "all") == sandboxes
    shown = api.status("all").status
    assert (shown.phase, shown.pod_ip) == ("Running", before)
    ended = diary.status("all", "c").last_state.terminated
    message = "The container is removed because RestartAllContainers in place"
    assert (ended.exit_code, ended.reason, ended.message) == (137, "RestartingAllContainers", message)
    words = diary.words("all")
    second = words[words.index("x out") + 1 :]
    assert second.index("i up") < second.index("s up") < second.index("c up")
    wait_for(lambda: api.condition("all", "AllContainersRestarting") == "False", 10, "the condition is over")
    # Again at once: not before its back-off is over, and the others do not run meanwhile.
    (diary.dir / "all.go").touch()
    wait_for(lambda: diary.waiting("all", "x")[0] == "CrashLoopBackOff", 20, f"back-off; log: {api.agent.log}")
    assert api.condition("all", "AllContainersRestarting") == "True"
    assert diary.waiting("all", "c")[0] == "RestartingAllContainers"
    assert diary.running("all") == []
    # Killed in the middle of it, the agent goes on where it was.
    api.agent.command("restart", "pod_workers")
    wait_for(lambda: set(counts(diary, "all").values()) == {2}, 60, f"all ran three times; log: {api.agent.log}")
    diary.delete("all", 1)


def test_ephemeral_containers(api, diary):
    held = "note up; until test -e /out/debugged.go; do sleep 0.1; done"
    api.add(diary.pod("debugged", noting("c", "note up; exec sleep 54321"), initContainers=[noting("i", held)]))
    diary.wait("debugged", "i up")
    early = noting("early", "note up; exit 3")
    api.update("debugged", ephemeral_containers=[early])
    diary.wait("debugged", "early up")
    assert "c up" not in diary.words("debugged"), "the pod need not be initialized"
    (diary.dir / "debugged.go").touch()
    api.wait_ready("debugged")
    look = "until grep -q ^sleep /proc/1/cmdline; do sleep 0.1; done; note \"$(tr '\\0' ' ' < /proc/1/cmdline)\"; "
    seer = noting("seer", look + SLEEPING, targetContainerName="c")
    lost = noting("lost", "note up", targetContainerName="nobody")
    api.update("debugged", ephemeral_containers=[early, seer, lost])
    diary.wait("debugged", "seer sleep 54321 ")
    message = ("CreateContainerConfigError", "unable to find target container nobody")
    wait_for(lambda: diary.waiting("debugged", "lost") == message, 20, "lost")
    diary.wait_event("debugged", "Failed", f"Error: {message[1]}")
    ended = wait_for(lambda: diary.status("debugged", "early").state.terminated, 20, "early ended")
    assert (ended.exit_code, diary.status("debugged", "early").restart_count) == (3, 0)
    api.agent.command("restart", "pod_workers")  # returns once it is in service
    wait_for(api.agent.all_ready, 20, "restarted")
    wait_for(lambda: diary.running("debugged") == ["c", "seer"], 20, "as before")
    assert api.condition("debugged", "Ready") == "True"
    assert api.status("debugged").status.phase == "Running"
    assert [word for word in diary.words("debugged") if word.startswith("early")] == ["early up"]
    diary.delete("debugged", 2)


def test_a_privileged_ephemeral_container_starts(api, diary):
    # As of `kubectl debug --profile=sysadmin`: the pod's sandbox was made without privileges.
    api.add(diary.pod("plain", noting("c")))
    diary.wait_up("plain")
    mighty = noting("mighty", securityContext={"privileged": True})
    api.update("plain", ephemeral_containers=[mighty])
    diary.wait("plain", "mighty up")
    api.agent.command("restart", "pod_workers")  # the sandbox's configuration is made anew after it
    wait_for(api.agent.all_ready, 20, "restarted")
    again = noting("again", securityContext={"privileged": True})
    api.update("plain", ephemeral_containers=[mighty, again])
    diary.wait("plain", "again up")
    # Its process may write before the runtime lists it as running.
    wait_for(lambda: diary.running("plain") == ["again", "c", "mighty"], 20, "all three run")
    diary.delete("plain", 2)


def test_an_ephemeral_container_keeps_no_pod_alive(api, diary):
    held = noting("c", "note up; until test -e /out/over.go; do sleep 0.1; done")
    api.add(diary.pod("over", held, restartPolicy="Never", terminationGracePeriodSeconds=1))
    diary.wait("over", "c up")
    api.update("over", ephemeral_containers=[noting("e", "note up; exec sleep 1000")])
    diary.wait("over", "e up")
    (diary.dir / "over.go").touch()
    api.wait_phase("over", "Succeeded")
    wait_for(lambda: diary.running("over") == [], 20, "it ended with the pod")
    api.delete("over")
    api.wait_gone("over")


def test_another_image_starts_the_back_off_over(api, diary, containerd):
    other = "docker.io/library/restart-other:1"
    containerd.import_images([Image(other)])  # before, since the back-off does not wait for it
    crashing = noting("c", 'note "up"; exit 1')
    api.add(diary.pod("looping", crashing))
    wait_for(lambda: diary.waiting("looping")[1].startswith("back-off 20s"), 60, f"held back; log: {api.agent.log}")
    began = time.monotonic()
    api.update_container("looping", "c", image=other)
    wait_for(lambda: diary.words("looping").count("c up") == 4, 60, "started again")
    assert time.monotonic() - began < 15 * PATIENCE, "at once"
    wait_for(
        lambda: diary.waiting("looping")[1].startswith("back-off 10s"), 30, f"from 10 s on: {diary.waiting('looping')}"
    )
    assert diary.status("looping").restart_count == 3
    diary.delete("looping", 1)
