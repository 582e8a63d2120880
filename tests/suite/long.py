"""Test modules that take longest, the longest first: they begin first, so that no worker is left with one at the end.

From `--durations` of a run on two cores. A module that is missing here is still run, later.
"""

LONG: tuple[str, ...] = (
    "fresh/test_suite.py",
    "fresh/test_run.py",
    "fresh/test_bad_input.py",
    "agent/api/test_cluster.py",
    "agent/server/test_server.py",
    "agent/volumes/test_volumes.py",
    "agent/recovery/test_soak.py",
    "agent/specs/test_probes.py",
    "agent/pressure/test_pressure.py",
    "agent/pressure/test_split_disk.py",
    "agent/lifecycle/test_ends.py",
    "agent/lifecycle/test_restart.py",
    "agent/api/test_storms.py",
    "agent/api/test_api_objects.py",
    "live/test_agent.py",
    "agent/recovery/runtime/test_embedded_kills.py",
    "resources/test_kills.py",
    "runtime/helper/test_levels.py",
    "runtime/containers/test_containers.py",
    "runtime/streaming/test_streaming.py",
    "runtime/critest/test_critest_security.py",
    "model/test_model.py",
    "supervisor/test_daemon.py",
    "volume/test_kills.py",
    "volume/test_with_server.py",
    "server/transport/test_many.py",
    "server/routes/test_following.py",
    "cli/run/test_run_once.py",
    "node/test_node_status.py",
    "node/test_registration.py",
    "probe/test_actor.py",
)
