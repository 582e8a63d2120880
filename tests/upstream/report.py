"""Reads the suite's JUnit files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

TEXT_SIZE = 300
"""Characters of a failure; the whole of it is in the suite's output."""


@dataclass(frozen=True)
class Report:
    """The results of a run of the suite."""

    passed: int
    failures: dict[str, str]
    """Spec to the beginning of its failure, in one line."""


def read(directory: Path) -> Report:
    """Of all `junit_*.xml` in it and below, one for each ginkgo process."""
    passed, failures = 0, {}
    for path in sorted(directory.rglob("junit_*.xml")):
        for case in ElementTree.parse(path).iter("testcase"):
            failure = case.find("failure")
            if failure is not None:
                failures[case.get("name", "a spec without a name")] = _line("".join(failure.itertext()))
            elif case.find("skipped") is None:
                passed += 1
    return Report(passed, failures)


def _line(text: str) -> str:
    """Without the suite's source line, which comes first."""
    place, _, message = text.strip().partition("\n")
    return " ".join((message or place or "no text").split())[:TEXT_SIZE]
