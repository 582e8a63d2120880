"""A command line of `supervisor start` to a checked configuration, and that to the actors' settings.

The functions raise UnusableConfiguration with every reason. They do not change the machine. They load YAML when files
are named.
"""

from __future__ import annotations

import ipaddress
import os
from typing import TYPE_CHECKING, Any

import msgspec

from proto.agent.settings import Settings
from supervisor.config import run_dir
from supervisor.config.flags.parser import Given
from supervisor.config.kubeletconfig.problems import UnusableConfiguration
from supervisor.config.reload import boot
from supervisor.host import unprivileged

if TYPE_CHECKING:
    from supervisor.config.configuration import Effective

PATHS = (
    "run_dir",
    "root_dir",
    "pod_manifest_path",
    "objects_dir",
    "images_dir",
    "registries_dir",
    "kubeconfig",
    "bootstrap_kubeconfig",
    "cert_dir",
    "pod_logs_dir",
    "container_logs_dir",
    "image_credential_provider_config",
    "image_credential_provider_bin_dir",
)
"""Settings with paths, made absolute because actors have another working directory."""


def configuration(given: Given) -> Effective:
    """Assemble the configuration of flags and of the files that they name. Raises UnusableConfiguration."""
    from supervisor.config.configuration import assemble  # noqa: PLC0415 - loads YAML
    from supervisor.config.kubeletconfig.problems import ConfigurationError  # noqa: PLC0415
    from supervisor.config.kubeletconfig.validation.node import check_labels  # noqa: PLC0415

    problems = [str(problem) for problem in check_labels(given.values.get("node-labels", {}))]
    if given.values.get("cloud-provider", "") not in ("", "external"):
        problems.append("--cloud-provider: must be external or empty; cloud providers run outside of the kubelet")
    if given.values.get("bootstrap-kubeconfig") and not given.values.get("kubeconfig"):
        problems.append("--bootstrap-kubeconfig: needs --kubeconfig, the file that bootstrapping writes")
    if given.values.get("exit-on-lock-contention") and not given.values.get("lock-file"):
        problems.append("--exit-on-lock-contention: needs --lock-file")
    problems += _credential_providers(given)
    try:
        effective = assemble(given.by_field(), given.values.get("config", ""), given.values.get("config-dir", ""))
    except ConfigurationError as error:
        problems += map(str, error.problems)
    if problems:
        raise UnusableConfiguration(f"cannot use the configuration:{''.join(_lines(problems))}")
    return effective


def _credential_providers(given: Given) -> list[str]:
    """Errors of the credential providers, with which the kubelet does not start either."""
    path, bin_dir = (given.values.get(f"image-credential-provider-{what}", "") for what in ("config", "bin-dir"))
    if not path and not bin_dir:
        return []
    from proto.schema.credential_provider import ProviderConfigError, load  # noqa: PLC0415

    try:
        load(path, bin_dir)
    except ProviderConfigError as error:
        return [str(error)]
    return []


def _lines(problems: list[str]) -> list[str]:
    return [f" {problems[0]}"] if len(problems) == 1 else [f"\n  {problem}" for problem in problems]


def settings_of(effective: Effective, given: Given) -> Settings:
    """The settings of the configuration, and of flags without a field, with absolute paths."""
    from supervisor.config.kubeletconfig.mapping import to_settings  # noqa: PLC0415

    config, flags = effective.config, given.by_setting()
    settings = to_settings(config, Settings())
    if effective.source("logging.verbosity") is not None:
        flags["verbosity"] = config.logging.verbosity  # an explicit 0 too; as a default, 0 means 2
    if effective.source("containerRuntimeEndpoint") is not None:
        # An explicit default too. Without an explicit value, the agent searches for a runtime.
        flags["container_runtime_endpoint"] = config.container_runtime_endpoint
    if "container_gc_min_age_s" in flags:
        from proto.v1.scalars.duration import parse_seconds  # noqa: PLC0415

        flags["container_gc_min_age_s"] = parse_seconds(flags["container_gc_min_age_s"])
    flags["page_address"] = page_address(flags.get("page_address", ""))
    flags["node_name"] = _node_name(flags.get("node_name", ""))
    flags["run_dir"] = run_dir.chosen(given.values.get("run-dir"))
    settings = msgspec.structs.replace(settings, **flags)
    paths = {name: os.path.abspath(path) for name in PATHS if (path := getattr(settings, name))}
    sources = ("file", "api") if settings.kubeconfig else settings.pod_sources
    settings = msgspec.structs.replace(settings, pod_sources=sources, **paths)
    if not unprivileged.is_ordinary_user():
        return settings
    return unprivileged.adapted(settings, unprivileged.state_dir(os.environ, os.path.expanduser("~")))


def page_address(given: str) -> str:
    """ADDRESS:PORT of `[ADDRESS:]PORT`, IPv6 in brackets; empty: none. Raises UnusableConfiguration."""
    address, _, port = given.rpartition(":")
    bare = address.removeprefix("[").removesuffix("]") or "127.0.0.1"
    try:
        known = ipaddress.ip_address(bare)
        if given and not 0 < int(port) < 65_536:
            raise ValueError(port)
    except ValueError:
        raise UnusableConfiguration(
            f"cannot use --page-address {given!r}: write PORT or ADDRESS:PORT, with an IP address"
        ) from None
    if not given:
        return ""
    return f"[{known}]:{port}" if known.version == 6 else f"{known}:{port}"


def _node_name(override: str) -> str:
    """The node's name as in the kubelet: the override or the host name, trimmed, in lower case."""
    name = (override or os.uname().nodename).strip().lower()
    if not name:
        raise UnusableConfiguration("cannot start: this host has no name; give one with --hostname-override")
    return name


def encoded(effective: Effective) -> msgspec.Raw:
    """The configuration for RUN_DIR/configuration.json, with secrets masked."""
    from supervisor.config.kubeletconfig.typed import encode  # noqa: PLC0415

    shown: dict[str, Any] = {"configuration": encode.plain(effective.config), "sources": effective.origins()}
    return msgspec.Raw(msgspec.json.encode(shown))


LOADER = boot.Loader(configuration, settings_of, encoded)
