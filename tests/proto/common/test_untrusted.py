"""Damaged and foreign state files raise only the expected errors.

A reader that died would do so again at its next start, and for ever.
"""

from __future__ import annotations

import contextlib
import re
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from actors._host.files import checkpoint
from actors._kube.errors import ApiError
from actors.events import journal
from actors.image_pull.verification import PulledRecord
from actors.objects.csi_node import _node_ids
from actors.pod_workers.model import orphans
from actors.pod_workers.model.view import SandboxView
from actors.pod_workers.shared import resource_state, userns
from actors.volume.csi import disk
from actors.volume.steps.errors import VolumeError
from proto.common import untrusted
from proto.cri import api_pb2 as pb
from proto.v1 import LifecycleHandler, Pod
from proto.v1.codec import from_json
from supervisor.config.reload import store
from supervisor.host import settings_file
from supervisor.process import state

DEEP = b"[" * 100_000
GARBAGE = {
    "nothing": b"",
    "deep list": DEEP,
    "deep list that ends": b"[" * 5_000 + b"]" * 5_000,
    "deep object": b'{"data":' * 100_000,
    "deep unknown field": b'{"version":1,"x":' + DEEP,
    "no UTF-8": b'{"version":1,"actors":{"\xff":{"incarnation":1}},"metadata":{"name":"\xff"},"data":"\xff"}',
    "no UTF-8 in a list": b'["\xff"]',
    "number": b"9" * 5_000,
    "float": b"1e999",
    "half a surrogate": b'"\\ud800"',
    "NUL": b"\0" * 1_000,
    "binary": bytes(range(256)),
}
ROOT = Path(__file__).parents[3]


@pytest.fixture(params=GARBAGE.values(), ids=GARBAGE.keys())
def garbage(request: pytest.FixtureRequest) -> bytes:
    found: bytes = request.param
    return found


def test_invalid_json_is_always_a_decode_error(garbage: bytes) -> None:
    for kind in (dict[str, int], state.Saved, msgspec.Raw, LifecycleHandler):
        with contextlib.suppress(msgspec.DecodeError):
            untrusted.decode_json(garbage, kind)
    with pytest.raises(msgspec.DecodeError):
        from_json(Pod, garbage)


def test_damaged_checkpoint_is_none(garbage: bytes, tmp_path: Path) -> None:
    path = tmp_path / "probe.json"
    path.write_bytes(garbage)
    assert checkpoint.load(path, 1) is None
    path.write_bytes(b'{"version":1,"checksum":%d,"data":%b}' % (zlib.crc32(garbage), garbage))
    checkpoint.load(path, 1)


def test_damaged_supervisor_state_is_moved_away(garbage: bytes, tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    path.write_bytes(garbage)
    assert state.load(path).actors["*"].incarnation > 1_000_000_000
    assert path.with_suffix(".bad").read_bytes() == garbage


def test_damaged_last_known_good_configuration_is_none(garbage: bytes, tmp_path: Path) -> None:
    (tmp_path / "nodevisor").mkdir()
    for name in (store.GOOD, store.HISTORY):
        (tmp_path / "nodevisor" / name).write_bytes(garbage)
    assert store.load(str(tmp_path), "") == store.Saved()
    assert store.history(str(tmp_path)) == []
    body = b'{"version":%d,"checksum":%d,"data":%b}' % (store.VERSION, zlib.crc32(garbage), garbage)
    (tmp_path / "nodevisor" / store.GOOD).write_bytes(body)
    assert store.load(str(tmp_path), "") == store.Saved()


def test_damaged_settings_of_an_agent_are_the_defaults(garbage: bytes, tmp_path: Path) -> None:
    for name in (settings_file.SETTINGS, settings_file.CONFIGURATION):
        (tmp_path / name).write_bytes(garbage)
    assert settings_file.read(tmp_path).run_dir == str(tmp_path)
    assert settings_file.read_in_force(tmp_path) == ""


def test_a_damaged_journal_keeps_its_good_lines(garbage: bytes, tmp_path: Path) -> None:
    path = tmp_path / "events.log"
    line = garbage.replace(b"\n", b" ")
    path.write_bytes(b"%08x %b\n" % (zlib.crc32(line), line))
    assert journal.read(str(path)) == ([], False)


EXPECTED: dict[str, tuple[Callable[[bytes], Any], type[Exception]]] = {
    "allocated resources": (resource_state.decode, resource_state.DamagedError),
    "user namespaces": (userns.parse, userns.ConfigError),
    "image records": (lambda content: untrusted.decode_json(content, PulledRecord), msgspec.DecodeError),
}


@pytest.mark.parametrize("name", EXPECTED)
def test_a_reader_of_a_damaged_file_raises_its_own_error(name: str, garbage: bytes) -> None:
    read, error = EXPECTED[name]
    with pytest.raises(error):
        read(garbage)


def test_invalid_vol_data_is_a_volume_error(garbage: bytes, tmp_path: Path) -> None:
    (tmp_path / disk.DATA).write_bytes(garbage)
    with contextlib.suppress(VolumeError):
        assert isinstance(disk.read_data(str(tmp_path)), dict)


def test_invalid_answers_and_annotations_raise_nothing(garbage: bytes) -> None:
    assert isinstance(ApiError.of(500, garbage), ApiError)
    assert orphans._decoded(garbage.decode(errors="replace"), LifecycleHandler) in (None, LifecycleHandler())
    SandboxView.from_status(pb.PodSandboxStatusResponse(info={"info": garbage.decode(errors="replace")}))
    assert isinstance(_node_ids(garbage.decode(errors="replace")), dict)


OWN = {
    "proto/common/untrusted.py",
    "proto/v1/codec.py",  # its own encoding back
    "actors/_pki/x509.py",  # a process of a second, its question from its parent
    "actors/_base/process/listener_store.py",  # of this process's own sockets
    "actors/runtime/helper/main.py",  # bare Python without msgspec; from its parent
    "actors/runtime/helper/commands.py",
    "actors/runtime/helper/state.py",
    "proto/common/interpreter.py",  # source text for another interpreter
    "supervisor/process/forkclient.py",
    "supervisor/core/upgrade/release.py",
    "supervisor/config/reload/look.py",  # starts every 30 s without msgspec; from its parent
    "supervisor/host/endpoint.py",  # of a process of its own
    "proto/schema/document.py",  # manifests, with limits of their own
}
DECODES = re.compile(r"msgspec\.json\.(decode|Decoder)\(|(?<!msgspec\.)\bjson\.loads?\(")


def test_foreign_json_is_decoded_in_one_place() -> None:
    paths = (path for top in ("actors", "supervisor", "proto") for path in (ROOT / top).rglob("*.py"))
    found = {str(path.relative_to(ROOT)) for path in paths if DECODES.search(path.read_text())}
    assert found - OWN == set(), "use proto.common.untrusted.decode_json"


@pytest.mark.parametrize(
    "content", [b"2001-01-00: x", b"!!bool x", b'!!int ""', b"!!timestamp x", b"a: [", b"? {a: 1}\n: b"]
)
def test_yaml_that_cannot_be_read_is_one_error(content: bytes) -> None:
    with pytest.raises(yaml.YAMLError):
        untrusted.load_yaml(content)


def test_yaml_is_loaded_as_plain_values() -> None:
    assert untrusted.load_yaml(b"a: [1, true, b]") == {"a": [1, True, "b"]}
