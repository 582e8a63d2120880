"""Reads the suite's results, and checks that each spec left out has a reason."""

import re
from pathlib import Path

from tests.upstream import specs
from tests.upstream.report import read

PASSED_AND_SKIPPED = """<testsuite>
<testcase name="one"/><testcase name="two"/><testcase name="other"><skipped></skipped></testcase></testsuite>"""
FAILED = """<testsuite><testcase name="three"/>
<testcase name="bad"><failure type="Failure">a.go:3&#xA;pod  not&#xA;ready</failure></testcase></testsuite>"""


def test_results_of_all_processes_are_added_up(tmp_path: Path) -> None:
    (tmp_path / "junit_01.xml").write_text(PASSED_AND_SKIPPED)
    (tmp_path / "alone").mkdir()
    (tmp_path / "alone/junit_01.xml").write_text(FAILED)
    found = read(tmp_path)
    assert found.passed == 3
    assert found.failures == {"bad": "pod not ready"}


def test_no_file_is_no_passed_spec(tmp_path: Path) -> None:
    assert read(tmp_path).passed == 0


def test_patterns_compile_and_what_is_left_out_has_a_reason() -> None:
    name = "[sig-storage] EmptyDir volumes should support (root,0644,tmpfs) [LinuxOnly] [NodeConformance]"
    assert re.search(specs.focus(), name)
    assert not re.search(specs.skip(), name)
    assert re.search(specs.skip(), f"{name} [Serial]")
    assert all(specs.LEFT_OUT.values())


def test_only_node_features_are_run_of_those_that_run_apart() -> None:
    node = "[sig-auth] [Feature:NodeAuthorizer] A node shouldn't be able to delete another node"
    assert re.search(specs.focus(), node)
    assert not re.search(specs.skip(), node)
    for other in ("NetworkPolicy", "StatefulUpgrade", "TTLAfterFinished"):
        assert re.search(specs.skip(), f"[sig-apps] Job should end [Feature:{other}]")
