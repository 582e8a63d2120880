"""The manifest of an index that this machine runs."""

import pytest

from actors.runtime.images import manifest
from actors.runtime.images.errors import BadImage
from actors.runtime.images.manifest import MANIFESTS, Descriptor, Index, Platform, for_this_machine


def chosen(architecture: str, *platforms: str) -> str:
    """The one of these platforms, ARCHITECTURE[/VARIANT], that is chosen; none for an empty one."""
    offered = tuple(
        Descriptor(
            digest=one,
            size=1,
            media_type=MANIFESTS[0],
            platform=Platform(one.partition("/")[0], "linux", one.partition("/")[2]) if one else None,
        )
        for one in platforms
    )
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(manifest, "ARCHITECTURE", architecture)
        return for_this_machine(Index(offered)).digest


@pytest.mark.parametrize(
    ("architecture", "platforms", "best"),
    [
        ("amd64", ("amd64/v3", "amd64"), "amd64"),
        ("amd64", ("amd64/v3", "amd64/v1"), "amd64/v1"),
        ("amd64", ("arm64", "amd64", "amd64"), "amd64"),
        ("amd64", ("amd64/v3", ""), ""),
        ("arm", ("arm/v8", "arm/v5", "arm/v7"), "arm/v7"),
        ("arm", ("arm/v8", "arm/v5", "arm/v6"), "arm/v6"),
        ("arm", ("arm/v5", "arm/7"), "arm/7"),
        ("arm64", ("arm64/v9", "arm64/v8"), "arm64/v8"),
        ("arm64", ("arm/v7", "arm64/V8"), "arm64/V8"),
        ("riscv64", ("amd64", "riscv64"), "riscv64"),
    ],
)
def test_the_best_variant_of_an_index_is_chosen(architecture: str, platforms: tuple[str, ...], best: str) -> None:
    assert chosen(architecture, *platforms) == best


@pytest.mark.parametrize(
    ("architecture", "platforms", "why"),
    [
        ("amd64", ("amd64/v3", "amd64/v2"), "no image for linux/amd64: its variants v2, v3 are for newer CPUs"),
        ("arm", ("arm/v8",), "no image for linux/arm: its variants v8 are for newer CPUs"),
        ("s390x", ("amd64",), "no image for linux/s390x$"),
    ],
)
def test_variant_of_newer_cpus_is_refused(architecture: str, platforms: tuple[str, ...], why: str) -> None:
    with pytest.raises(BadImage, match=why):
        chosen(architecture, *platforms)
