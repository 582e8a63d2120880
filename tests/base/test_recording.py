"""The flight recorder in an actor process: what it writes, keeps and leaves out."""

import errno
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from actors._base import recording as recorder
from actors._base import redaction
from proto.agent import actor as base
from proto.agent import recording
from proto.agent.actor import Ping
from proto.agent.recording import Kind, Recording
from proto.agent.settings import Settings
from proto.cri import api_pb2 as pb
from proto.node import image_pull, server
from proto.pods import pod_workers, status
from proto.pods.objects import (
    ApiObject,
    GetObjects,
    GetPodCertificate,
    GetToken,
    ObjectRef,
    Objects,
    PodCertificate,
    Token,
)
from proto.pods.pleg import CallRuntime, RuntimeAnswer
from proto.pods.volume import ReadVolumeFile, VolumeFile
from proto.resources import resources
from proto.resources.grants import Grant
from proto.v1 import Pod
from proto.wire import codec
from proto.wire.envelope import Kind as MessageKind
from proto.wire.message import type_named
from tests.base import toy_messages as m
from tests.base.test_actor import PRELUDE
from tests.harness import ActorProcess, wait_for

CANARY = b"c4n4ry-in-a-recording"


def recorded(run_dir: str, incarnation: int = 1) -> Recording:
    (one,) = recording.read(recording.path_of(run_dir, "toy", incarnation).read_bytes())
    return one


def types_in(one: Recording) -> list[str]:
    heads = [codec.decode_header(frame.payload[0]) for frame in one.frames if frame.kind is Kind.MESSAGE]
    return [head.type for head in heads]


def test_messages_and_answers_survive_a_kill(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "tests.harness.type_named", lambda actor, name: getattr(m, name, None) or type_named(actor, name)
    )
    with ActorProcess("toy", peers=("peer",), prelude=PRELUDE) as toy:
        toy.peers["peer"].answers[m.Recall] = lambda _: m.Seen(values=(7,))
        toy.tell(m.Remember(value=1))
        assert toy.ask(m.AskPeer(timeout_s=5.0)).values == (7,)
        toy.ask(Ping())
        toy.kill()
        one = recorded(toy.dir)
        assert types_in(one) == ["Remember", "AskPeer"]
        (answer,) = [frame.payload for frame in one.frames if frame.kind is Kind.ANSWER]
        assert answer[:2] == ["peer", "Recall"]
        assert codec.decode(answer[4], m.Seen).values == (7,)
        settings = one.frames[0].payload["settings"]
        assert msgspec.json.decode(settings, type=Settings) == toy.settings


def test_crash_is_recorded_and_its_death_record_says_how_to_replay() -> None:
    with ActorProcess("toy", prelude=PRELUDE) as toy:
        with pytest.raises(Exception, match="toy"):
            toy.ask(m.Crash(where="handler"), timeout_s=5)
        assert toy.wait_exit() == 70
        crash = recorded(toy.dir).frames[-1]
        assert crash.kind is Kind.CRASH
        assert crash.payload[:2] == ["builtins.KeyError", "'toy'"]
        path = recording.path_of(toy.dir, "toy", 1)
        text = Path(toy.dir, "deaths", "toy-1.txt").read_text()
        assert text.startswith(f"Replay: supervisor replay toy {path}\n")
        assert text.rstrip().endswith("KeyError: 'toy'")


def test_a_crash_is_kept_until_the_next_crash() -> None:
    with ActorProcess("toy", prelude=PRELUDE) as toy:
        with pytest.raises(Exception, match="toy"):
            toy.ask(m.Crash(where="handler"), timeout_s=5)
        toy.wait_exit()
        toy.start()
        toy.restart()
        toy.restart()
        names = [path.name for path in recording.files(toy.dir, "toy")]
        assert names == ["toy-1.rec", "toy-4.rec"]


def test_file_stays_within_its_bound() -> None:
    with ActorProcess("toy", prelude=PRELUDE) as toy:
        path = recording.path_of(toy.dir, "toy", 1)
        for value in range(20_000):
            toy.tell(m.Remember(value=value))
        toy.ask(m.Recall(), timeout_s=30)
        assert path.stat().st_size <= recording.bytes_of("toy", 8)
        one = recorded(toy.dir)
        last = codec.decode(one.frames[-2].payload[1], m.Remember)
        assert last.value == 19_999
        assert one.frames[0].kind is Kind.START


def test_size_zero_records_nothing() -> None:
    with ActorProcess("toy", prelude=PRELUDE, recorder_mib=0) as toy:
        toy.tell(m.Remember(value=1))
        toy.ask(m.Recall())
        assert recording.files(toy.dir) == []


def mapped_kib(path: Path) -> int:
    """Memory of this process that is mapped from the file."""
    text = Path("/proc/self/smaps").read_text()
    lines = text[text.index(str(path)) :].splitlines()
    return int(next(line for line in lines if line.startswith("Rss:")).split()[1])


def test_a_file_takes_disk_and_memory_of_what_is_written(tmp_path: Path) -> None:
    path, page = tmp_path / "file", bytes(range(256)) * 16
    one = recorder.MappedFile(path, 1 << 20)
    one.write(0, page)
    assert path.stat().st_size == 1 << 20
    assert path.stat().st_blocks * 512 <= 2 * recorder.WINDOW
    for at in range(0, 1 << 20, len(page)):
        one.write(at, page)
        assert mapped_kib(path) <= recorder.WINDOW >> 10
    assert path.read_bytes() == page * 256


def test_a_full_disk_ends_the_recording_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    one = recorder.Recorder(tmp_path / "recorder" / "toy-1.rec", "toy", 1, 65_536)
    monkeypatch.setattr(recorder, "current", one)

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    one.peer(m.Remember(value=1))
    monkeypatch.setattr(os, "posix_fallocate", full)
    for value in range(recorder.WINDOW):
        one.peer(m.Remember(value=value))
    assert recorder.current is None
    assert "records nothing more" in caplog.text


def secret_answers() -> dict[str, tuple[object, object]]:
    """A request with an answer that has the canary, by name."""
    ref = ObjectRef(kind="Secret", namespace="a", name="b")
    url = pb.ExecResponse(url=f"http://127.0.0.1/exec/{CANARY.decode()}").SerializeToString()
    info = {"info": f'{{"pid": 12, "config": {{"envs": [{{"key": "K", "value": "{CANARY.decode()}"}}]}}}}'}
    status = pb.ContainerStatusResponse(info=info).SerializeToString()
    output = pb.ExecSyncResponse(stdout=CANARY, exit_code=3).SerializeToString()
    call = lambda rpc: CallRuntime(rpc=rpc, request=b"", timeout_s=1.0)  # noqa: E731
    return {
        "secret": (
            GetObjects(refs=(ref,)),
            Objects(found=(ApiObject(ref=ref, resource_version="1", data={"k": CANARY}),)),
        ),
        "token": (
            GetToken(namespace="a", service_account="b", pod_name="c", pod_uid="d"),
            Token(token=CANARY.decode(), expires=1.0, refresh=1.0),
        ),
        "pod certificate": (
            GetPodCertificate(
                namespace="a",
                service_account="b",
                pod_name="c",
                pod_uid="d",
                volume="e",
                source=0,
                signer_name="f",
                key_type="g",
            ),
            PodCertificate(key=CANARY.decode(), chain="h", refresh=1.0),
        ),
        "file": (
            ReadVolumeFile(pod_uid="a", volume="b", volume_path="/c", path="d", max_bytes=1),
            VolumeFile(data=CANARY),
        ),
        "stream": (call("Exec"), RuntimeAnswer(response=url)),
        "variables": (call("ContainerStatus"), RuntimeAnswer(response=status)),
        "output": (call("ExecSync"), RuntimeAnswer(response=output)),
        "a new rpc": (call("NoSuchRpc"), RuntimeAnswer(response=CANARY)),
    }


@pytest.mark.parametrize("name", secret_answers())
def test_answers_are_recorded_without_secrets(name: str, tmp_path: Path) -> None:
    request, answer = secret_answers()[name]
    path = tmp_path / "recorder" / "toy-1.rec"
    one = recorder.Recorder(path, "toy", 1, 65_536)
    one.answer("peer", request, 1, codec.encode(answer))
    if isinstance(request, CallRuntime):
        one.runtime(request.rpc, 1, answer.response)
    assert CANARY not in path.read_bytes()
    (found,) = recording.read(path.read_bytes())
    assert isinstance(codec.decode(found.frames[0].payload[4], type(answer)), type(answer))


def test_entry_larger_than_the_ring_leaves_the_newest_ones(tmp_path: Path) -> None:
    path = tmp_path / "recorder" / "toy-1.rec"
    one = recorder.Recorder(path, "toy", 1, 16_384)
    for number in range(320):
        one.blocking("work", number, None)
    one.blocking("work", None, OSError(errno.EIO, "x" * 20_000))
    one.blocking("work", 320, None)
    (found,) = recording.read(path.read_bytes())
    assert [frame.payload[3] for frame in found.frames][-50:] == list(range(271, 321))


def test_pid_and_exit_code_stay_in_the_runtimes_answers() -> None:
    info = pb.ContainerStatusResponse(info={"info": '{"pid": 12, "x": 1}'}).SerializeToString()
    assert (
        pb.ContainerStatusResponse.FromString(redaction.response("ContainerStatus", info)).info["info"] == '{"pid":12}'
    )
    output = pb.ExecSyncResponse(stdout=b"x", exit_code=3).SerializeToString()
    assert pb.ExecSyncResponse.FromString(redaction.response("ExecSync", output)).exit_code == 3


def test_requests_and_settings_are_recorded_without_secrets(tmp_path: Path) -> None:
    path = tmp_path / "recorder" / "toy-1.rec"
    one = recorder.Recorder(path, "toy", 1, 65_536)
    request = pb.ExecSyncRequest(container_id="c", cmd=["echo", CANARY.decode()])
    call = CallRuntime(rpc="ExecSync", request=request.SerializeToString(), timeout_s=1.0)
    one.message(codec.encode_header(MessageKind.ASK, "CallRuntime", "server", 1, 1), codec.encode(call), call)
    url = f"https://user:{CANARY.decode()}@host:1/pods?token={CANARY.decode()}"
    one.begin(Settings(static_pod_url=url, static_pod_url_header={"Authorization": (CANARY.decode(),)}), 1)
    one.blocking("read", CANARY, None)
    one.blocking("read", CANARY.decode(), None)
    assert CANARY not in path.read_bytes()
    (found,) = recording.read(path.read_bytes())
    assert len(found.frames) == 4
    shown = msgspec.json.decode(found.frames[1].payload["settings"], type=Settings)
    assert shown.static_pod_url == "https://(redacted)@host:1/pods?(redacted)"


def test_secret_checkpoints_stay_out() -> None:
    code = (
        "from actors._host.files import checkpoint; "
        "checkpoint.save('/tmp/{0}', 1, 'public'); checkpoint.load('/tmp/{0}', 1); "
        "checkpoint.load('/tmp/{0}', 1, secret=True); "
    )
    with ActorProcess("toy", prelude=PRELUDE) as toy:
        name = os.path.basename(toy.dir) + "/checkpoint"
        toy.kill()
        late = f"import threading; toy.Toy.on_ready = lambda self: exec({code.format(name)!r}); "
        toy.prelude = PRELUDE + late
        toy.start()
        found = wait_for(lambda: [f for f in recorded(toy.dir, 2).frames if f.kind is Kind.CHECKPOINT], what="one")
        assert [frame.payload[1] for frame in found] == [b'"public"']


def pod_with_secrets() -> Pod:
    """A pod whose environment and last applied manifest have the canary."""
    env = [{"name": "PASSWORD", "value": CANARY.decode()}, {"name": "EMPTY"}]
    manifest = {"spec": {"containers": [{"env": env}]}}
    annotations = {redaction.LAST_APPLIED: msgspec.json.encode(manifest).decode()}
    containers = [{"name": "c", "image": "i", "env": env}]
    spec = {"containers": containers, "initContainers": containers, "ephemeralContainers": containers}
    return msgspec.convert({"metadata": {"name": "web", "uid": "u", "annotations": annotations}, "spec": spec}, Pod)


def pod_messages() -> dict[str, object]:
    """Messages and answers with that pod, by name."""
    pod = pod_with_secrets()
    served = server.ServedPod(uid="u", namespace="a", name="web", document=msgspec.json.encode(pod))
    worker = pod_workers.PodWorkerState(
        uid="u", namespace="a", name="web", stage="sync", deleted=False, static=True, pod=pod
    )
    return {
        "update": pod_workers.PodUpdate(source="file", op="SET", pods=(pod,)),
        "status": status.SetPod(pod=pod),
        "statuses": status.SetPods(pods=(pod,)),
        "listed": status.Pods(pods=(pod,)),
        "served": server.SetPod(pod=served),
        "all served": server.SetPods(pods=(served,)),
        "admission": resources.AdmitPod(pod=pod),
        "image": image_pull.EnsureImage(
            pod_uid="u",
            pod_namespace="a",
            pod_name="web",
            container="c",
            image="i",
            policy="Always",
            sandbox_config=pb.PodSandboxConfig(hostname="web").SerializeToString(),
            annotations=pod.metadata.annotations,
        ),
        "grant": resources.ContainerGrant(grant=Grant(environment={"TOKEN": CANARY.decode()})),
        "workers": pod_workers.PodWorkerStates(pods=(worker,), sources_ready=True),
    }


@pytest.mark.parametrize("name", pod_messages())
def test_variables_of_pods_are_recorded_without_values(name: str, tmp_path: Path) -> None:
    message = pod_messages()[name]
    body = codec.encode(message)
    assert CANARY in body
    path = tmp_path / "recorder" / "toy-1.rec"
    one = recorder.Recorder(path, "toy", 1, 65_536)
    one.message(codec.encode_header(MessageKind.TELL, type(message).__name__, "config", 1, 1), body, message)
    one.answer("peer", status.ListPods(), 1, body)
    assert CANARY not in path.read_bytes()
    (found,) = recording.read(path.read_bytes())
    received, answered = (frame.payload[-1] for frame in found.frames)
    assert received == answered
    assert isinstance(codec.decode(received, type(message)), type(message))
    assert redaction.HIDDEN.encode() in received


def test_settings_are_copied_only_to_hide_something() -> None:
    plain = Settings(run_dir="/run/x", static_pod_url="https://host/pods")
    assert redaction.settings(plain) is plain
    for secret in ({"static_pod_url": "https://me:pw@host/pods"}, {"static_pod_url_header": {"Authorization": ("t",)}}):
        assert redaction.settings(msgspec.structs.replace(plain, **secret)) != msgspec.structs.replace(plain, **secret)


@pytest.mark.parametrize("name", ["", "note", redaction.LAST_APPLIED])
def test_image_is_asked_for_without_a_manifest_in_an_annotation(name: str, tmp_path: Path) -> None:
    spec = pb.ImageSpec(image="i", annotations={name: CANARY.decode()} if name else {})
    request = pb.ImageStatusRequest(image=spec).SerializeToString()
    call = CallRuntime(rpc="ImageStatus", request=request, timeout_s=1.0)
    path = tmp_path / "recorder" / "toy-1.rec"
    one = recorder.Recorder(path, "toy", 1, 65_536)
    one.message(codec.encode_header(MessageKind.ASK, "CallRuntime", "image_pull", 1, 1), codec.encode(call), call)
    (found,) = recording.read(path.read_bytes())
    assert (found.frames[0].payload[-1] is None) == (name == redaction.LAST_APPLIED)
    assert (CANARY in path.read_bytes()) == (name == "note")


MANIFEST = {redaction.LAST_APPLIED: CANARY.decode(), "note": "x"}


@pytest.mark.parametrize(
    ("rpc", "response"),
    [
        ("ListPodSandbox", pb.ListPodSandboxResponse(items=[pb.PodSandbox(id="s", annotations=MANIFEST)])),
        ("PodSandboxStatus", pb.PodSandboxStatusResponse(status=pb.PodSandboxStatus(id="s", annotations=MANIFEST))),
        ("ListContainers", pb.ListContainersResponse(containers=[pb.Container(id="c", annotations=MANIFEST)])),
        ("ContainerStatus", pb.ContainerStatusResponse(status=pb.ContainerStatus(id="c", annotations=MANIFEST))),
        ("ListImages", pb.ListImagesResponse(images=[pb.Image(spec=pb.ImageSpec(image="i", annotations=MANIFEST))])),
    ],
)
def test_answers_of_the_runtime_are_recorded_without_manifests(rpc: str, response: Any, tmp_path: Path) -> None:
    path = tmp_path / "recorder" / "toy-1.rec"
    one = recorder.Recorder(path, "toy", 1, 65_536)
    one.runtime(rpc, 1, response.SerializeToString())
    answer = codec.encode(RuntimeAnswer(response=response.SerializeToString()))
    one.answer("pleg", CallRuntime(rpc=rpc, request=b"", timeout_s=1.0), 1, answer)
    assert CANARY not in path.read_bytes()
    (found,) = recording.read(path.read_bytes())
    direct, relayed = (frame.payload[-1] for frame in found.frames)
    assert codec.decode(relayed, RuntimeAnswer).response == direct
    assert str(type(response).FromString(direct)) == str(response).replace(CANARY.decode(), redaction.HIDDEN)


def test_checkpoints_are_recorded_without_variables(tmp_path: Path) -> None:
    path = tmp_path / "recorder" / "toy-1.rec"
    one = recorder.Recorder(path, "toy", 1, 65_536)
    one.checkpoint("/x", [msgspec.to_builtins(pod_with_secrets())])
    assert CANARY not in path.read_bytes()
    (found,) = recording.read(path.read_bytes())
    (pod,) = msgspec.json.decode(found.frames[0].payload[1], type=list[Pod])
    assert pod.spec.containers[0].env[0].value == redaction.HIDDEN


def test_messages_that_inspect_or_change_are_not_recorded() -> None:
    own = [kind for kind in vars(base).values() if isinstance(kind, type) and kind.__module__ == base.__name__]
    assert {kind.__name__ for kind in own if redaction.is_recorded(kind)} == {"Stop", "SetVerbosity"}
    assert redaction.is_recorded(status.SetPod)
