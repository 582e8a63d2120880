"""`supervisor start`: make a plan from flags and files, then become the agent (`supervisor.core.agent`)."""

from __future__ import annotations

import importlib.metadata
import ipaddress
import logging
import os
import re
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

import click
import msgspec

from actors._cgroup.hierarchy import hierarchy, missing_controllers
from actors._host import other_agent, system
from proto.agent import recording
from proto.agent.settings import Settings
from proto.common import logs
from proto.node import runtime
from supervisor.cli.actors.service import start_actor
from supervisor.cli.agent import own_cgroup
from supervisor.cli.agent.kubelet_flags import (
    KubeletCommand,
    chosen_version,
    deprecations,
    version_asked,
    without_effect,
)
from supervisor.cli.agent.runtime import note_renamed, remember, with_runtime
from supervisor.cli.common import chosen_run_dir
from supervisor.cli.errors import CommandError
from supervisor.cli.views import render
from supervisor.config import missing_files
from supervisor.config.flags.parser import Given
from supervisor.config.reload import boot
from supervisor.core import agent
from supervisor.host import host_setup, rootdir, unprivileged
from supervisor.ownership.held_claims import HeldClaim
from supervisor.ownership.places import pods_cgroup
from supervisor.supervision import specfile, specs

if TYPE_CHECKING:
    from supervisor.config.configuration import Effective

log = logging.getLogger(__name__)


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


class _Start(KubeletCommand):
    alternative = start_actor


@click.command(cls=_Start)
def start(given: Given | click.Context) -> None:
    r"""Run the agent in the foreground until SIGTERM or SIGINT, or with ACTOR start a stopped actor. Pods outlive it.

    Flags have the kubelet's names and meaning, with `_` or `-`. Flags win over --config-dir, which wins over --config.
    Most flags are deprecated in favour of that file; `supervisor config fields` lists its fields.

    \b
    Example: supervisor start image_gc
    """
    if isinstance(given, click.Context):
        given.command.invoke(given)
        return
    if version_asked(given):
        render.echo(f"supervisor, version {importlib.metadata.version('nodevisor')}")
        return
    effective, settings, reload = boot.choose(given, LOADER)
    if given.values.get("run-once"):
        sys.exit(_run_once(given, settings.run_dir))
    logs.setup("supervisor", settings.verbosity, settings.log_format, settings.vmodule)
    say(effective, given)
    if why := specs.why_no_api(settings):
        log.log(logs.NOTICE, "the kubelet's API is not served on port %d: %s", settings.server_port, why)
    lock_file, lock_fd = take_lock_file(given)
    settings = with_runtime(settings)  # before the claims: it chooses the pods' cgroup
    claims = claim(settings, effective)
    plan = plan_of(settings, given)
    plan = msgspec.structs.replace(plan, configuration=encoded(effective, given), reload=reload, claims=claims)
    plan = msgspec.structs.replace(plan, lock_file=lock_file, lock_fd=lock_fd)
    plan = set_up_host(plan, effective, given)
    note_renamed(settings, chosen=bool(given.values.get("hostname-override")))
    remember(settings)
    other_agent.note(settings.root_dir)
    agent.become(plan)


def _run_once(given: Given, run_dir: str) -> int:
    from proto.v1.scalars.duration import parse_seconds  # noqa: PLC0415 - loads the API types
    from supervisor.cli.run.once import TIMEOUT, run_once  # noqa: PLC0415

    return run_once(given, run_dir, parse_seconds(given.values.get("run-once-timeout", TIMEOUT)))


def configuration(given: Given, *, strict: bool = False) -> Effective:
    """Assemble the configuration of flags and of the files that they name. Raises CommandError.

    When `strict`, unknown fields and repeated keys are errors. They are warnings for an agent, as for the kubelet.
    """
    from supervisor.config.configuration import assemble  # noqa: PLC0415 - loads YAML
    from supervisor.config.kubeletconfig.problems import ConfigurationError  # noqa: PLC0415
    from supervisor.config.kubeletconfig.validation.allocatable import check_runtime_cgroups  # noqa: PLC0415
    from supervisor.config.kubeletconfig.validation.node import check_labels, check_node_ip  # noqa: PLC0415

    found = check_labels(given.values.get("node-labels", {})) + check_node_ip(given.values.get("node-ip", ""))
    found += check_runtime_cgroups(given.values.get("runtime-cgroups", ""))
    problems = [str(problem) for problem in found]
    if given.values.get("cloud-provider", "") not in ("", "external"):
        problems.append("--cloud-provider: must be external or empty; cloud providers run outside of the kubelet")
    if given.values.get("bootstrap-kubeconfig") and not given.values.get("kubeconfig"):
        problems.append("--bootstrap-kubeconfig: needs --kubeconfig, the file that bootstrapping writes")
    if given.values.get("exit-on-lock-contention") and not given.values.get("lock-file"):
        problems.append("--exit-on-lock-contention: needs --lock-file")
    problems += _wrong_version(chosen_version(given))
    gates: Mapping[str, bool] = {}
    try:
        config, config_dir = (given.values.get(name, "") for name in ("config", "config-dir"))
        effective = assemble(given.by_field(), config, config_dir, strict=strict)
        gates = effective.config.feature_gates or {}
    except ConfigurationError as error:
        problems += map(str, error.problems)
    problems += _credential_providers(given, gates)
    if problems:
        raise CommandError(f"cannot use the configuration:{''.join(_lines(problems))}")
    return effective


def _wrong_version(chosen: str) -> list[str]:
    """The kubelet too reports a version of its own release only."""
    if not chosen or system.reported_version(chosen) == chosen:
        return []
    release = re.split(r"[-+]", system.KUBELET_VERSION)[0]
    return [f"--version: cannot report {chosen[:60]!r}: write {release}, or {release} with a suffix such as -vendor.1"]


def _credential_providers(given: Given, gates: Mapping[str, bool]) -> list[str]:
    """Errors of the credential providers, with which the kubelet does not start either."""
    path, bin_dir = (given.values.get(f"image-credential-provider-{what}", "") for what in ("config", "bin-dir"))
    if not path and not bin_dir:
        return []
    from proto.schema.credential_provider import ProviderConfigError, load  # noqa: PLC0415
    from supervisor.config.kubeletconfig.validation.gated import provider_tokens  # noqa: PLC0415

    try:
        found = load(path, bin_dir)
    except ProviderConfigError as error:
        return [str(error)]
    refusal = provider_tokens(gates)
    with_tokens = (one.name for one in found if one.token_attributes is not None)
    return [f"{path}: providers[{name}]: tokenAttributes: {refusal}" for name in with_tokens if refusal]


def _lines(problems: list[str]) -> list[str]:
    return [f" {problems[0]}"] if len(problems) == 1 else [f"\n  {problem}" for problem in problems]


def settings_of(effective: Effective, given: Given) -> Settings:
    """The settings of the configuration, and of flags without a field, with absolute paths."""
    from supervisor.config.kubeletconfig.mapping import to_settings  # noqa: PLC0415

    config, flags = effective.config, given.by_setting()
    settings = to_settings(config, Settings())
    if effective.source("logging.verbosity") is not None:
        flags["verbosity"] = config.logging.verbosity  # an explicit 0 too; as a default, 0 means 2
    if not flags.get("kubeconfig") and effective.source("makeIPTablesUtilChains") is None:
        flags["make_iptables_util_chains"] = False  # by default, an agent without a cluster leaves the machine's rules
    if effective.source("containerRuntimeEndpoint") is not None:
        # An explicit default too. Without an explicit value, the agent searches for a runtime.
        flags["container_runtime_endpoint"] = config.container_runtime_endpoint
    if "container_gc_min_age_s" in flags:
        from proto.v1.scalars.duration import parse_seconds  # noqa: PLC0415

        flags["container_gc_min_age_s"] = parse_seconds(flags["container_gc_min_age_s"])
    if "protected_images" in flags:
        flags["protected_images"] = tuple(flags["protected_images"])
    check_recorder_size(flags.get("recorder_mib", 0))
    flags["page_address"] = address_of("--page-address", flags.get("page_address", ""))
    flags["console_address"] = address_of("--console-address", flags.get("console_address", ""))
    flags["kubelet_version"] = chosen_version(given)
    flags["node_name"] = _node_name(flags.get("node_name", ""))
    flags["run_dir"] = chosen_run_dir(given.values.get("run-dir"))
    settings = msgspec.structs.replace(settings, **flags)
    paths = {name: os.path.abspath(path) for name in PATHS if (path := getattr(settings, name))}
    others = {"http": settings.static_pod_url, "api": settings.kubeconfig}
    sources = (*settings.pod_sources, *(name for name, configured in others.items() if configured))
    settings = msgspec.structs.replace(settings, pod_sources=sources, **paths)
    if not unprivileged.is_ordinary_user():
        return settings
    return unprivileged.adapted(settings, unprivileged.state_dir(os.environ, os.path.expanduser("~")))


def address_of(flag: str, given: str) -> str:
    """ADDRESS:PORT of `[ADDRESS:]PORT`, IPv6 in brackets; empty: none. Raises CommandError."""
    address, _, port = given.rpartition(":")
    bare = address.removeprefix("[").removesuffix("]") or "127.0.0.1"
    try:
        known = ipaddress.ip_address(bare)
        if given and not 0 < int(port) < 65_536:
            raise ValueError(port)
    except ValueError:
        raise CommandError(f"cannot use {flag} {given!r}: write PORT or ADDRESS:PORT, with an IP address") from None
    if not given:
        return ""
    return f"[{known}]:{port}" if known.version == 6 else f"{known}:{port}"


def check_recorder_size(mebibytes: int) -> None:
    """Raises CommandError for a size that the flight recorder cannot have."""
    if not 0 <= mebibytes <= recording.MAX_MIB:
        raise CommandError(f"cannot use --recorder-size {mebibytes}: write 0 to {recording.MAX_MIB}")


def _node_name(override: str) -> str:
    """The node's name as in the kubelet: the override or the host name, trimmed, in lower case."""
    name = (override or os.uname().nodename).strip().lower()
    if not name:
        raise CommandError("cannot start: this host has no name; give one with --hostname-override")
    return name


def say(effective: Effective, given: Given) -> None:
    """Print warnings for deprecated flags, flags and fields without effect, and a missing resolvConf, each once."""
    for line in deprecations(given):
        render.echo(line, err=True)
    for line in [*effective.remarks, *effective.notes, *without_effect(given), *missing_files.of_pods(effective)]:
        log.warning("%s", line)


def encoded(effective: Effective, given: Given) -> msgspec.Raw:
    """The content of RUN_DIR/configuration.json. Secrets are masked in all of it but `secrets`."""
    from supervisor.config.flags.shown import shown as shown_flags  # noqa: PLC0415
    from supervisor.config.kubeletconfig import feature_gates  # noqa: PLC0415
    from supervisor.config.kubeletconfig.typed import encode  # noqa: PLC0415

    shown: dict[str, object] = {
        "configuration": encode.plain(effective.config),
        "secrets": encode.secrets(effective.config),
        "sources": effective.origins(),
        "features": feature_gates.in_effect(effective.config.feature_gates or {}),
        "flags": shown_flags(encode.leaves(effective.config), given.values),
    }
    return msgspec.Raw(msgspec.json.encode(shown))


LOADER = boot.Loader(configuration, settings_of, encoded, missing_files.of_pods)


def take_lock_file(given: Given) -> tuple[str, int]:
    """Lock the file of --lock-file, and return its path and descriptor. Raises CommandError.

    It waits for the lock, because another agent may be about to release it. It is the first step, because that other
    agent serves the machine until then.
    """
    path = given.values.get("lock-file", "")
    if not path:
        return "", -1
    try:
        return os.path.abspath(path), host_setup.take_lock_file(os.path.abspath(path))
    except host_setup.HostSetupError as error:
        raise CommandError(str(error)) from error


def claim(settings: Settings, effective: Effective) -> tuple[HeldClaim, ...]:
    """Claim everything that the agent owns, before any change of the machine. Raises CommandError."""
    from supervisor.ownership import starting  # noqa: PLC0415 - --version and --run-once do not need it

    config = effective.config
    wanted = starting.ports_of(settings, config.healthz_bind_address, config.healthz_port or 0)
    if not specs.serves_its_api(settings):
        wanted = [one for one in wanted if one.option != "--port"]
    try:
        return starting.claim(settings, wanted, take_over=settings.take_over)
    except starting.OwnershipError as error:
        raise CommandError(str(error)) from error


def set_up_host(plan: agent.Plan, effective: Effective, given: Given) -> agent.Plan:
    """Check and change this process and the machine, before the agent runs. Raises CommandError."""
    config = effective.config
    tune = given.values.get("tune-kernel", True) and not unprivileged.is_ordinary_user()
    if unprivileged.is_ordinary_user():
        log.log(logs.NOTICE, "%s", unprivileged.REMARK)
    try:
        host_setup.check_word_size(sys.maxsize.bit_length() + 1)
        # Refused only when set explicitly: with the kubelet's default, the agent would not start on many machines.
        host_setup.check_swap(bool(config.fail_swap_on) and effective.source("failSwapOn") is not None)
        host_setup.check_cgroup_version(bool(config.fail_cgroup_v1) and effective.source("failCgroupV1") is not None)
        if plan.settings.cgroups_per_qos:
            host_setup.check_controllers(missing_controllers(hierarchy()))
        if plan.settings.system_reserved or plan.settings.kube_reserved:
            host_setup.check_reservations((plan.settings.system_reserved, plan.settings.kube_reserved))
        if tune:
            host_setup.check_kernel_settings(config.protect_kernel_defaults)
    except host_setup.HostSetupError as error:
        raise CommandError(str(error)) from error
    if tune:
        rootdir.make_shared(plan.settings.root_dir)
    host_setup.set_open_files(config.max_open_files, effective.source("maxOpenFiles") is not None)
    if config.kubelet_cgroups and not unprivileged.is_ordinary_user():
        _enter_cgroup(config.kubelet_cgroups, plan.settings)
    if config.oom_score_adj is not None:
        host_setup.set_oom_score_adj(config.oom_score_adj, effective.source("oomScoreAdj") is not None)
    return msgspec.structs.replace(
        plan,
        exit_on_lock_contention=given.values.get("exit-on-lock-contention", False),
        healthz=(config.healthz_bind_address, config.healthz_port) if config.healthz_port else None,
    )


def _enter_cgroup(name: str, settings: Settings) -> None:
    try:
        own_cgroup.enter(name, pods_cgroup(settings))
    except host_setup.HostSetupError as error:
        raise CommandError(str(error)) from error


def plan_of(settings: Settings, given: Given) -> agent.Plan:
    """The settings, and the specs of the actors to run. Raises CommandError."""
    supervisor_config = given.values.get("supervisor-config")
    parts = specs.parts_of(settings)
    if settings.container_runtime_endpoint == runtime.endpoint(settings.run_dir):
        parts |= {"runtime"}
    wanted = specs.builtin(settings.heartbeat_period_s, parts)
    try:
        if supervisor_config:
            wanted = specfile.load(supervisor_config, wanted)
    except specs.SpecError as error:
        raise CommandError(f"cannot start: {error}") from error
    return agent.Plan(settings=settings, specs=wanted)
