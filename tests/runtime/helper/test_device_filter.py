"""The device filter of cgroup v2 in this machine's kernel, with processes that open and make devices."""

import os
import stat
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from actors._cgroup.hierarchy import hierarchy
from actors.runtime.helper.kernel import device_filter
from actors.runtime.oci.spec.security import device_rules
from tests.cgroups import remove_cgroup

pytestmark = pytest.mark.needs("cgroup v2")
RULES = device_rules([{"type": "c", "major": 1, "minor": 5}], ["r"], privileged=False)


@pytest.fixture
def cgroup() -> Iterator[Path]:
    made = Path(hierarchy().mounts[""], f"nvtest-{uuid.uuid4().hex[:8]}")
    made.mkdir()
    yield made
    remove_cgroup(made)


def succeeds(cgroup: Path, script: str) -> bool:
    enter = f"echo $$ > {cgroup}/cgroup.procs || exit 99\n"
    ran = subprocess.run(["sh", "-c", enter + script], capture_output=True, text=True, check=False, timeout=20)
    assert ran.returncode != 99, ran.stderr
    assert ran.returncode == 0 or "not permitted" in ran.stderr, ran.stderr
    return ran.returncode == 0


@pytest.mark.parametrize(
    ("script", "allowed"),
    [
        (": </dev/null", True),
        (": >/dev/null", True),
        ("head -c1 /dev/zero", True),
        ("mknod $DIR/log c 1 11", True),
        ("mknod $DIR/log c 1 11; : <$DIR/log", False),
    ],
)
def test_kernel_allows_what_the_rules_allow(cgroup: Path, tmp_path: Path, script: str, allowed: bool) -> None:
    script = script.replace("$DIR", str(tmp_path))
    assert succeeds(cgroup, script)
    for made in tmp_path.iterdir():
        made.unlink()
    device_filter.attach(str(cgroup), RULES)
    assert succeeds(cgroup, script) is allowed


def test_filter_applies_below_and_beside_other_filters(cgroup: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    os.mknod(log, stat.S_IFCHR | 0o600, os.makedev(1, 11))
    device_filter.attach(str(cgroup), [{"allow": False, "type": "c", "access": "w"}, {"allow": True, "access": "r"}])
    (cgroup / "inner").mkdir()
    device_filter.attach(str(cgroup / "inner"), [{"allow": True, "access": "rwm"}])
    assert succeeds(cgroup / "inner", f": <{log}")
    assert not succeeds(cgroup / "inner", f": >{log}")
    device_filter.attach(str(cgroup), RULES)
    assert not succeeds(cgroup / "inner", f": <{log}")


def test_refusal_of_the_kernel_is_explained(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="cannot limit the container's devices: the kernel refuses the BPF filter: "):
        device_filter.attach(str(tmp_path), RULES)
