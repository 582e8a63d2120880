"""Warnings of files that a configuration or its flags name and that are missing now, for `supervisor config validate`.

An agent starts without them and waits, because they may come later. The kubelet ends without certificates and
kubeconfig. Without resolvConf it starts, and fails each pod.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from typing import Any

from supervisor.config.configuration import Effective
from supervisor.config.kubeletconfig.problems import Problem, file_name, located
from supervisor.config.kubeletconfig.typed import schema

SYSTEMD = "/run/systemd/system"
"""There where systemd runs, sd_booted(3)."""
SYSTEM_BUS = "/run/dbus/system_bus_socket"
_OF_THE_SERVER = ("authentication.x509.clientCAFile", "tlsCertFile", "tlsPrivateKeyFile")


def warnings(effective: Effective, flags: Mapping[str, Any]) -> list[str]:
    """One line for each file, with the place of its field. `flags`: the values of a command line by flag."""
    fields = located((*_of_the_server(effective), *_of_systemd(effective)), effective.sources)
    return [*map(str, fields), *of_pods(effective), *map(str, _of_the_cluster(flags))]


def of_pods(effective: Effective) -> list[str]:
    """The warning of a missing resolvConf, also for the agent's log: no pod starts without it."""
    path = effective.config.resolv_conf
    if not path or not (why := _absent(path)):
        return []
    problem = Problem("resolvConf", f"{file_name(path)} {why}; no pod can start until there is one")
    return [str(one) for one in located((problem,), effective.sources)]


def _of_systemd(effective: Effective) -> Iterator[Problem]:
    if effective.config.cgroup_driver == "systemd":
        for path, name in ((SYSTEMD, "systemd"), (SYSTEM_BUS, "D-Bus")):
            if not os.path.exists(path):
                problem = f"systemd needs {name}, which does not run here: there is no {path}; use cgroupfs"
                yield Problem("cgroupDriver", problem)
                return


def _of_the_server(effective: Effective) -> Iterator[Problem]:
    config = effective.config
    fields = _OF_THE_SERVER if not config.server_tls_bootstrap else _OF_THE_SERVER[:1]  # else the cluster's may serve
    for field in fields if config.enable_server else ():
        path = schema.get(config, field)
        if path and (why := _unusable(path)):
            yield Problem(field, f"{file_name(path)} {why}; the server accepts no connection until there is one")


def _of_the_cluster(flags: Mapping[str, Any]) -> Iterator[Problem]:
    """The kubeconfig, unless bootstrapping can write it. A node that has joined needs no bootstrap file."""
    path, bootstrap = flags.get("kubeconfig", ""), flags.get("bootstrap-kubeconfig", "")
    if not path or not (why := _unusable(path)):
        return
    if not bootstrap:
        yield Problem("", f"{file_name(path)} {why}; the agent joins no cluster until there is one", "--kubeconfig")
    elif of_bootstrap := _unusable(bootstrap):
        problem = f"{file_name(path)} {why}, and --bootstrap-kubeconfig {file_name(bootstrap)} {of_bootstrap}"
        yield Problem("", f"{problem}; the agent joins no cluster until one is there", "--kubeconfig")


def _unusable(path: str) -> str:
    """Why a path is no file; empty when it is one, or when this user may not look."""
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError):
        return _absent(path)
    return "" if stat.S_ISREG(mode) else "is no file"


def _absent(path: str) -> str:
    """Why there is nothing at a path; empty when there is, or when this user may not look."""
    try:
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return "is not there now"
    except (OSError, ValueError):
        return ""
    return ""
