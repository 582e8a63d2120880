"""The warning at the start on a node that enforces SELinux."""

from pathlib import Path

import pytest

from actors._host import selinux


@pytest.mark.parametrize(
    ("content", "warns"), [("1", True), ("1\n", True), ("0", False), ("", False), ("x" * 99, False)]
)
def test_a_warning_is_given_only_where_selinux_is_enforced(tmp_path: Path, content: str, warns: bool) -> None:
    path = tmp_path / "enforce"
    path.write_text(content)
    assert ("does not relabel volumes" in selinux.warning(selinux.enforce(str(path)))) is warns


def test_a_machine_without_selinux_gives_none(tmp_path: Path) -> None:
    assert selinux.warning(selinux.enforce(str(tmp_path / "enforce"))) == ""
