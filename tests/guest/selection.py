"""Chooses the tests of a guest: by default a short set, within eight minutes on a quiet machine.

`NODEVISOR_GUEST_SUITES=all` runs everything, for two and a half hours under emulation (`make long`). Part of a name
selects: `specs`, `@containerd-2`, `poweroff`, `cluster`.
"""

from __future__ import annotations

import os

import pytest

SELECTED = os.environ.get("NODEVISOR_GUEST_SUITES", "")


def is_selected(name: str) -> bool:
    """True when a part of the full set is to run."""
    return SELECTED == "all" or (bool(SELECTED) and SELECTED in name)


def only_if_selected(name: str) -> pytest.MarkDecorator:
    """The mark of a module of the full set."""
    reason = f"make long runs it; or NODEVISOR_GUEST_SUITES={name}"
    return pytest.mark.skipif(not is_selected(name), reason=reason)
