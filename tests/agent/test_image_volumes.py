"""Images as volumes of pods, on the embedded runtime; that containerd 1.6 mounts none is a case of test_volumes.py."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.agent.table import Case, Seen, Table, once, running, waits
from tests.agent.volume_cases import says
from tests.containerd.images import BUSYBOX
from tests.runtime.instance import EmbeddedInstance

pytestmark = pytest.mark.containerd


def with_image(script: str, *mounts: dict[str, Any]) -> dict[str, Any]:
    """A pod that mounts the image `v` so."""
    volumes = [{"name": "v", "image": {"reference": BUSYBOX, "pullPolicy": "IfNotPresent"}}]
    return once(script, spec={"volumes": volumes}, volumeMounts=[{"name": "v", **one} for one in mounts])


def failed(message: str) -> Any:
    def check(seen: Seen) -> None:
        assert message in seen.message(), seen.message()

    return check


CASES = {
    "whole": Case(
        with_image(
            "cmp /v/bin/busybox /bin/busybox && echo same; touch /v/new 2>&- || echo refused", {"mountPath": "/v"}
        ),
        lambda seen: says(seen, "same\nrefused\n"),
    ),
    "parts": Case(
        with_image(
            "cmp /d/busybox /f && cmp /f /bin/busybox && echo same; rm /d/busybox 2>/dev/null || echo refused",
            {"mountPath": "/d", "subPath": "bin"},
            {"mountPath": "/f", "subPath": "bin/busybox", "readOnly": True},
        ),
        lambda seen: says(seen, "same\nrefused\n"),
    ),
    "no-part": Case(
        with_image("true", {"mountPath": "/v", "subPath": "gone"}),
        failed("no 'gone' in the image"),
        waits("CreateContainerError"),
    ),
}


@pytest.fixture(scope="module")
def table(embedded: EmbeddedInstance) -> Iterator[Table]:
    with running(embedded, CASES) as one:  # type: ignore[arg-type]  # another runtime with the same face
        yield one


@pytest.mark.parametrize("name", CASES)
def test_what_a_container_sees_of_an_image(table: Table, name: str) -> None:
    table.check(name)
