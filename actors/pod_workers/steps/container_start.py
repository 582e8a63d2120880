"""Starts one container: pulls its image, prepares files and mounts, creates and starts it.

Errors carry the kubelet's reasons.
"""

from __future__ import annotations

import logging
import os
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from actors._base.messaging import tracing
from actors._cri.client import PULL_SECONDS
from actors._cri.errors import CriError, RuntimeDown
from actors._events.recorder import EventType, field_path
from actors._host.files import paths
from actors._metrics import kubelet as metrics
from actors.pod_workers.cri_config import host_files
from actors.pod_workers.cri_config.container_config import build_container_config, join_processes
from actors.pod_workers.cri_config.grants import add_grant
from actors.pod_workers.cri_config.mounts import (
    MountInputs,
    image_volumes,
    sub_paths,
    to_bind,
    wants_recursive_read_only,
)
from actors.pod_workers.cri_config.sandbox_config import build_sandbox_config, with_present_privilege
from actors.pod_workers.environment.references import pull_secrets
from actors.pod_workers.environment.variables import ConfigError, Sources, environment
from actors.pod_workers.model import reasons
from actors.pod_workers.model.view import ContainerView, PodView, SandboxView, sorted_ips
from actors.pod_workers.shared.assigned import grant_of
from actors.pod_workers.shared.worker_context import WorkerContext
from actors.pod_workers.steps import supplies
from actors.pod_workers.steps.supplies import ObjectsByRef, container_objects
from proto.cri import api_pb2 as pb
from proto.node.image_pull import EnsureImage, ImageEnsured
from proto.pods.volume import BindSubPaths, SubPath
from proto.resources.grants import Grant
from proto.v1 import Container, EphemeralContainer, Pod
from proto.wire.errors import AskTimeout, Refused

log = logging.getLogger(__name__)

PULL_DEADLINE_S = PULL_SECONDS + 3600.0
"""A pull, and an hour in its queue. After it the next step asks again. The death of image_pull ends the ask at once."""
FILES_S = 30.0
"""For creating a container's directories and files on the node."""
SUB_PATHS_S = 60.0
"""The volume actor has its own deadline for each."""


class StartFailedError(Exception):
    """A container or sandbox cannot start now: the kubelet's reason and message for its status."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(f"{reason}: {message}")
        self.reason = reason
        self.message = message


class ContainerStart:
    """The start of one container in a ready sandbox."""

    def __init__(
        self,
        context: WorkerContext,
        pod: Pod,
        container: Container,
        sandbox: SandboxView,
        restart_count: int,
        volumes: MountInputs,
        sandbox_config: pb.PodSandboxConfig | None,
    ) -> None:
        self.context, self.pod, self.container, self.sandbox = context, pod, container, sandbox
        self.restart_count = restart_count
        self.mounts = volumes.volumes
        of_sandbox = sandbox_config or build_sandbox_config(pod, sandbox.attempt, context)
        self.sandbox_config = with_present_privilege(of_sandbox, pod)
        self.created_id = ""
        self.pulling_s = 0.0
        """Seconds of pulls, failed ones included."""
        self.objects: ObjectsByRef = {}
        self.files: supplies.Files = {}
        self.mount_facts = volumes
        self.images: dict[str, pb.ImageSpec] = {}
        """Pulled image volumes by name."""
        self.grant = Grant()
        self.target_id = ""
        """CRI ID of the container whose process namespace this one joins; else empty."""

    async def ensure_image(self) -> ImageEnsured:
        """Ask image_pull for the image. Its refusals become the container's waiting reasons."""
        where = field_path(self.pod, self.container.name) or ""
        return await self._image(self.container.image, self.container.image_pull_policy, where)

    async def ensure_image_volumes(self) -> None:
        """Ask for the images that the container mounts; before its own, as in the kubelet."""
        for name, source in image_volumes(self.pod, self.container).items():
            metrics.IMAGE_VOLUMES_REQUESTED.inc()
            image = await self._image(source.reference, source.pull_policy, "")
            self.images[name] = pb.ImageSpec(
                image=image.image_ref,
                user_specified_image=source.reference or "",
                runtime_handler=await self._image_handler(),
                annotations=self.pod.metadata.annotations,
            )

    async def _image(self, image: str | None, policy: str | None, where: str) -> ImageEnsured:
        meta = self.pod.metadata
        request = EnsureImage(
            pod_uid=meta.uid,
            pod_namespace=meta.namespace,
            pod_name=meta.name,
            container=self.container.name,
            image=image or "",
            policy=policy or "IfNotPresent",  # type: ignore[arg-type]  # validated by config
            field_path=where,
            pull_secrets=tuple(ref.name for ref in pull_secrets(self.pod)),
            service_account=self.pod.spec.service_account_name or "",
            sandbox_config=self._sandbox_without_annotations(),
            runtime_handler=await self._image_handler(),
            annotations=meta.annotations,
        )
        began = time.monotonic()
        try:
            answer = await self.context.images.ask(request, PULL_DEADLINE_S)
        except Refused as refusal:
            self.pulling_s += time.monotonic() - began
            told = "" if refusal.reason == reasons.CREATE_CONTAINER_CONFIG_ERROR else refusal.reason
            raise self._failed(refusal.reason, refusal.message, event_text=told) from refusal
        if answer.pulled:
            self.pulling_s += time.monotonic() - began
        return answer

    async def _image_handler(self) -> str:
        """The pod's runtime handler, where images are told apart by it; else empty. Raises StartFailedError."""
        try:
            return await supplies.image_handler(self.context, self.pod)
        except Refused as refusal:
            raise self._failed(reasons.CREATE_CONTAINER_CONFIG_ERROR, refusal.message) from refusal

    def _sandbox_without_annotations(self) -> bytes:
        """The sandbox's config for a pull, in the same bytes for the same pod. Its annotations are beside it."""
        config = pb.PodSandboxConfig()
        config.CopyFrom(self.sandbox_config)
        config.ClearField("annotations")
        return bytes(config.SerializeToString(deterministic=True))

    def find_target(self, view: PodView) -> None:
        """Find the container whose processes an ephemeral container sees; after the pull, as in the kubelet."""
        name = self.container.target_container_name if isinstance(self.container, EphemeralContainer) else None
        if not name:
            return
        target = view.container(name)
        if target is None:
            raise self._failed(reasons.CREATE_CONTAINER_CONFIG_ERROR, f"unable to find target container {name}")
        self.target_id = target.id

    async def fetch_objects(self) -> None:
        """Read the variables' sources: after the pull, which may take long, and before any file is written."""
        try:
            self.objects = await container_objects(self.context, self.pod, self.container)
            self.files = await supplies.volume_files(self.context, self.pod, self.container, self.mounts)
        except ConfigError as error:
            raise self._failed(error.reason, str(error)) from error
        except Refused as refusal:
            raise self._failed(reasons.CREATE_CONTAINER_CONFIG_ERROR, refusal.message) from refusal

    async def fetch_grant(self) -> None:
        """Ask for the CPUs, memory nodes and devices that the container gets."""
        try:
            self.grant = await grant_of(self.context, self.pod, self.container)
        except Refused as refusal:
            raise self._failed(reasons.CREATE_CONTAINER_CONFIG_ERROR, refusal.message) from refusal

    async def prepare_mounts(self) -> None:
        """Bind the sub paths of volumes, and ask if the runtime supports recursive read-only mounts."""
        try:
            parts = sub_paths(self.container, lambda: environment(self.pod, self.container, self._sources()))
            self.mount_facts = replace(
                self.mount_facts,
                sub_paths=await self._bind(to_bind(self.container, parts, self.mounts, self.images)),
                recursive_read_only=wants_recursive_read_only(self.container) and await self._recursive_read_only(),
                images=self.images,
                image_sub_paths=parts,
            )
        except ConfigError as error:
            raise self._failed(error.reason, str(error)) from error
        except Refused as refusal:
            raise self._failed(refusal.reason, refusal.message) from refusal

    async def _bind(self, wanted: tuple[SubPath, ...]) -> dict[int, str]:
        if not wanted:
            return {}
        request = BindSubPaths(pod_uid=self.pod.metadata.uid, container=self.container.name, sub_paths=wanted)
        bound = await self.context.volumes.ask(request, SUB_PATHS_S)
        return {one.index: path for one, path in zip(wanted, bound.host_paths, strict=True)}

    async def _recursive_read_only(self) -> bool:
        """Return True when the sandbox's handler supports such mounts; False while runtime or class cannot be read."""
        try:
            handler = await supplies.runtime_handler(self.context, self.pod)
            answer = await self.context.cri.status()
        except (Refused, CriError):
            return False  # asked again with the next container
        return any(one.name == handler and one.features.recursive_read_only_mounts for one in answer.runtime_handlers)

    def _sources(self) -> Sources:
        ips = self.context.host_ips if self.pod.spec.host_network else self.sandbox.ips
        # The kubelet sorts variables of host-network pods, too. In /etc/hosts it keeps the runtime's order.
        ips = sorted_ips(ips, self.context.settings.node_ip)
        return supplies.sources(self.context, self.pod, ips, self.objects, self.files)

    async def create(self, image: ImageEnsured) -> str:
        """Write files on the host, then call CreateContainer. Returns the CRI ID."""
        try:
            config = await self._config(image)
        except AskTimeout as error:
            raise self._failed(reasons.CREATE_CONTAINER_ERROR, f"cannot prepare files: {error}") from error
        except ConfigError as error:
            raise self._failed(error.reason, str(error)) from error
        except OSError as error:
            message = f"cannot prepare {error.filename}: {error}"
            raise self._failed(reasons.CREATE_CONTAINER_ERROR, message) from error
        try:
            self.created_id = await self.context.cri.create_container(self.sandbox.id, config, self.sandbox_config)
        except RuntimeDown:
            raise
        except CriError as error:
            if self.images:
                metrics.IMAGE_VOLUME_ERRORS.inc(by=len(self.images))
            raise self._failed(reasons.CREATE_CONTAINER_ERROR, str(error)) from error
        if self.images:
            metrics.IMAGE_VOLUMES_MOUNTED.inc(by=len(self.images))
        self._event("Normal", "Created", "Container created")
        return self.created_id

    async def start(self, identity: str) -> None:
        """Call StartContainer, and link the log for log shippers."""
        try:
            await self.context.cri.start_container(identity)
        except RuntimeDown:
            raise
        except CriError as error:
            raise self._failed(reasons.RUN_CONTAINER_ERROR, str(error)) from error
        self._event("Normal", "Started", "Container started")
        self._link_log(identity)

    def check_stop_signal(self, found: ContainerView) -> None:
        """Warn when the runtime does not take lifecycle.stopSignal: its ContainerStatus then tells no stop signal.

        So do runtimes without KEP-4960, such as containerd 1.6 and 2.1. The container still ends by the image's
        signal, so it runs.
        """
        lifecycle = self.container.lifecycle
        if lifecycle is None or not lifecycle.stop_signal or not found.complete or found.stop_signal:
            return
        wanted = lifecycle.stop_signal
        message = (
            f"The container runtime ignores lifecycle.stopSignal {wanted}: it stops the container by the signal of the "
            "image, else by SIGTERM. Use a newer runtime, or an image with STOPSIGNAL"
        )
        self._event("Warning", "StopSignalIgnored", message)

    def _failed(self, reason: str, message: str, event_text: str = "") -> StartFailedError:
        """Record the event and return the error. `event_text`: instead of a message that image_pull has published."""
        self._event("Warning", "Failed", f"Error: {event_text or message}")
        return StartFailedError(reason, message)

    def _event(self, kind: EventType, reason: str, message: str) -> None:
        if self.created_id:  # replaced as in the kubelet, so that events of one container are equal
            message = message.replace(self.created_id, self.container.name)
        self.context.events.pod(self.pod, kind, reason, message, self.container.name)

    async def _config(self, image: ImageEnsured) -> pb.ContainerConfig:
        with tracing.span("prepareFiles"):
            files = await self.context.blocking(FILES_S, self._prepare_files)
        config = build_container_config(
            self.pod,
            self.container,
            self._sources(),
            self.restart_count,
            image,
            self.mount_facts,
            files,
            self.context,
        )
        add_grant(config, self.grant, quota=self.context.settings.cpu_quota_with_exclusive_cpus)
        if self.target_id:
            join_processes(config, self.target_id)
        return config

    def _prepare_files(self) -> host_files.HostFiles:
        """Runs in a pool thread. The pod's containers may have changed existing files."""
        settings, meta = self.context.settings, self.pod.metadata
        log_dir = paths.pod_log_dir(settings.pod_logs_dir, meta.namespace, meta.name, meta.uid)
        Path(log_dir, self.container.name).mkdir(mode=0o755, parents=True, exist_ok=True)
        Path(paths.pod_dir(settings.root_dir, meta.uid)).mkdir(mode=0o750, parents=True, exist_ok=True)
        return host_files.prepare(self.pod, self.container, self.sandbox, settings)

    def _link_log(self, identity: str) -> None:
        """/var/log/containers/NAME_NAMESPACE_CONTAINER-ID.log, the kubelet's legacyLogSymlink; shippers glob for it."""
        settings, meta = self.context.settings, self.pod.metadata
        log_dir = paths.pod_log_dir(settings.pod_logs_dir, meta.namespace, meta.name, meta.uid)
        target = os.path.join(log_dir, paths.container_log_path(self.container.name, self.restart_count))
        link = paths.log_symlink(settings.container_logs_dir, meta.name, meta.namespace, self.container.name, identity)
        try:
            os.makedirs(settings.container_logs_dir, mode=0o755, exist_ok=True)
            with suppress(FileExistsError):
                os.symlink(target, link)
        except OSError as error:
            log.warning("cannot link %s to %s: %s", link, target, error)
