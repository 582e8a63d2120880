"""A release of the agent on this machine: an interpreter, and the place that it imports the agent from."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence

import msgspec

from proto.common.interpreter import UTF8


class Release(msgspec.Struct, frozen=True, kw_only=True):
    """`path` is the interpreter's sys.path; empty: its own. `place` is for people."""

    python: str
    path: tuple[str, ...] = ()
    place: str = ""


class NoReleaseError(Exception):
    """There is no release at a path; the text says what would be one."""


def own() -> Release:
    """The release that runs here."""
    return Release(python=sys.executable, path=tuple(sys.path), place=_tree())


def at(path: str) -> Release:
    """The release at a path: an environment with bin/python, or a source tree. Raises NoReleaseError."""
    place = os.path.abspath(path)
    if os.access(f"{place}/bin/python", os.X_OK):
        return Release(python=f"{place}/bin/python", place=place)
    if os.path.isfile(f"{place}/supervisor/core/agent.py"):
        others = (one for one in sys.path if one and os.path.realpath(one) != os.path.realpath(_tree()))
        return Release(python=sys.executable, path=(place, *others), place=place)
    raise NoReleaseError(f"{place} is neither an environment with bin/python nor a source tree of nodevisor")


def _tree() -> str:
    """The directory that this process imports the agent from."""
    return os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))


_RUN = (
    "import json, sys; path = json.loads(sys.argv[1]); sys.path[:] = path or sys.path; "
    "from {module} import main; sys.exit(main(sys.argv[2:]))"
)
_BECOME = """
import json, os, sys
path, plan, descriptors, back = json.loads(sys.argv[1])
sys.path[:] = path or sys.path
environment = dict(os.environ)
try:
    from supervisor.core.agent import main
    code = main([str(plan)])
except BaseException as error:
    from sys import modules
    state = modules.get("supervisor.core.upgrade.handover")
    if not back or getattr(state, "committed", False):
        raise
    import signal, traceback
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT, signal.SIGCHLD, signal.SIGHUP})
    traceback.print_exc()
    for one in descriptors:
        os.set_inheritable(one, True)
    os.lseek(plan, 0, os.SEEK_SET)
    environment["NODEVISOR_UPGRADE_PROBLEM"] = f"{type(error).__name__}: {error}"[:1000]
    os.execve(back[0], back, environment)
sys.exit(code)
"""
"""The next self's first code. It is this release's code, which returns here when the next release cannot start.

The environment is kept before, because a self removes the service manager's variables from its own.
"""


def command(release: Release, module: str, *arguments: str) -> list[str]:
    """The command line that exits with `module.main(arguments)` of a release."""
    return [release.python, *UTF8, "-P", "-c", _RUN.format(module=module), json.dumps(release.path), *arguments]


def becoming(release: Release, plan: int, descriptors: Sequence[int], back: Release | None) -> list[str]:
    """The command line of the next self: its plan is behind a descriptor. Without `back`, a failed start is the end."""
    line = becoming(back, plan, descriptors, None) if back is not None else []
    return [release.python, *UTF8, "-P", "-c", _BECOME, json.dumps([release.path, plan, list(descriptors), line])]
