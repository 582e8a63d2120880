"""Queries of the node's logs by the real journalctl."""

from __future__ import annotations

import subprocess
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from actors.server.table import secure_table
from tests.harness import wait_for
from tests.server.routes.here import Here
from tests.server.routes.test_log_query import ask
from tests.server.site import site

pytestmark = pytest.mark.needs("systemd")


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Here]:
    with site() as started:
        made = Here(started, tmp_path)
        made.context.settings = msgspec.structs.replace(made.settings, enable_system_log_query=True)
        made.use(secure_table(made.context.settings))
        yield made


@pytest.fixture
def unit() -> str:
    """A service that has logged three lines."""
    name = f"nvlog{uuid.uuid4().hex[:8]}"
    command = ["sh", "-c", "echo of one; echo of two; echo of three"]
    subprocess.run(["systemd-run", "--quiet", "--wait", f"--unit={name}", *command], check=True, timeout=60)
    return name


def entries(body: str) -> list[str]:
    """The messages of the service's own entries, without time, host and process."""
    return [line.partition("]: ")[2] for line in body.splitlines() if " sh[" in line]


def test_answer_has_the_entries_of_the_service(here: Here, unit: str) -> None:
    wait_for(lambda: entries(ask(here, ("query", unit))[1]) == ["of one", "of two", "of three"], 30)


def test_options_select_entries_of_the_journal(here: Here, unit: str) -> None:
    wait_for(lambda: len(entries(ask(here, ("query", unit))[1])) == 3, 30)
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 3600))
    for options, found in (
        ([("pattern", "t[wh]")], ["of two", "of three"]),
        ([("boot", "0"), ("untilTime", now)], ["of one", "of two", "of three"]),
        ([("sinceTime", now)], []),
    ):
        status, body = ask(here, ("query", unit), *options)
        assert (status, entries(body)) == (200, found), body


def test_a_service_that_never_logged_is_not_found(here: Here) -> None:
    assert ask(here, ("query", "nvlog-none")) == (200, "\nlog not found for nvlog-none\n")
