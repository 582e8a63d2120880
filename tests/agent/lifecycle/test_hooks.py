"""postStart and preStop hooks on containerd: effects, failures, and no delay for other pods."""

from __future__ import annotations

import time
from contextlib import closing

import pytest

from proto.common.safe_text import one_line
from tests.agent.lifecycle.steps import STUBBORN, UP, Diary, execs, hook_server, noting
from tests.harness import PATIENCE, wait_for

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def diary(api):
    one = Diary(api)
    with closing(one.client):
        yield one


@pytest.fixture(scope="module")
def server():
    with hook_server() as one:
        yield one


def hooks(**handlers):
    return {"lifecycle": handlers}


def post_start_errors(api):
    """Starts that failed by their hook, so far."""
    errors = api.agent.counts("pod_workers", "kubelet_started_containers_errors_total")
    return errors.get(("container", "PostStartHookError"), 0)


def test_post_start_hooks_that_succeed(api, diary, server):
    headers = [{"name": "X-Hook", "value": "yes"}]
    credential = {"name": "Authorization", "value": "Bearer secret"}
    table = {
        "ps-exec": hooks(postStart=execs("note started")),
        "ps-http": hooks(postStart=server.get("/started?x=1", httpHeaders=headers)),
        "ps-http-500": hooks(postStart=server.get("/500")),
        "ps-https": hooks(postStart=server.get("/fallback", scheme="HTTPS", httpHeaders=[*headers, credential])),
        "ps-sleep": hooks(postStart={"sleep": {"seconds": 2}}),
        "ps-zero": hooks(postStart={"sleep": {"seconds": 0}}),
    }
    for name, fields in table.items():
        api.add(diary.pod(name, noting("c", **fields), noting("d")))
    api.wait_ready(*table, timeout_s=60)
    for name in table:
        assert diary.status(name).restart_count == 0
    assert "c started" in diary.words("ps-exec")
    request = server.asked("/started?x=1")
    assert "\r\nUser-Agent: kube-lifecycle/1.36\r\n" in request
    assert "\r\nX-Hook: yes\r\n" in request
    assert server.asked("/500")
    request = server.asked("/fallback")
    assert "\r\nX-Hook: yes\r\n" in request
    assert "secret" not in request, "a credential for HTTPS is not sent in clear"
    address = f"127.0.0.1:{server.port}"
    message = f"request to HTTPS lifecycle hook {address} got HTTP response, retry with HTTP succeeded"
    diary.wait_event("ps-https", "LifecycleHTTPFallback", message)
    assert api.agent.counts("pod_workers", "kubelet_lifecycle_handler_http_fallbacks_total") == {(): 1}
    # The next container waits for the hook of the one before.
    assert diary.began("ps-sleep", "d") - diary.began("ps-sleep", "c") >= 2


def test_sleep_that_the_grace_period_cuts_short_is_counted(api, diary):
    name = "kubelet_sleep_action_terminated_early_total"
    before = api.agent.counts("pod_workers", name).get((), 0)
    api.add(
        diary.pod("cut", noting("c", **hooks(preStop={"sleep": {"seconds": 100}})), terminationGracePeriodSeconds=1)
    )
    diary.wait_up("cut")
    api.delete("cut", 1)
    api.wait_gone("cut")
    assert api.agent.counts("pod_workers", name) == {(): before + 1}


@pytest.mark.parametrize(
    ("name", "handler", "message"),
    [
        (
            "pf-exec",
            {"exec": {"command": ["sh", "-c", "echo out; echo err >&2; exit 3"]}},
            'Exec lifecycle hook ([sh -c echo out; echo err >&2; exit 3]) for Container "c" in Pod "{pod}" failed'
            " - error: command 'sh -c echo out; echo err >&2; exit 3' exited with 3: err\n, message: \"out\\nerr\\n\"",
        ),
        ("pf-missing", {"exec": {"command": ["/no/such/hook"]}}, "Exec lifecycle hook ([/no/such/hook]) for Container"),
        (
            "pf-http",
            {"httpGet": {"host": "127.0.0.1", "port": 1, "path": "/x"}},
            'HTTP lifecycle hook (/x) for Container "c" in Pod "{pod}" failed - error: Get "http://127.0.0.1:1/x": dial'
            " tcp 127.0.0.1:1: connect: connection refused",
        ),
        (
            "pf-port",
            {"httpGet": {"port": "web", "path": "/x"}},
            'HTTP lifecycle hook (/x) for Container "c" in Pod "{pod}" failed - error: ',
        ),
        (
            "pf-tcp",
            {"tcpSocket": {"port": 80}},
            "Cannot run handler: invalid handler: &LifecycleHandler{{Exec:nil,HTTPGet:nil,"
            "TCPSocket:&TCPSocketAction{{Port:{{0 80 }},Host:,}},Sleep:nil,}}",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) and " " not in value else "",
)
def test_a_post_start_hook_that_fails_kills_its_container(api, diary, name, handler, message):
    # Some of these fail before the container's shell minds signals: then it is killed. Others fail before the
    # runtime's first process executes the shell: `runc init` ends with 2, as any Go program.
    spec = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 2}
    before = post_start_errors(api)
    stored = api.add(diary.pod(name, noting("c", **hooks(postStart=handler)), **spec))
    api.hold.add(name)
    ended = wait_for(lambda: (one := diary.status(name)) and one.state.terminated, 40, f"{name} ends")
    assert ended.exit_code in (0, 2, 137)
    assert diary.status(name).restart_count == 0
    wait_for(lambda: api.status(name).status.phase in ("Succeeded", "Failed"), 20, "and its pod")
    diary.wait_event(name, "FailedPostStartHook", "PostStartHook failed")
    diary.wait_event(name, "Killing", "FailedPostStartHook")
    wanted = ["Started", "FailedPostStartHook", "Killing"]
    assert [one.reason for one in diary.events(name) if one.reason in wanted] == wanted
    uid = stored.metadata.uid
    wanted = one_line(message.format(pod=f"{name}_default({uid})"))
    wait_for(lambda: wanted in api.agent.log.read_text(), 20, f"{wanted} in {api.agent.log}")
    assert post_start_errors(api) == before + 1
    api.hold.discard(name)
    api.delete(name)


def test_a_post_start_hook_that_fails_again_and_again_backs_off(api, diary):
    # The first container ends once. Its hook then holds up the start of the second one until the test has seen what is
    # to be seen: in this time there is nothing newer to say of that than that its hook has failed.
    first = noting(
        "b",
        "until test -e /out/$POD.failing; do sleep 0.1; done; test -e /out/$POD.again || { touch /out/$POD.again; "
        "exit 0; }; exec sleep 100000",
        **hooks(postStart=execs("! test -e /out/$POD.again || until test -e /out/$POD.seen; do sleep 0.1; done")),
    )
    fails = hooks(postStart=execs("touch /out/$POD.failing; sleep 1; exit 1"))
    api.add(diary.pod("pf-loop", first, noting("c", **fails)))
    seen = set()

    def backed_off():
        reason, message = diary.waiting("pf-loop")
        seen.add((reason, message))
        if reason == "PostStartHookError":
            (diary.dir / "pf-loop.seen").touch()
        return reason == "CrashLoopBackOff" and diary.status("pf-loop").restart_count >= 1

    wait_for(backed_off, 40, f"CrashLoopBackOff, not {seen}")
    (said,) = (message for reason, message in seen if reason == "CrashLoopBackOff")
    assert said.startswith("back-off 10s restarting failed container=c pod=pf-loop_default(")
    assert diary.status("pf-loop").last_state.terminated is not None
    assert "PostStartHookError" in {reason for reason, _ in seen}, "until its next end"
    time_in_loop = diary.words("pf-loop").count("c up")
    assert time_in_loop <= 3, "it is not started at once again and again"
    diary.delete("pf-loop", 1)


def test_a_post_start_hook_that_hangs_holds_up_its_pod_alone(api, diary, server):
    api.add(diary.pod("ph-exec", noting("c", **hooks(postStart=execs("note hanging; sleep 1000"))), noting("d")))
    api.add(diary.pod("ph-http", noting("c", **hooks(postStart=server.get("/hang"))), noting("d")))
    diary.wait("ph-exec", "c hanging")
    wait_for(lambda: server.asked("/hang"), 20, "the hook asked")
    for name in ("ph-exec", "ph-http"):
        diary.wait(name, "c up")
    api.add(diary.pod("ph-other", noting("c")))
    api.wait_ready("ph-other")
    assert diary.running("ph-exec") == ["c"]
    assert diary.waiting("ph-exec") == ("ContainerCreating", "")
    assert diary.waiting("ph-exec", "d") == ("ContainerCreating", "")
    # Deleted in the middle of its hook: told to end at once, and gone well within the grace period.
    for name in ("ph-exec", "ph-http"):
        assert diary.delete(name) < 20 * PATIENCE
        assert diary.words(name)[-1] == "c TERM"


def test_describe_says_which_hook_a_pod_waits_for(api, diary):
    both = hooks(postStart=execs("test -e /out/stuck.go || sleep 1000"), preStop=execs("sleep 1000"))

    def described():
        return api.agent.command("describe", "pod", "stuck", check=False).stdout

    api.add(diary.pod("stuck", noting("c", UP, **both)))
    wait_for(lambda: "Waits For:    postStart hook of container c (" in described(), 30, f"said: {described()}")
    api.delete("stuck", 30)
    wait_for(lambda: "Waits For:    preStop hook of container c (" in described(), 30, f"said: {described()}")
    diary.delete("stuck", 1)


def test_pre_stop_hooks_run_before_the_signal_and_count_as_grace(api, diary, server):
    httpd = (
        "mkdir /www; echo fine | tee /www/up > /www/bye; httpd -f -vv -p 8080 -h /www 2>> /out/httpd & "
        "until wget -q -O /dev/null http://127.0.0.1:8080/up; do sleep 0.1; done; note up; wait"
    )
    table = {
        "st-exec": (noting("c", **hooks(preStop=execs("note stopping; sleep 1; note stopped"))), 30),
        "st-http": (noting("c", **hooks(preStop=server.get("/stopping"))), 30),
        "st-named": (
            noting(
                "c",
                httpd,
                ports=[{"name": "web", "containerPort": 8080}],
                **hooks(preStop={"httpGet": {"port": "web", "path": "/bye"}}),
            ),
            5,
        ),
        "st-sleep": (noting("c", **hooks(preStop={"sleep": {"seconds": 2}})), 30),
        "st-fails": (noting("c", **hooks(preStop=execs("exit 1"))), 30),
        "st-missing": (noting("c", **hooks(preStop={"exec": {"command": ["/no/such/hook"]}})), 30),
        "st-tcp": (noting("c", **hooks(preStop={"tcpSocket": {"port": 80}})), 30),
        "st-hangs": (noting("c", **hooks(preStop=execs("note hanging; sleep 1000"))), 3),
        "st-http-hangs": (noting("c", **hooks(preStop=server.get("/hang"))), 3),
        "st-no-time": (noting("c", STUBBORN, **hooks(preStop=execs("note hanging; sleep 1000"))), 1),
    }
    for name, (one, grace_s) in table.items():
        api.add(diary.pod(name, one, terminationGracePeriodSeconds=grace_s))
    diary.wait_up(*table, timeout_s=90)
    began = time.monotonic()
    uptime = time.clock_gettime(time.CLOCK_BOOTTIME)
    for name in table:
        api.delete(name)
    api.wait_gone(*table, timeout_s=60)
    assert time.monotonic() - began < 40 * PATIENCE
    assert diary.words("st-exec") == ["c up", "c stopping", "c stopped", "c TERM"]
    assert server.asked("/stopping")
    wait_for(lambda: "url:/bye" in (diary.dir / "httpd").read_text(), 20, "the container's own server was asked")
    assert diary.at("st-sleep", "c TERM") - uptime >= 2
    for name in ("st-fails", "st-missing", "st-tcp", "st-hangs", "st-http-hangs"):
        assert diary.words(name)[-1] == "c TERM", "the stop goes on"
        diary.wait_event(name, "FailedPreStopHook", "PreStopHook failed")
    for name in ("st-hangs", "st-http-hangs"):
        assert 3 <= diary.at(name, "c TERM") - uptime < 20, "the hook had the grace period"
    assert "c TERM" in diary.words("st-no-time"), "a second is too short for both, so the signal gets its two"
    for name in ("st-exec", "st-http", "st-sleep"):
        assert "FailedPreStopHook" not in {reason for reason, _ in diary.reasons(name)}
        diary.wait_event(name, "Killing", "Stopping container c")


def test_shorter_grace_period_shortens_a_hook_without_a_rerun(api, diary):
    api.add(diary.pod("short", noting("c", UP, **hooks(preStop=execs("note hanging; sleep 1000")))))
    diary.wait_up("short")
    api.delete("short", 600)
    diary.wait("short", "c hanging")
    began = time.monotonic()
    api.delete("short", 2)
    api.wait_gone("short")
    assert time.monotonic() - began < 20 * PATIENCE
    assert diary.words("short") == ["c up", "c hanging", "c TERM"]
