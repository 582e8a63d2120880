"""Follows mounts' paths in a container, on real directories."""

from pathlib import Path

import pytest

from actors.runtime.containers.mount_places import MOST_LINKS, place_of, require_proc_uncovered
from actors.runtime.oci.spec.mounts import BadMount


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A root file system with a few links."""
    made = tmp_path / "root"
    (made / "var" / "data").mkdir(parents=True)
    (made / "run").symlink_to("/var/run")
    (made / "var" / "run").symlink_to("../real")
    (made / "up").symlink_to("../../../etc")
    (made / "kernel").symlink_to("/proc")
    (made / "loop").symlink_to("loop")
    return made


@pytest.mark.parametrize(
    ("path", "place"),
    [
        ("/var/data", "/var/data"),
        ("/run", "/real"),
        ("/run/x/../y", "/real/y"),
        ("/up/hosts", "/etc/hosts"),
        ("/kernel/sys", "/proc/sys"),
        ("/absent/down", "/absent/down"),
        ("//var//./data/", "/var/data"),
        ("/", "/"),
    ],
)
def test_links_lead_to_places_in_the_container(root: Path, path: str, place: str) -> None:
    assert place_of(path, [("/", str(root))]) == place


def test_links_in_volumes_lead_on(root: Path, tmp_path: Path) -> None:
    volume = tmp_path / "volume"
    volume.mkdir()
    (volume / "out").symlink_to("/var")
    places = [("/", str(root)), ("/vol", str(volume))]
    assert place_of("/vol/out/data", places) == "/var/data"
    assert place_of("/volume/out", places) == "/volume/out"
    assert place_of("/run", [*places, ("/run", str(volume))]) == "/run", "the mount covers the link"


def test_endless_links_are_refused(root: Path) -> None:
    with pytest.raises(BadMount, match=f"cannot mount at /loop: more than {MOST_LINKS} links"):
        place_of("/loop", [("/", str(root))])


@pytest.mark.parametrize("mounts", [[("/kernel", "/tmp")], [("/vol", "VOLUME"), ("/vol/out", "/tmp")]])
def test_mount_over_proc_by_a_link_is_refused(root: Path, tmp_path: Path, mounts: list[tuple[str, str]]) -> None:
    (tmp_path / "volume").mkdir()
    (tmp_path / "volume" / "out").symlink_to("/proc/self")
    with pytest.raises(BadMount, match="hide the container's /proc"):
        require_proc_uncovered(
            str(root), [(path, source.replace("VOLUME", f"{tmp_path}/volume")) for path, source in mounts]
        )


def test_the_machines_proc_may_be_mounted(root: Path) -> None:
    require_proc_uncovered(str(root), [("/kernel", "/proc"), ("/var/data", "/tmp")])
