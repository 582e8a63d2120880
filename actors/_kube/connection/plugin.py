"""Runs the credential plugin of a kubeconfig, with bounds on its time and output. Blocks: for a client's own threads.

Source: client-go's exec plugin.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Callable
from datetime import datetime
from typing import Annotated, Any, NamedTuple

import msgspec

from actors._kube.connection.kubeconfig import Access, Exec, KubeconfigError
from proto.common import untrusted
from proto.common.machine import program
from proto.common.machine.program import OutputTooLongError

PLUGIN_S = 60.0
MAX_ERROR_BYTES = 500
"""The end of its standard error, for the error's message. A plugin may log as much as it likes."""


class PluginStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The status of an ExecCredential: a token, a certificate with its key (PEM), or both."""

    token: str | None = None
    client_certificate_data: str | None = None
    client_key_data: str | None = None
    expiration_timestamp: Annotated[datetime, msgspec.Meta(tz=True)] | None = None
    """RFC 3339 needs a time zone. So no conversion of this time depends on the machine's zone, or fails."""


class _ExecCredential(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    api_version: str | None = None
    kind: str | None = None
    status: PluginStatus | None = None


class PluginRun(NamedTuple):
    """A run of the plugin. Monotonic seconds."""

    name: str
    """With the kubeconfig that names it."""
    pid: int
    began: float
    ended: float = 0.0
    """0: under way."""


def lateness(run: PluginRun | None, began: float, sent: float, limit_s: float) -> str:
    """Why a call that began then has no answer at its limit: the end of an error's message. Pure.

    `run`: the plugin's last one. `sent`: when the call had its credentials; 0 before.
    """
    if run is not None and not run.ended and not sent:
        return f"the {run.name} has not ended within {max(0.0, began + limit_s - run.began):.0f} s"
    text = f"no answer within {limit_s:g} s"
    if run is None or not run.ended:
        return text
    took_s = min(run.ended, sent or run.ended) - max(began, run.began)
    return f"{text}, of which the {run.name} took {took_s:.1f} s" if took_s > 0 else text


def run_plugin(plugin: Exec, access: Access, started: Callable[[str, int], None]) -> PluginStatus:
    """The status of the ExecCredential that the plugin prints. Raises KubeconfigError.

    `started` gets the plugin's name and process.
    """
    where = f"credential plugin {plugin.command} of {access.path}"
    if plugin.interactive_mode == "Always":
        raise KubeconfigError(f"cannot run the {where}: it needs a terminal (interactiveMode: Always)")
    info: dict[str, Any] = {"kind": "ExecCredential", "apiVersion": plugin.api_version, "spec": {"interactive": False}}
    if plugin.provide_cluster_info:
        info["spec"]["cluster"] = _cluster_info(access)
    variables = {one.name: one.value for one in plugin.env or ()}
    environment = {**os.environ, **variables, "KUBERNETES_EXEC_INFO": msgspec.json.encode(info).decode()}
    command = [plugin.command, *(plugin.args or ())]
    try:
        ended = program.run(command, environment, PLUGIN_S, MAX_ERROR_BYTES, started=lambda pid: started(where, pid))
    except FileNotFoundError as error:
        hint = f"; {plugin.install_hint}" if plugin.install_hint else ""
        raise KubeconfigError(f"cannot run the {where}: it is not there{hint}") from error
    except TimeoutError:
        raise KubeconfigError(f"the {where} did not end within {PLUGIN_S:g} s and was killed") from None
    except OutputTooLongError:
        problem = f"printed more than {program.MAX_OUTPUT_BYTES} bytes; correct the plugin"
        raise KubeconfigError(f"the {where} {problem}") from None
    except (OSError, ValueError) as error:  # ValueError: a NUL in an argument
        raise KubeconfigError(f"cannot run the {where}: {error}") from error
    if ended.code != 0:
        raise KubeconfigError(f"the {where} failed with exit code {ended.code}: {ended.errors}")
    return _status(ended.output, plugin, where)


def _status(output: bytes, plugin: Exec, where: str) -> PluginStatus:
    try:
        printed = untrusted.decode_json(output, _ExecCredential)
    except msgspec.DecodeError as error:
        raise KubeconfigError(f"the {where} did not print an ExecCredential: {error}") from error
    if printed.api_version != plugin.api_version or printed.kind != "ExecCredential":
        raise KubeconfigError(f"the {where} printed {printed.kind} of {printed.api_version}")
    status = printed.status or PluginStatus()
    has_pair = [bool(status.client_certificate_data), bool(status.client_key_data)]
    if any(has_pair) != all(has_pair) or not (all(has_pair) or status.token):
        raise KubeconfigError(f"the {where} printed neither a token nor a certificate with its key")
    return status


def _cluster_info(access: Access) -> dict[str, Any]:
    cluster = access.cluster
    authority = access.data(cluster.certificate_authority_data, cluster.certificate_authority, "certificate-authority")
    info = {
        "server": cluster.server,
        "tls-server-name": cluster.tls_server_name,
        "insecure-skip-tls-verify": cluster.insecure_skip_tls_verify,
        "certificate-authority-data": base64.b64encode(authority).decode(),
        "proxy-url": cluster.proxy_url,
    }
    return {name: value for name, value in info.items() if value}
