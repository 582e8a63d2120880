"""Fetches the sources of a container's variables before its config is built: API objects and files of volumes."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Mapping

from actors._host.node.critical import is_static
from actors._objects.fetch import fetch
from actors._objects.peer import has_objects
from actors.pod_workers.cri_config.container_config import node_facts
from actors.pod_workers.environment import env_file, references
from actors.pod_workers.environment.service_env import service_variables
from actors.pod_workers.environment.variables import ConfigError, Sources, from_bytes
from actors.pod_workers.shared.worker_context import WorkerContext
from proto.pods.objects import ApiObject, ObjectRef, document_of
from proto.pods.volume import ReadVolumeFile
from proto.v1 import Container, FileKeySelector, Pod
from proto.v1.cluster import RuntimeClass, Service
from proto.wire.errors import Refused

log = logging.getLogger(__name__)

READ_S = 60.0
"""The volume actor has its own deadline."""

ObjectsByRef = Mapping[ObjectRef, ApiObject]
Files = Mapping[tuple[str, str], env_file.EnvFile]
"""By volume and path in it."""
MAX_FILES_BYTES = 16 * 1024 * 1024
"""All environment files of a container. The values are in memory together."""


async def container_objects(context: WorkerContext, pod: Pod, container: Container) -> ObjectsByRef:
    """The API objects that the container's variables may come from; asks the objects actor only if there are any.

    Raises Refused while the objects cannot be read, and the errors of an ask. A static pod (as in the kubelet) and a
    pod of the checkpoint start without variables of Services if these cannot be read.
    """
    refs = set(references.variable_references(pod, container))
    services = set(references.services(pod)) if has_objects(context.settings) else set()
    if not services or not (is_static(pod) or pod.metadata.uid in context.restored):
        return await fetch(context.objects, refs | services) if refs or services else {}
    found = await fetch(context.objects, refs) if refs else {}
    try:
        return found | await fetch(context.objects, services)
    except Refused as refusal:
        log.warning("pod %s/%s starts without Services: %s", pod.metadata.namespace, pod.metadata.name, refusal.message)
        return found


async def runtime_handler(context: WorkerContext, pod: Pod) -> str:
    """The runtime's handler for the pod's runtime class; empty for the runtime's default.

    Without an API server or a directory of objects, the class's name is the handler. Raises Refused if the class does
    not exist or cannot be read.
    """
    name = pod.spec.runtime_class_name
    if not name or not has_objects(context.settings):
        return name or ""
    ref = references.runtime_class(name)
    found = (await fetch(context.objects, (ref,))).get(ref)
    if found is None:
        raise Refused("NotFound", f'runtimeclass.node.k8s.io "{name}" not found')
    handler: str = document_of(found, RuntimeClass).handler
    return handler


async def image_handler(context: WorkerContext, pod: Pod) -> str:
    """The pod's runtime handler for ImageSpec; empty without the feature gate RuntimeClassInImageCriApi.

    Raises Refused as `runtime_handler`.
    """
    return await runtime_handler(context, pod) if context.settings.images_by_handler else ""


async def volume_files(context: WorkerContext, pod: Pod, container: Container, volumes: Mapping[str, str]) -> Files:
    """The files in volumes that the container's variables come from. `volumes`: name to path on the host.

    Raises ConfigError if a file cannot be read or the files are too long, and the errors of an ask.
    """
    wanted: dict[tuple[str, str], list[FileKeySelector]] = defaultdict(list)
    for variable in container.env:
        if variable.value_from is not None and (key := variable.value_from.file_key_ref) is not None:
            wanted[key.volume_name, key.path].append(key)
    found: dict[tuple[str, str], env_file.EnvFile] = {}
    left = MAX_FILES_BYTES
    for place, keys in wanted.items():
        data = await _volume_file(context, pod, keys[0], volumes)
        left -= len(data)
        if left < 0:
            raise ConfigError(
                f"cannot read the environment files: they have more than {MAX_FILES_BYTES} bytes together; use fewer"
            )
        found[place] = env_file.EnvFile(from_bytes(data), {one.key for one in keys})
    return found


async def _volume_file(context: WorkerContext, pod: Pod, key: FileKeySelector, volumes: Mapping[str, str]) -> bytes:
    volume = volumes.get(key.volume_name)
    if volume is None:
        raise ConfigError(f'cannot find the volume "{key.volume_name}" referenced by FileKeyRef')
    request = ReadVolumeFile(
        pod_uid=pod.metadata.uid,
        volume=key.volume_name,
        volume_path=volume,
        path=key.path,
        max_bytes=env_file.MAX_BYTES,
    )
    try:
        return (await context.volumes.ask(request, READ_S)).data
    except Refused as refusal:
        raise _unparsed(pod, key, refusal) from refusal


def sources(context: WorkerContext, pod: Pod, pod_ips: tuple[str, ...], found: ObjectsByRef, files: Files) -> Sources:
    """The input of `environment`."""
    namespace = pod.metadata.namespace
    services = (document_of(one, Service) for ref, one in found.items() if ref.kind == "Service")
    return Sources(
        node=node_facts(context),
        pod_ips=pod_ips,
        config_map=lambda name: _config_map(found.get(references.config_map(namespace, name))),
        secret=lambda name: _secret(found.get(references.secret(namespace, name))),
        services=service_variables(services, namespace, links=pod.spec.enable_service_links is not False),
        file_key=lambda key: _value(pod, key, files),
    )


def _config_map(found: ApiObject | None) -> dict[str, str] | None:
    """The data as text, without binaryData, which is for volumes only."""
    if found is None:
        return None
    return {key: from_bytes(value) for key, value in found.data.items() if key not in found.binary_keys}


def _secret(found: ApiObject | None) -> dict[str, str] | None:
    return None if found is None else {key: from_bytes(value) for key, value in found.data.items()}


def _value(pod: Pod, key: FileKeySelector, files: Files) -> str:
    try:
        return files[(key.volume_name, key.path)].value(key.key)
    except env_file.EnvFileError as error:
        raise _unparsed(pod, key, error) from error


def _unparsed(pod: Pod, key: FileKeySelector, error: Exception) -> ConfigError:
    """As in the kubelet, only the log has the cause."""
    meta = pod.metadata
    log.warning("pod %s/%s: environment file %s: %s", meta.namespace, meta.name, key.path, error)
    return ConfigError("couldn't parse env file")
