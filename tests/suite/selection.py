"""Selects and orders the tests of a make target, and groups tests for one worker."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from typing import NamedTuple

from tests.suite.markers import CLUSTER, CONTAINERD, GUEST, PURE
from tests.suite.needs import NEEDS

TEST, NODE, IN_GUEST = "test", "node", "guest"
TARGETS = (TEST, NODE, IN_GUEST)
"""Names of `make test`, `make test-node` and `make test-guest`."""

BOTH = "embedded"
"""A fixture whose tests are run by both targets: on the runtime's own network and isolation, then on CNI and runc."""


OF_GUESTS = frozenset({"systemd", "SELinux"})
"""Needs that a guest meets on each machine."""


class Facts(NamedTuple):
    """The facts that decide about a test."""

    marker: str
    needs: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    """The `needs` that this machine does not have."""
    fixtures: Collection[str] = ()


def left_out(target: str, facts: Facts) -> str:
    """Why `target` does not run the test: "guest", "containerd", "needs openssl", "lacks root"; empty when it does."""
    if target == IN_GUEST:
        return "" if facts.marker == GUEST else TEST
    if facts.marker == GUEST or not OF_GUESTS.isdisjoint(facts.missing):
        return GUEST
    of_packages = [name for name in facts.needs if NEEDS[name].package]
    is_of_node = facts.marker in (CONTAINERD, CLUSTER) or bool(of_packages)
    if target == NODE:
        return "" if is_of_node or BOTH in facts.fixtures else TEST
    if facts.marker in (CONTAINERD, CLUSTER):
        return facts.marker
    if of_packages:
        return f"needs {of_packages[0]}"
    return f"lacks {facts.missing[0]}" if facts.missing else ""


def report(target: str, counts: Counter[str]) -> list[str]:
    """Lines for people: how many tests `target` left out, why, and how to run them."""
    lacking = Counter({NEEDS[why[6:]].what: count for why, count in counts.items() if why.startswith("lacks ")})
    others = Counter({why: count for why, count in counts.items() if not why.startswith("lacks ")})
    lines = []
    if target == IN_GUEST:
        return []
    if in_guest := others.pop(GUEST, 0):
        lines.append(f"Left out: {in_guest} tests (guest: {in_guest}). Run them: make test-guest")
    if target == NODE and others:
        lines.append(f"Left out: {others.total()} tests, which `make test` runs.")
    elif others:
        lines.append(f"Left out: {others.total()} tests ({_listed(others)}). Run them: make test-node")
    if lacking:
        user = "make test, as root, on a machine that has what is missing"
        lines.append(f"Left out: {lacking.total()} tests ({_listed(lacking, 'without ')}). Run them: {user}")
    return lines


def _listed(counts: Counter[str], prefix: str = "") -> str:
    return ", ".join(f"{prefix}{why}: {count}" for why, count in counts.most_common())


PLANES = ("full_control_plane", "control_plane")
"""Fixtures that cost a worker half a minute of processor time and an API server: one worker has all of their tests."""


def group_of(module: str, marker: str, scopes: Collection[str], fixtures: Collection[str] = ()) -> str:
    """The tests that one worker runs, one after another; empty for a test that any worker can run by itself.

    `scopes` are those of the test's fixtures. What a module makes once for its tests would else be made by each worker.
    """
    if plane := next((name for name in PLANES if name in fixtures), ""):
        return plane
    if marker == PURE or not {"module", "class", "package"}.isdisjoint(scopes):
        return module
    return ""


def rank(module: str, first: Sequence[str]) -> int:
    """The place of a module: those of `first` in their order, then all others. The long ones begin early."""
    return first.index(module) if module in first else len(first)
