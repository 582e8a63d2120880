"""The text of /healthz, which the kubelet's port and the supervisor's own serve. Pure.

https://kubernetes.io/docs/reference/using-api/health-checks/
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping


def report(
    checks: Iterable[str], problems: Mapping[str, str], excluded: Collection[str], *, verbose: bool
) -> tuple[int, str]:
    """Status and text for the checks in their order, of which the `excluded` ones do not count.

    `problems` has each other check, with empty text for a healthy one. Failures are always shown with all checks. An
    excluded name that is no check is warned of, in the words of k8s.io/apiserver/pkg/server/healthz.
    """
    names = tuple(checks)
    lines = [f"[+]{name} excluded: ok" if name in excluded else _line(name, problems[name]) for name in names]
    if unknown := sorted(set(excluded) - set(names)):
        quoted = ",".join(json.dumps(name, ensure_ascii=False) for name in unknown)
        lines.append(f"warn: some health checks cannot be excluded: no matches for {quoted}")
    if any(problems[name] for name in names if name not in excluded):
        return 500, "\n".join([*lines, "healthz check failed", ""])
    return 200, "\n".join([*lines, "healthz check passed", ""]) if verbose else "ok"


def _line(name: str, problem: str) -> str:
    return f"[-]{name} failed: {problem}" if problem else f"[+]{name} ok"
