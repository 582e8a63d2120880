"""Removes secrets from everything that the flight recorder writes.

Replaced or left out are: values of Secrets, tokens, files of volumes, values of environment variables, and URLs of
streams. So are command lines and output in calls of the runtime, and the user and query of the manifests' URL. The
runtime's verbose information has variables, so only the pid of it stays. The rest of a manifest is recorded: commands,
annotations, headers of probes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import msgpack
import msgspec

from proto.agent import actor as base
from proto.agent.settings import Settings
from proto.common import untrusted
from proto.common.secret_names import safe
from proto.pods.objects import Objects, PodCertificate, Token
from proto.pods.pleg import CallRuntime, RuntimeAnswer
from proto.pods.volume import VolumeFile
from proto.wire import codec
from proto.wire.message import Message

HIDDEN = "(redacted)"
RECORDED = frozenset({"Stop", "SetVerbosity"})
"""Messages of the base class that are recorded. The others inspect or change the process, so no replay takes them."""
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
"""An annotation with the whole manifest."""
_LAST_APPLIED = LAST_APPLIED.encode()
_READS = frozenset(
    [
        "Version",
        "RuntimeConfig",
        "ListPodSandbox",
        "PodSandboxStatus",
        "ListContainers",
        "ContainerStatus",
        "ContainerStats",
        "ListContainerStats",
        "ListImages",
        "ImageStatus",
        "ImageFsInfo",
        "RemoveImage",
    ]
)
"""Rpcs whose requests have no command lines, variables or credentials, unless an annotation has the whole manifest."""
_PLAIN = frozenset(
    [
        "Version",
        "RuntimeConfig",
        "UpdateRuntimeConfig",
        "RunPodSandbox",
        "StopPodSandbox",
        "RemovePodSandbox",
        "ListPodSandbox",
        "CreateContainer",
        "StartContainer",
        "StopContainer",
        "RemoveContainer",
        "ListContainers",
        "CheckpointContainer",
        "UpdateContainerResources",
        "UpdatePodSandboxResources",
        "ReopenContainerLog",
        "ContainerStats",
        "ListContainerStats",
        "ListImages",
        "ImageStatus",
        "PullImage",
        "RemoveImage",
        "ImageFsInfo",
    ]
)
"""Rpcs whose answers are recorded as they are, unless an annotation has the whole manifest."""


def settings(given: Settings) -> Settings:
    """The settings without header values, and without the user and query of a URL."""
    header = {name: (HIDDEN,) * len(values) for name, values in given.static_pod_url_header.items()}
    url = safe(given.static_pod_url, HIDDEN)
    if not header and url == given.static_pod_url:
        return given  # a copy refers to every value, and so writes to each of their pages, which all actors share
    return msgspec.structs.replace(given, static_pod_url=url, static_pod_url_header=header)


@functools.cache
def is_recorded(kind: type[Message]) -> bool:
    """True for a manager's own messages and for `RECORDED`."""
    return kind.__module__ != base.__name__ or kind.__name__ in RECORDED


def message_body(message: Message, body: bytes) -> bytes | None:
    """The body of a received message; None when it may have secrets."""
    if isinstance(message, CallRuntime) and (message.rpc not in _READS or _LAST_APPLIED in message.request):
        return None
    return without_variables(body)


def without_variables(body: bytes) -> bytes:
    """A message without values of environment variables. Raises an exception for a body that is not msgpack."""
    if b"env" not in body and _LAST_APPLIED not in body:
        return body
    packed: bytes = msgpack.packb(plain(msgpack.unpackb(body, strict_map_key=True)))
    return packed


def plain(value: Any) -> Any:
    """Plain data, as of a message or a checkpoint, without values of environment variables."""
    if isinstance(value, dict):
        return {key: _field(key, one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    if isinstance(value, bytes | str) and value[:1] in (b"{", "{"):
        return _document(value)
    return value


def _field(key: Any, value: Any) -> Any:
    if key == "env" and isinstance(value, list | tuple):
        return [one | {"value": HIDDEN} if isinstance(one, dict) and one.get("value") else one for one in value]
    if key == "environment" and isinstance(value, dict):
        return dict.fromkeys(value, HIDDEN)
    if key == LAST_APPLIED:
        return HIDDEN
    return plain(value)


def _document(text: bytes | str) -> bytes | str:
    """A JSON document in a field, such as a pod for the server actor."""
    try:
        found = msgspec.json.encode(plain(untrusted.decode_json(text)))
    except (ValueError, RecursionError):
        return text
    return found if isinstance(text, bytes) else found.decode()


def answer_of(request: Message) -> Callable[[bytes], bytes] | None:
    """The function that removes secrets from the answer to this request; None when there are none."""
    if isinstance(request, CallRuntime):
        return lambda body: _runtime_answer(request.rpc, body)
    return _ANSWERS.get(type(request).__name__, without_variables)


def response(rpc: str, answer: bytes) -> bytes:
    """The bytes of a CRI response without secrets."""
    shown = answer if rpc in _PLAIN else _without_secrets(rpc, answer)
    return _without_manifests(rpc, shown) if _LAST_APPLIED in shown else shown


def _runtime_answer(rpc: str, body: bytes) -> bytes:
    if rpc in _PLAIN and _LAST_APPLIED not in body:
        return body
    answer = codec.decode(body, RuntimeAnswer)
    return codec.encode(RuntimeAnswer(response=response(rpc, answer.response)))


def _without_secrets(rpc: str, answer: bytes) -> bytes:
    """Hide output, URLs and verbose information, of which a process's pid stays. Unknown rpcs have an empty answer."""
    if rpc not in ("ExecSync", "ContainerStatus", "PodSandboxStatus", "Status"):
        return b""
    given = _parsed(rpc, answer)
    if rpc == "ExecSync":
        return bytes(type(given)(exit_code=given.exit_code).SerializeToString())
    if not given.info:
        return answer
    pid = _pid(given.info.get("info", ""))
    given.info.clear()
    if pid:
        given.info["info"] = f'{{"pid":{pid}}}'
    return bytes(given.SerializeToString())


def _without_manifests(rpc: str, answer: bytes) -> bytes:
    """Hide the annotation of sandboxes, containers and images that kubectl fills with the whole manifest."""
    given = _parsed(rpc, answer)
    _hide_manifests(given)
    return bytes(given.SerializeToString())


def _hide_manifests(message: Any) -> None:
    for field, value in message.ListFields():
        if field.name == "annotations":
            if LAST_APPLIED in value:
                value[LAST_APPLIED] = HIDDEN
        elif field.message_type is None or field.message_type.GetOptions().map_entry:
            continue
        else:
            for one in value if field.is_repeated else [value]:
                _hide_manifests(one)


def _parsed(rpc: str, content: bytes) -> Any:
    from proto.cri import api_pb2 as pb  # noqa: PLC0415 - 3 MB in a process without a runtime

    return getattr(pb, f"{rpc}Response").FromString(content)


def _pid(info: str) -> int:
    try:
        return untrusted.decode_json(info, _Info).pid
    except msgspec.DecodeError:
        return 0


class _Info(msgspec.Struct):
    pid: int = 0


def _objects(body: bytes) -> bytes:
    answer = codec.decode(body, Objects)
    found = tuple(
        msgspec.structs.replace(one, data=dict.fromkeys(one.data, HIDDEN.encode())) if one.ref.kind == "Secret" else one
        for one in answer.found
    )
    return codec.encode(msgspec.structs.replace(answer, found=found))


def _token(body: bytes) -> bytes:
    return codec.encode(msgspec.structs.replace(codec.decode(body, Token), token=HIDDEN))


def _pod_certificate(body: bytes) -> bytes:
    return codec.encode(msgspec.structs.replace(codec.decode(body, PodCertificate), key=HIDDEN))


def _volume_file(_: bytes) -> bytes:
    return codec.encode(VolumeFile(data=HIDDEN.encode()))


_ANSWERS: dict[str, Callable[[bytes], bytes]] = {
    "GetObjects": _objects,
    "GetPodCertificate": _pod_certificate,
    "GetToken": _token,
    "ReadVolumeFile": _volume_file,
}
"""By the type of the request."""
