"""Queries of the node's logs, with a stand-in for journalctl and real files."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode

import msgspec
import pytest

from actors.server.routes import journal, logquery
from actors.server.table import secure_table
from tests.harness import Stalls
from tests.server.routes.here import Here
from tests.server.routes.journald import LINES, write_journal
from tests.server.site import client, site, until

JOURNALCTL = """#!/bin/sh
if [ "$1" = --field ]; then printf 'kubelet.service\\nsshd.service\\ninit.scope\\n'; exit; fi
if [ "$3" = --file=/dev/null ]; then
  [ "$4" != "--grep=(" ] || echo 'Bad pattern "(": missing closing parenthesis' >&2; exit 1
fi
for one in "$@"; do echo "$one"; done
[ -e "{directory}/flood" ] && exec yes
[ -e "{directory}/hang" ] && echo $$ > "{directory}/pid" && exec sleep 60
echo failed >&2; exit 1
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Here]:
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "journalctl").write_text(JOURNALCTL.format(directory=programs))
    (programs / "journalctl").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    (tmp_path / "log").mkdir()
    with site() as started:
        made = Here(started, tmp_path / "log")
        made.context.settings = msgspec.structs.replace(made.settings, enable_system_log_query=True)
        made.use(secure_table(made.context.settings))
        yield made
        until(lambda: made.context.log_queries == 0)


def ask(here: Here, *parameters: tuple[str, object], path: str = "/logs/") -> tuple[int, str]:
    status, body = here.say("GET", f"{path}?{urlencode(parameters)}")
    return status, body.decode()


def test_journalctl_gets_each_option_as_one_argument(here: Here) -> None:
    status, body = ask(
        here, ("query", "kubelet"), ("query", "sshd"), ("sinceTime", "2026-01-01T02:00:00+02:00"),
        ("untilTime", "2026-01-02T00:00:00.5Z"), ("tailLines", "7"), ("pattern", "a b; rm -rf $(x)"), ("boot", "-1"),
    )  # fmt: skip
    assert (status, body.splitlines()) == (
        200,
        ["--utc", "--no-pager", "--output=short-precise", "--since=2026-01-01 00:00:00 UTC",
         "--until=2026-01-02 00:00:00 UTC", "--pager-end", "--lines=7", "--unit=kubelet", "--unit=sshd",
         "--grep=a b; rm -rf $(x)", "--boot", "-1", "failed"],
    )  # fmt: skip


@pytest.mark.needs("journald", "mounts")
def test_entries_of_a_service_come_from_a_real_journal(here: Here, tmp_path: Path) -> None:
    (tmp_path / "journal").mkdir()
    write_journal(tmp_path / "journal")
    program = tmp_path / "programs/journalctl"
    real = shutil.which("journalctl", path="/usr/bin:/bin")
    # The check of a pattern names a file, which excludes -D.
    program.write_text(
        f'#!/bin/sh\n[ "$3" = --file=/dev/null ] && exec {real} "$@"\nexec {real} -D {tmp_path}/journal "$@"\n'
    )

    def said(*parameters: tuple[str, object]) -> list[str]:
        status, body = ask(here, *parameters)
        assert status == 200
        return [line.partition("]: ")[2] for line in body.splitlines()]

    both = [f"{name} says {number}" for name in ("kubelet", "sshd") for number in range(LINES)]
    assert said(("query", "kubelet")) == both[:LINES]
    assert said(("query", "kubelet"), ("query", "sshd")) == both
    assert said(("query", "sshd"), ("tailLines", 2)) == both[-2:]
    assert said(("query", "kubelet"), ("pattern", "says [13]")) == [both[1], both[3]]
    assert said(("query", "kubelet"), ("boot", 0)) == both[:LINES]
    assert said(("query", "kubelet"), ("sinceTime", "2020-01-01T00:00:00Z")) == both[:LINES]
    assert both[0] not in said(("query", "kubelet"), ("untilTime", "2020-01-01T00:00:00Z"))
    assert both[0] not in said(("query", "kubelet"), ("sinceTime", "2099-01-01T00:00:00Z"))
    _, body = ask(here, ("query", "kubelet"), ("boot", -7))
    assert "boot" in body
    status, body = ask(here, ("query", "kubelet"), ("pattern", 'says": (?'))
    assert (status, body.startswith('pattern: Invalid value: "says\\": (?": error parsing regexp: ')) == (406, True)
    assert both[0] not in body


def test_unknown_service_is_read_from_its_file(here: Here, tmp_path: Path) -> None:
    (tmp_path / "log/app").mkdir()
    (tmp_path / "log/app/app.log").write_text("of app\n")
    (tmp_path / "log/other.log").write_text("of other\n")
    assert ask(here, ("query", "app"), ("query", "other")) == (200, "of app\nof other\n")
    (tmp_path / "log/cloud-init.log").write_text("of cloud-init\n")
    (tmp_path / "log/svc:foo.log").write_text("of svc:foo\n")
    assert ask(here, ("query", "cloud-init.log"), ("query", "svc:foo")) == (200, "of cloud-init\nof svc:foo\n")
    for name in ("nope", "..", "snap.kubelet.daemon"):
        assert ask(here, ("query", name)) == (200, f"\nlog not found for {name}\n")
    assert ask(here, ("query", "."))[1].startswith("\nerror getting log for .:")
    status, body = ask(here, ("query", "app"), ("tailLines", 1))
    assert (status, body.strip().splitlines()[1]) == (200, "try without specifying options")


def test_services_have_files_where_journalctl_is_missing(here: Here, tmp_path: Path) -> None:
    (tmp_path / "programs/journalctl").unlink()
    (tmp_path / "log/kubelet.log").write_text("of kubelet\n")
    assert ask(here, ("query", "kubelet")) == (200, "of kubelet\n")


def test_files_by_query_stay_below_the_log_directory(here: Here, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret\n")
    (tmp_path / "log/dir").mkdir()
    (tmp_path / "log/dir/x.log").write_text("x\n")
    (tmp_path / "log/inside.log").symlink_to("dir/x.log")
    (tmp_path / "log/out.log").symlink_to("../secret")
    (tmp_path / "log/away").symlink_to("..")
    assert ask(here, ("query", "/dir/x.log")) == (200, "x\n")
    assert ask(here, ("query", "dir\\x.log")) == (200, "x\n")
    assert ask(here, ("query", "/inside.log")) == (200, "x\n")
    assert ask(here, ("query", "/dir"))[0] == 301
    for name in ("/out.log", "/away/secret", "/../secret", "../secret", "/nope", "/a\0b"):
        status, body = ask(here, ("query", name))
        assert status == 406
        assert "secret\n" not in body
    status, body = ask(here, ("query", "out"))
    assert (status, body) == (200, "\nlog not found for out\n")


INVALID = "Invalid value"


@pytest.mark.parametrize(
    ("parameters", "status", "words"),
    [
        ("query=+", 400, f'query: {INVALID}: [" "]: query cannot be empty'),
        ("query=a&sinceTime=yesterday", 400, f'sinceTime: {INVALID}: "yesterday": invalid time format'),
        ("query=a&boot=x&tailLines=1.5", 400, f'[boot: {INVALID}: "x": strconv.Atoi: parsing "x": invalid syntax'),
        ("tailLines=1", 406, "query: Required value: cannot be empty with options"),
        ("query=a;b", 406, f'query: {INVALID}: "a;b": input contains unsupported characters'),
        ("query=" + "a" * 257, 406, f"query: {INVALID}:"),
        ("query=a&query=b&query=c&query=d&query=e", 406, "query: Too many: 5: must have at most 4 items"),
        ("query=a&query=/b", 406, f'query: {INVALID}: ["/b", "a"]: cannot specify a file and service'),
        ("query=/a&query=/b", 406, f'query: {INVALID}: ["/a", "/b"]: cannot specify more than one file'),
        ("query=/a&boot=0", 406, f'query: {INVALID}: ["/a"]: cannot specify file with options'),
        ("query=a&boot=1", 406, f"boot: {INVALID}: 1: must be less than 1"),
        ("query=a&tailLines=100001", 406, f"tailLines: {INVALID}: 100001: must be between 0 and 100000, inclusive"),
        ("query=a&tailLines=-1", 406, f"tailLines: {INVALID}: -1"),
        ("query=a&sinceTime=2026-01-02T00:00:00Z&untilTime=2026-01-01T00:00:00Z", 406, f"untilTime: {INVALID}:"),
        ("query=a&pattern=(", 406, f'pattern: {INVALID}: "(": error parsing regexp: missing closing parenthesis'),
        ("query=a&pattern=" + "x" * 5000, 406, f"pattern: {INVALID}:"),
    ],
)  # fmt: skip
def test_wrong_parameters_are_named(parameters: str, status: int, words: str, here: Here) -> None:
    found, body = here.say("GET", f"/logs/?{parameters}")
    assert (found, body.decode()[: len(words)]) == (status, words)


RANGES = "(?i)[" + "".join(f"{chr(0x100 + 2 * n)}-{chr(0x2000 + 2 * n)}" for n in range(1360)) + "]"
"""Python's `re` compiles it for five seconds."""


@pytest.mark.parametrize("pattern", [RANGES, r"\Q(\E", r"\pL+", "[[:alpha:]]", "(" * 2000 + ")" * 2000])
def test_a_pattern_takes_no_time_of_the_loop(pattern: str) -> None:
    began = time.thread_time()
    query = logquery.parse({"query": ["a"], "pattern": [pattern]})
    assert query is not None
    logquery.check(query)
    assert time.thread_time() - began < 0.1


def test_query_with_a_path_is_not_acceptable(here: Here) -> None:
    assert ask(here, ("query", "kubelet"), path="/logs/x.log") == (406, "path not allowed in query mode\n")


def test_query_has_no_meaning_unless_enabled(here: Here, tmp_path: Path) -> None:
    here.context.settings = here.settings
    (tmp_path / "log/x.log").write_text("x\n")
    assert ask(here, ("query", "a;b"), path="/logs/x.log") == (200, "x\n")


def test_query_ends_at_its_deadline(here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "DEADLINE_S", 5.0)  # by then the program has told its number
    (tmp_path / "programs/hang").touch()
    began = time.monotonic()
    with Stalls() as machine:
        assert ask(here, ("query", "kubelet"))[0] == 200
    assert time.monotonic() - began < 20 + machine.longest_s
    pid = int((tmp_path / "programs/pid").read_text())
    until(lambda: not os.path.exists(f"/proc/{pid}"))


def test_lost_client_ends_journalctl(here: Here, tmp_path: Path) -> None:
    (tmp_path / "programs/flood").touch()
    with client(here.site.plain) as gone:
        gone.sendall(b"GET /logs/?query=kubelet HTTP/1.0\r\n\r\n")
        gone.recv(1)
    until(lambda: here.context.log_queries == 0)


def test_queries_over_the_limit_are_answered_429(here: Here, tmp_path: Path) -> None:
    (tmp_path / "programs/hang").touch()
    waiting = []
    for count in range(1, journal.MOST_AT_ONCE + 1):
        waiting.append(client(here.site.plain))
        waiting[-1].sendall(b"GET /logs/?query=kubelet HTTP/1.0\r\n\r\n")
        until(lambda count=count: here.context.log_queries == count and waiting[-1].recv(1))
    assert ask(here, ("query", "kubelet"))[0] == 429
    for one in waiting:
        one.close()
