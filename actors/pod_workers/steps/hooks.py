"""Runs one lifecycle handler: exec, httpGet or sleep.

Source: pkg/kubelet/lifecycle/handlers.go, messages included. `operations` runs postStart hooks, `killing` preStop
hooks; they handle failures. https://kubernetes.io/docs/concepts/containers/container-lifecycle-hooks/
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from actors._base.messaging.tasks import Cancelled
from actors._cri.call import beside
from actors._cri.errors import CriError, RuntimeDown
from actors._metrics import kubelet as metrics
from actors._net.probing.outcome import MAX_BODY_BYTES
from actors._net.probing.target import BadTarget, Url, url_of
from actors.pod_workers.model import reasons
from actors.pod_workers.model.view import PodView
from actors.pod_workers.shared.pod_scope import PodScope
from proto.v1 import Container, ExecAction, HTTPGetAction, HTTPHeader, LifecycleHandler, Pod, TCPSocketAction

HOOK_DEADLINE_S = 3600.0
"""The kubelet waits for a postStart hook without limit. A preStop hook ends with the grace period."""
NOT_TLS = "server gave HTTP response to HTTPS client"


class HookFailedError(Exception):
    """A hook failed; the text is the kubelet's."""


class Hooks:
    """The hooks of one pod's containers; used in its worker's mailbox thread only."""

    def __init__(self, scope: PodScope) -> None:
        self.context = scope.context
        self._sleep = scope.sleep

    async def run(
        self, pod: Pod, container: Container, container_id: str, handler: LifecycleHandler, view: PodView
    ) -> None:
        """Run a handler to its end. Raises HookFailedError; RuntimeDown if its outcome is unknown.

        Cancelling does not end a command that runs.
        """
        if handler.exec is not None:
            await self._exec(pod, container, container_id, handler.exec)
        elif handler.http_get is not None:
            await self._http_get(pod, container, handler.http_get, view)
        elif handler.sleep is not None:
            try:
                await self._sleep(handler.sleep.seconds)
            except Cancelled:
                metrics.SLEEPS_CUT_SHORT.inc()
                raise
        else:
            raise HookFailedError(f"Cannot run handler: invalid handler: {_go_handler(handler.tcp_socket)}")

    async def _exec(self, pod: Pod, container: Container, container_id: str, action: ExecAction) -> None:
        shown = f"[{' '.join(action.command)}]"
        output = b""
        try:
            call = self.context.cri.exec_sync(container_id, action.command, 0, timeout=HOOK_DEADLINE_S)
            answer = await beside(call)
            if answer.exit_code == 0:
                return
            output = answer.stdout + answer.stderr
            command = " ".join(action.command)
            error = f"command '{command}' exited with {answer.exit_code}: {_text(answer.stderr)}"
        except RuntimeDown:
            raise
        except CriError as failure:
            error = failure.grpc_text()
        message = json.dumps(_text(output), ensure_ascii=False)
        raise HookFailedError(
            f"Exec lifecycle hook ({shown}) {_of(pod, container)} - error: {error}, message: {message}"
        )

    async def _http_get(self, pod: Pod, container: Container, action: HTTPGetAction, view: PodView) -> None:
        try:
            url = url_of(action, self._pod_ip(pod, view), container.ports)
        except BadTarget as error:
            raise HookFailedError(_http_failed(pod, container, action, str(error))) from error
        problem = await self._get(url, action.http_headers)
        if NOT_TLS in problem and not await self._get(url._replace(scheme="http"), _in_clear(action.http_headers)):
            metrics.HOOK_FALLBACKS.inc()
            self.context.events.pod(pod, "Warning", *reasons.lifecycle_http_fallback(url.authority))
        elif problem:
            raise HookFailedError(_http_failed(pod, container, action, problem))

    async def _get(self, url: Url, headers: Sequence[HTTPHeader]) -> str:
        """The error; empty after an answer with any HTTP status."""
        outcome = await self.context.http_hooks.get(url, headers, HOOK_DEADLINE_S)
        return "" if outcome.kind == "success" else outcome.output

    def _pod_ip(self, pod: Pod, view: PodView) -> str:
        if pod.spec.host_network:
            return self.context.host_ips[0] if self.context.host_ips else ""
        ips = view.sandboxes[0].ips if view.sandboxes else ()
        return ips[0] if ips else ""


def _in_clear(headers: Sequence[HTTPHeader]) -> list[HTTPHeader]:
    """The headers without the credential: it was given for HTTPS, and anything on the way can read plain HTTP."""
    return [header for header in headers if header.name.lower() != "authorization"]


def _text(output: bytes) -> str:
    return output[:MAX_BODY_BYTES].decode("utf-8", "replace")


def _of(pod: Pod, container: Container) -> str:
    return f'for Container "{container.name}" in Pod "{reasons.pod_description(pod)}" failed'


def _http_failed(pod: Pod, container: Container, action: HTTPGetAction, error: str) -> str:
    return f"HTTP lifecycle hook ({action.path or ''}) {_of(pod, container)} - error: {error}"


def _go_handler(tcp: TCPSocketAction | None) -> str:
    """An unsupported handler as Go prints it. The API still accepts tcpSocket in old manifests."""
    socket = "nil"
    if tcp is not None:
        by_name = isinstance(tcp.port, str)
        port = f"{{1 0 {tcp.port}}}" if by_name else f"{{0 {tcp.port} }}"
        socket = f"&TCPSocketAction{{Port:{port},Host:{tcp.host or ''},}}"
    return f"&LifecycleHandler{{Exec:nil,HTTPGet:nil,TCPSocket:{socket},Sleep:nil,}}"
