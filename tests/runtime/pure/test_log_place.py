"""Links to a container's log end at the pod's log directory."""

from __future__ import annotations

import pytest

from actors.runtime.containers.log_place import log_place
from actors.runtime.model.records import ContainerRecord
from actors.runtime.model.state import Container
from proto.cri import api_pb2 as pb


@pytest.mark.parametrize(
    ("path", "beneath", "place"),
    [
        ("/var/log/pods/ns_pod_uid/main/0.log", "main/0.log", "/var/log/pods//ns_pod_uid/main/0.log"),
        ("/var/log/pods/ns_pod_uid//0.log", "0.log", "/var/log/pods//ns_pod_uid/0.log"),
        ("/var/log//pods/ns_pod_uid/main//0.log", "main//0.log", "/var/log//pods//ns_pod_uid/main/0.log"),
        ("/logs/0.log", "0.log", "///logs/0.log"),
        ("/elsewhere/0.log", "/elsewhere/0.log", "/elsewhere/0.log"),
        ("", "", ""),
    ],
)
def test_double_slash_is_where_links_end(path: str, beneath: str, place: str) -> None:
    config = pb.ContainerConfig(log_path=beneath).SerializeToString()
    record = ContainerRecord(
        id="1",
        sandbox_id="2",
        config=config,
        created_at_ns=0,
        boot="",
        image_id="",
        image_ref="",
        layers=(),
        stop_signal=15,
        user=(0, 0, ()),
        log_path=path,
    )
    assert log_place(Container(record)) == place
