"""The last status of a pod."""

import pytest

from actors.pod_workers.status.ended_status import ended_status
from proto.v1 import Pod, PodStatus, from_dict

WAITING = {"state": {"waiting": {"reason": "PodInitializing"}}}
RUNNING = {"state": {"running": {}}}
DONE = {"state": {"terminated": {"exitCode": 0}}}
FAILED = {"state": {"terminated": {"exitCode": 2}}}
KILLED = {"state": {"terminated": {"exitCode": 143}}}
OOM_KILLED = {"state": {"terminated": {"exitCode": 0, "reason": "OOMKilled"}}}
CRASHED = {"state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": {"terminated": {"exitCode": 2}}}


def pod(source, init):
    meta = {"name": "p", "annotations": {"kubernetes.io/config.source": source}}
    inits = [{"name": f"i{n}"} for n in range(init)]
    return from_dict(Pod, {"metadata": meta, "spec": {"containers": [{"name": "c"}], "initContainers": inits}})


def codes(statuses):
    """Exit codes; None for a waiting container."""
    return [one.state.terminated.exit_code if one.state.terminated else None for one in statuses]


@pytest.mark.parametrize(
    ("main", "init", "phase", "expected"),
    [
        ([WAITING], [], "Pending", ([137], [], "Failed")),  # deleted before it began
        ([DONE], [], "Succeeded", ([0], [], "Succeeded")),
        ([RUNNING], [], "Running", ([137], [], "Failed")),  # it vanished
        ([CRASHED], [], "Running", ([137], [], "Failed")),
        ([DONE, RUNNING], [DONE], "Running", ([0, 137], [0], "Failed")),
        ([WAITING], [WAITING, WAITING], "Pending", ([None], [137, None], "Failed")),
        ([WAITING], [FAILED, WAITING], "Failed", ([None], [2, None], "Failed")),
        ([WAITING], [DONE, WAITING], "Pending", ([None], [0, None], "Failed")),
        ([WAITING], [DONE, CRASHED], "Pending", ([None], [0, 137], "Failed")),
        ([WAITING], [DONE, DONE], "Pending", ([137], [0, 0], "Failed")),
        ([WAITING], [DONE, OOM_KILLED], "Pending", ([None], [0, 0], "Failed")),
        ([CRASHED], [WAITING, WAITING], "Running", ([137], [137, None], "Failed")),
    ],
)
def test_tried_containers_without_an_exit_count_as_failed(main, init, phase, expected):
    data = {"phase": phase, "containerStatuses": [{"name": f"c{n}", **one} for n, one in enumerate(main)]}
    data["initContainerStatuses"] = [{"name": f"i{n}", **one} for n, one in enumerate(init)]
    status = from_dict(PodStatus, data)
    ended = ended_status(pod("api", len(init)), status)
    assert (codes(ended.container_statuses), codes(ended.init_container_statuses), ended.phase) == expected
    assert ended_status(pod("api", len(init)), ended) == ended
    assert ended_status(pod("file", len(init)), status).phase == phase


@pytest.mark.parametrize("sidecar", [DONE, KILLED], ids=["exit code 0", "exit code 143"])
@pytest.mark.parametrize(("initialized", "expected"), [("True", [137]), ("False", [None])])
def test_main_containers_may_have_been_tried_once_a_last_sidecar_started(sidecar, initialized, expected):
    data = {"containerStatuses": [{"name": "c0", **WAITING}], "initContainerStatuses": [{"name": "i0", **sidecar}]}
    conditions = [{"type": "Initialized", "status": initialized}]
    status = from_dict(PodStatus, {"phase": "Pending", "conditions": conditions, **data})
    meta, init = {"name": "p"}, [{"name": "i0", "restartPolicy": "Always"}]
    subject = from_dict(Pod, {"metadata": meta, "spec": {"containers": [{"name": "c"}], "initContainers": init}})
    assert codes(ended_status(subject, status).container_statuses) == expected
