"""A whole agent with pods: its metrics, hung and dead actors, and the page in a browser."""

from __future__ import annotations

import gzip
import http.client
import json
import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from actors._cgroup.hierarchy import hierarchy, own_cgroups
from actors.server.figures.collect import YOUNG_S
from proto.node.summary import Summary
from tests.agent.agent import Agent, container, is_ready, pod
from tests.containerd import ContainerdInstance
from tests.harness import wait_for
from tests.metrics.browser import Browser
from tests.metrics.test_golden import GOLDEN
from tests.ports import free_port

PROBED = pod(
    "probed",
    container(
        "web",
        "mkdir -p /w; echo ok > /w/i; exec httpd -f -p 8080 -h /w",
        readinessProbe={"httpGet": {"path": "/i", "port": 8080}, "periodSeconds": 1},
        resources={"limits": {"memory": "32Mi"}},
        volumeMounts=[{"name": "data", "mountPath": "/data"}],
    ),
    volumes=[{"name": "data", "emptyDir": {}}],
)
HOST = pod("host", hostNetwork=True)


class Observed(Agent):
    """An agent with a page, on a port of its own beside the server's."""

    page_port = 0

    def get(self, path: str, method: str = "GET", **headers: str) -> tuple[int, bytes, dict[str, str]]:
        connection = http.client.HTTPConnection("127.0.0.1", self.page_port, timeout=60)
        with closing(connection):
            connection.request(method, path, headers={name.replace("_", "-"): value for name, value in headers.items()})
            answer = connection.getresponse()
            return answer.status, answer.read(), {name.lower(): value for name, value in answer.getheaders()}

    def metrics(self, path: str = "/metrics") -> dict[str, list[Sample]]:
        """Samples by family; the parser sees that all of it is right."""
        status, data, headers = self.get(path)
        assert status == 200, data
        assert headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
        return {one.name: one.samples for one in text_string_to_metric_families(data.decode())}

    def value(self, family: str, **labels: str) -> float:
        """The sum of a family's samples with these labels."""
        found = self.metrics().get(family, [])
        return sum(one.value for one in found if labels.items() <= one.labels.items() and "le" not in one.labels)


@pytest.fixture(scope="module")
def agent(containerd: ContainerdInstance) -> Iterator[Observed]:
    with closing(Observed(containerd)) as one:
        one.page_port = free_port()
        one.leave_stopped()
        # The watchdog must not replace an actor that a test has stopped. Scrapes may take long then.
        (one.dir / "supervisor.yaml").write_text(
            "defaults: {stopped_deadline_s: 0, heartbeat_deadline_s: 120, suspected_deadline_s: 0}\n"
        )
        one.start(f"--page-address={one.page_port}")
        one.write("probed", PROBED)
        one.write("host", HOST)
        wait_for(lambda: is_ready(one.pod("probed")) and is_ready(one.pod("host")), 60, f"two pods; log: {one.log}")
        yield one


def test_kubelet_metrics_have_their_types_on_a_real_node(agent: Observed) -> None:
    wrong = {}
    for endpoint, known in GOLDEN.items():
        status, data, _ = agent.get(endpoint)
        assert status == 200
        for family in text_string_to_metric_families(data.decode()):
            golden = known.get(family.name) or known.get(f"{family.name}_total")
            labels = sorted({label for sample in family.samples for label in sample.labels} - {"le"})
            if golden is not None and (family.type != golden["type"] or (labels and labels != golden["labels"])):
                wrong[endpoint, family.name] = (family.type, labels, golden)
    assert wrong == {}


@pytest.mark.parametrize("path", ["/metrics", "/metrics/cadvisor", "/metrics/resource", "/metrics/probes"])
def test_metrics_are_compressed_for_clients_that_accept_gzip(agent: Observed, path: str) -> None:
    _, plain, headers = agent.get(path)
    assert "content-encoding" not in headers
    status, data, headers = agent.get(path, Accept_Encoding="gzip")
    assert (status, headers["content-encoding"]) == (200, "gzip")
    assert headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert gzip.decompress(data).splitlines()[0] == plain.splitlines()[0]


def test_starts_and_calls_are_counted(agent: Observed) -> None:
    assert agent.value("kubelet_started_pods") == 2
    assert agent.value("kubelet_started_containers", container_type="container") == 2
    assert agent.value("kubelet_runtime_operations", operation_type="run_podsandbox") == 2
    assert agent.value("kubelet_desired_pods", static="true") == 2
    assert agent.value("kubelet_active_pods", static="true") == 2
    assert agent.value("kubelet_mirror_pods") == 0
    assert len(agent.metrics()["kubelet_working_pods"]) == 15
    assert agent.value("kubelet_node_name", node="vm") == 1
    assert agent.value("volume_manager_total_volumes", plugin_name="kubernetes.io/empty-dir") == 2
    families = agent.metrics()
    started = {one.name: one.value for one in families["kubelet_pod_start_duration_seconds"] if "le" not in one.labels}
    assert started["kubelet_pod_start_duration_seconds_count"] == 2
    results = agent.metrics("/metrics/probes")["prober_probe"]
    assert {(one.labels["pod"], one.labels["result"]) for one in results} >= {("probed-vm", "successful")}
    assert agent.value("process_resident_memory_bytes") > 50 << 20
    assert agent.value("kubelet_http_requests", path="metrics", server_type="readonly", long_running="false") > 0
    assert not any(one.labels.get("actor") == "actor" for family in families.values() for one in family)
    assert agent.value("nodevisor_actor_up", actor="pleg", state="ready") == 1


def test_counters_never_go_back_when_an_actor_is_killed(agent: Observed) -> None:
    before = agent.value("kubelet_runtime_operations")
    row = agent.rows()["pod_workers"]
    os.kill(row["pid"], signal.SIGKILL)
    wait_for(lambda: agent.value("nodevisor_actor_incarnation", actor="pod_workers") > row["incarnation"], 20)
    assert agent.value("kubelet_runtime_operations") >= before
    assert agent.value("nodevisor_actor_restarts", actor="pod_workers") == 1
    server = agent.rows()["server"]
    os.kill(server["pid"], signal.SIGKILL)
    wait_for(lambda: agent.rows().get("server", server)["incarnation"] > server["incarnation"], 20)
    wait_for(lambda: answers(agent), 20)
    assert agent.value("kubelet_runtime_operations") >= before, (
        "what the dead had counted is kept over the server's end"
    )


def answers(agent: Observed) -> bool:
    try:
        return agent.get("/metrics")[0] == 200
    except OSError:
        return False


def test_hung_actor_delays_a_scrape_by_a_second_at_most(agent: Observed) -> None:
    before = agent.value("prober_probe_total") or agent.metrics("/metrics/probes")["prober_probe"]
    pid = agent.rows()["image_gc"]["pid"]
    os.kill(pid, signal.SIGSTOP)
    try:
        time.sleep(0.6)  # past what scrapes share
        began = time.monotonic()
        scrapes = [agent.metrics()]
        first_s = time.monotonic() - began
        later_s = []
        for _ in range(4):
            time.sleep(0.6)
            began = time.monotonic()
            scrapes.append(agent.metrics())
            later_s.append(time.monotonic() - began)
    finally:
        os.kill(pid, signal.SIGCONT)
    assert before
    assert 0.9 < first_s < 20
    assert min(later_s) < first_s, "it is waited for less once it is known to be silent"
    ages = [
        {one.labels["actor"]: one.value for one in families["nodevisor_actor_metrics_age_seconds"]}
        for families in scrapes
    ]
    assert min(age["image_gc"] for age in ages) > 0.5
    assert min(age["pleg"] for age in ages) < 0.1
    assert all(
        any(one.labels["actor"] == "image_gc" for one in families["nodevisor_mailbox_depth"]) for families in scrapes
    )


def test_a_hundred_scrapes_at_once_share_their_work(agent: Observed) -> None:
    def runs() -> float:
        return agent.value("nodevisor_messages", actor="image_gc", type="GetMetrics")

    before, began = runs(), time.monotonic()
    with ThreadPoolExecutor(100) as pool:
        found = list(pool.map(lambda path: agent.get(path)[0], ["/metrics", "/metrics/resource"] * 50))
    took_s = time.monotonic() - began
    assert set(found) == {200}
    time.sleep(0.6)
    assert runs() - before < min(30 + took_s / YOUNG_S, 45), "not one for each of fifty"


def test_the_summary_has_the_pods_as_they_are(agent: Observed) -> None:
    status, data, headers = agent.get("/stats/summary")
    assert (status, headers["content-type"]) == (200, "application/json")
    found = msgspec.json.decode(data, type=Summary)
    pods = {one.pod_ref.name: one for one in found.pods}
    assert set(pods) == {"probed-vm", "host-vm"}
    probed, host = pods["probed-vm"], pods["host-vm"]
    assert probed.network is not None
    assert probed.network.name == "eth0"
    assert (probed.network.rx_bytes or 0) > 0
    assert host.network is None
    (web,) = probed.containers
    assert web.memory is not None
    assert web.memory.available_bytes is not None
    assert 0 < web.memory.available_bytes < 32 << 20
    assert web.logs is not None
    assert probed.process_stats is not None
    assert probed.process_stats.process_count >= 1
    assert [one.name for one in probed.volume] == ["data"]
    assert found.node.cpu is not None
    assert (found.node.cpu.usage_nano_cores or 0) > 0
    assert found.node.runtime is not None
    own = own_cgroups().get("" if hierarchy().unified else "memory", "/")
    names = ["kubelet", "pods"] if own != "/" else ["pods"]
    assert [one.name for one in found.node.system_containers] == names
    only = json.loads(agent.get("/stats/summary?only_cpu_and_memory=true")[1])
    assert "fs" not in only["node"]


def test_metrics_server_finds_what_it_reads(agent: Observed) -> None:
    families = agent.metrics("/metrics/resource")
    for name in ("container_cpu_usage_seconds", "container_memory_working_set_bytes"):
        pods = {one.labels["pod"]: one for one in families[name]}
        assert set(pods) == {"probed-vm", "host-vm"}
        assert all(one.timestamp and abs(float(one.timestamp) - time.time()) < 30 for one in pods.values())
    assert [one.value for one in families["resource_scrape_error"]] == [0]
    cgroups = {one.labels["id"] for one in agent.metrics("/metrics/cadvisor")["container_memory_working_set_bytes"]}
    assert {"/", f"/{agent.dir.name}/kubepods"} <= cgroups


def test_top_by_two_scrapes_is_what_the_cgroups_say(agent: Observed) -> None:
    """As metrics-server reckons: CPU by the difference of two scrapes over that of their times, memory as it is."""
    (cgroup,) = (
        one.labels["id"]
        for one in agent.metrics("/metrics/cadvisor")["container_cpu_usage_seconds"]
        if one.labels.get("pod") == "probed-vm" and one.labels.get("container") == "web"
    )
    scrapes: list[tuple[dict[str, Sample], float, float, float]] = []

    def scrape() -> bool:
        began, before = time.time(), cpu_seconds(cgroup)
        families = agent.metrics("/metrics/resource")
        node = families["node_cpu_usage_seconds"][0]
        web = {
            name: next(one for one in families[name] if one.labels.get("pod") == "probed-vm")
            for name in ("container_cpu_usage_seconds", "container_memory_working_set_bytes", "pod_cpu_usage_seconds")
        }
        found = web["container_cpu_usage_seconds"]
        assert found.labels == {"container": "web", "pod": "probed-vm", "namespace": "default"}
        if float(found.timestamp or 0) < began:
            return False  # of an earlier reading that another scrape shares
        scrapes.append((web | {"node": node}, before, cpu_seconds(cgroup), memory_working_set(cgroup)))
        return True

    for _ in range(2):
        wait_for(scrape, 30, "a reading of its own")
        time.sleep(1)
    for found, before, after, memory in scrapes:
        assert before <= found["container_cpu_usage_seconds"].value <= after
        assert abs(found["container_memory_working_set_bytes"].value - memory) < 4 << 20
        assert found["pod_cpu_usage_seconds"].value >= found["container_cpu_usage_seconds"].value
    (first, _, low, _), (second, high, _, _) = scrapes
    for name in ("container_cpu_usage_seconds", "node"):
        window_s = float(second[name].timestamp or 0) - float(first[name].timestamp or 0)
        cores = (second[name].value - first[name].value) / window_s
        assert window_s >= 1
        assert 0 <= cores <= (os.cpu_count() or 1) * 1.1
    used = second["container_cpu_usage_seconds"].value - first["container_cpu_usage_seconds"].value
    assert high - low <= used + 1e-6, "between the scrapes nothing is missing"


def cpu_seconds(cgroup: str) -> float:
    """By the kernel."""
    old, new = Path(f"/sys/fs/cgroup/cpuacct{cgroup}/cpuacct.usage"), Path(f"/sys/fs/cgroup{cgroup}/cpu.stat")
    return int(old.read_text()) / 1e9 if old.exists() else int(new.read_text().split()[1]) / 1e6


def memory_working_set(cgroup: str) -> float:
    """By the kernel."""
    old = Path(f"/sys/fs/cgroup/memory{cgroup}")
    place, use, inactive = (
        (old, "memory.usage_in_bytes", "total_inactive_file") if old.exists() else
        (Path(f"/sys/fs/cgroup{cgroup}"), "memory.current", "inactive_file")
    )  # fmt: skip
    stat = dict(line.split() for line in (place / "memory.stat").read_text().splitlines())
    return max(0, int((place / use).read_text()) - int(stat[inactive]))


def test_kubectl_top_agrees_with_the_cgroups(agent: Observed) -> None:
    lines = [line.split() for line in agent.command("top", "--containers").stdout.splitlines()]
    assert [line[:3] for line in lines[1:]] == [["default", "host-vm", "c"], ["default", "probed-vm", "web"]]
    assert all(line[3].endswith("m") and line[4].endswith("Mi") for line in lines[1:])


# The page


def test_the_page_is_its_own_files_and_nothing_else(agent: Observed) -> None:
    for path, kind in {"/page/": "text/html", "/page/page.js": "text/javascript", "/page/page.css": "text/css"}.items():
        status, _, headers = agent.get(path)
        assert (status, headers["content-type"]) == (200, f"{kind}; charset=utf-8")
        assert "default-src 'none'" in headers["content-security-policy"]
    assert agent.get("/")[2]["location"] == agent.get("/page")[2]["location"] == "/page/"
    for path in ("/page/no", "/page/..%2f..%2factor.py", "/page/%2e%2e/actor.py", "/page/page.css/x"):
        status, data, _ = agent.get(path)
        assert status in (301, 404), path
        assert b"import" not in data


def test_a_container_that_exits_at_once_is_counted(agent: Observed) -> None:
    agent.write("quick", pod("quick", container("main", "exit 139"), restartPolicy="Never"))
    wait_for(lambda: agent.value("kubelet_terminated_containers", exit_code="139"), 30, f"its end; log: {agent.log}")
    assert agent.value("kubelet_terminated_containers", exit_code="139", container_type="container") == 1


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser() as one:
        yield one


def page(agent: Observed, browser: Browser) -> Browser:
    browser.messages.clear()
    browser.open(f"http://127.0.0.1:{agent.page_port}/")
    browser.wait("document.querySelectorAll('#processes tbody tr').length > 5")
    return browser


def test_the_page_shows_processes_pods_and_deaths(agent: Observed, browser: Browser, tmp_path: Path) -> None:
    text = page(agent, browser).text()
    for name in ("supervisor", "forkserver", "pod_workers", "probed-vm", "host-vm", "Running", "live, as of"):
        assert name in text
    shown = browser.evaluate("[...document.querySelectorAll('#processes tbody tr')].length")
    assert shown == len(agent.rows())
    browser.picture(Path(os.environ.get("NODEVISOR_PICTURES", tmp_path)) / "page.png")
    assert browser.messages == []


def test_the_page_follows_what_happens(agent: Observed, browser: Browser) -> None:
    page(agent, browser)
    row = agent.rows()["probe"]
    os.kill(row["pid"], signal.SIGKILL)
    cells = "[...document.querySelectorAll('#processes tbody tr')].map((row) => row.innerText).join('\\n')"
    is_next = f"line.includes('probe') && line.includes('SIGKILL') && line.includes('{row['incarnation'] + 1}')"
    browser.wait(f"({cells}).split('\\n').find((line) => {is_next})")
    assert "killed by SIGKILL" in browser.wait("document.querySelector('#deaths tbody').innerText")


def test_page_shows_a_silent_agent_and_recovers_with_it(agent: Observed, browser: Browser) -> None:
    page(agent, browser)
    pid = agent.rows()["server"]["pid"]
    os.kill(pid, signal.SIGSTOP)
    try:
        browser.wait("document.querySelector('#state').className === 'bad'", 20)
        assert "no news" in browser.text()
    finally:
        os.kill(pid, signal.SIGCONT)
    browser.wait("document.querySelector('#state').className === ''", 20)


def test_page_shows_html_in_values_as_text(agent: Observed, browser: Browser) -> None:
    evil = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"
    page(agent, browser)
    data: dict[str, Any] = json.loads(agent.get("/page/page.json")[1])
    data["node"] = data["pods"][0]["name"] = data["processes"][0]["last_death"] = evil
    data["deaths"] = [{"time": data["time"], "actor": evil, "incarnation": 1, "text": evil}]
    # Shown and looked at in one go: the page asks for what is true every two seconds.
    look = "[document.body.innerText, document.querySelectorAll('main img, main script').length]"
    text, elements = browser.evaluate(f"(show({json.dumps(data)}), {look})")
    assert text.count("<img src=x") >= 4
    assert elements == 0
    assert "owned" not in str(browser.evaluate("document.title.replace(/[<>].*/, '')"))
