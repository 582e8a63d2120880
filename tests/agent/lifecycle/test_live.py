"""A changed drop-in on a whole agent with pods: only the actor concerned restarts, and no probe is late."""

from __future__ import annotations

import threading
import time
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from proto.agent.supervisor import Started
from supervisor.sockets.client import Client
from tests.agent.agent import ACTORS, Agent, container, is_ready, pod
from tests.floors import effective_limit_s
from tests.harness import PATIENCE, wait_for

CHANGES = 10
PROBE_PERIOD_S = 1.0
LATE_S = 0.2


class Probed:
    """An HTTP server that keeps when it was asked."""

    def __init__(self) -> None:
        self.times: list[float] = []
        times = self.times

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                times.append(time.monotonic())
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def next(self) -> int:
        """Wait for the next one; its number."""
        before = len(self.times)
        wait_for(lambda: len(self.times) > before, 20, "probed")
        return len(self.times) - 1

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


def change_and_time(agent: Agent, drop_in, percent: int) -> float:
    """Seconds from the file's change until image_gc's next incarnation is in service."""
    temporary = agent.dir / "drop-in.tmp"
    with Client(str(agent.run_dir)) as client, closing(client.events()) as events:
        next(events)
        began = time.monotonic()
        temporary.write_text(
            "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
            f"imageGCHighThresholdPercent: {percent}\n"
        )
        temporary.rename(drop_in)  # an empty file between would be another change
        for event in events:
            if isinstance(event, Started):
                assert event.name == "image_gc"
                return time.monotonic() - began
    raise AssertionError("the event stream ended")


def test_changed_drop_in_restarts_one_actor_and_delays_no_probe(containerd):
    with closing(Probed()) as probed, closing(Agent(containerd)) as agent:
        drop_ins = agent.dir / "conf.d"
        drop_ins.mkdir()
        agent.start("--config-dir", str(drop_ins))
        port = probed.server.server_address[1]
        probe = {"httpGet": {"host": "127.0.0.1", "path": "/", "port": port}, "periodSeconds": int(PROBE_PERIOD_S)}
        agent.write("probed", pod("probed", container("c", readinessProbe=probe), hostNetwork=True))
        wait_for(lambda: is_ready(agent.pod("probed")), 20, "ready")
        before = agent.rows()
        times_s, limits_s, gaps_s = [], [], []
        for number in range(CHANGES):
            # Each change has a time between two probes of its own.
            last = probed.next()
            before_s = effective_limit_s()
            times_s.append(change_and_time(agent, drop_ins / "10-gc.conf", 90 + number))
            limits_s.append(max(before_s, effective_limit_s()))
            wait_for(lambda last=last: len(probed.times) > last + 1, 20, "probed on")
            gaps_s.append(probed.times[last + 1] - probed.times[last])
        after = agent.rows()
        assert [name for name in ACTORS if after[name]["pid"] != before[name]["pid"]] == ["image_gc"]
        late_s = [time_s - limit_s for time_s, limit_s in zip(times_s, limits_s, strict=True)]
        assert sorted(late_s)[int(CHANGES * 0.95) - 1] < 0, (times_s, limits_s)
        # Some may be late by what else the machine does; a change that held probes up would do so each time.
        assert sorted(gaps_s)[int(CHANGES * 0.8) - 1] < PROBE_PERIOD_S + LATE_S * PATIENCE, gaps_s
        assert is_ready(agent.pod("probed"))
