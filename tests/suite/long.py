"""Test modules that take longest, the longest first: they begin first, so that no worker is left with one at the end.

From `--durations` of a run on two cores. A module that is missing here is still run, later.
"""

LONG: tuple[str, ...] = (
    "fresh/test_suite.py",
    "fresh/test_run.py",
    "fresh/test_bad_input.py",
    "agent/test_cluster.py",
    "agent/test_server.py",
    "agent/test_volumes.py",
    "agent/test_soak.py",
    "agent/test_spec_probes.py",
    "agent/test_lifecycle_ends.py",
    "agent/test_lifecycle_restart.py",
    "agent/test_api_storms.py",
    "agent/test_api_objects.py",
    "live/test_agent.py",
    "agent/test_embedded_kills.py",
    "runtime/test_levels.py",
    "runtime/test_containers.py",
    "runtime/test_streaming.py",
    "runtime/test_critest_security.py",
    "model/test_model.py",
    "supervisor/test_daemon.py",
    "volume/test_kills.py",
    "volume/test_with_server.py",
    "server/test_many.py",
    "server/test_following.py",
    "cli/test_run_once.py",
    "node/test_actor.py",
    "probe/test_actor.py",
)
