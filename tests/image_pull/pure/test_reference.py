"""Image names: normalisation, and invalid names."""

import pytest

from actors._cri.image_reference import InvalidImageName, parse

DIGEST = "sha256:" + "ab" * 32


@pytest.mark.parametrize(
    ("image", "asked_for", "registry"),
    [
        ("busybox", "busybox:latest", "docker.io"),
        ("busybox:1.36", "busybox:1.36", "docker.io"),
        ("library/busybox", "library/busybox:latest", "docker.io"),
        ("docker.io/busybox", "docker.io/busybox:latest", "docker.io"),
        ("index.docker.io/a/b:1", "index.docker.io/a/b:1", "docker.io"),
        ("localhost/a", "localhost/a:latest", "localhost"),
        ("localhost:5000/a", "localhost:5000/a:latest", "localhost:5000"),
        ("registry:5000/a/b:v1", "registry:5000/a/b:v1", "registry:5000"),
        ("example.com/a__b/c-d.e", "example.com/a__b/c-d.e:latest", "example.com"),
        ("[fd00::1]:5000/a", "[fd00::1]:5000/a:latest", "[fd00::1]:5000"),
        ("Uppercase/a", "Uppercase/a:latest", "Uppercase"),
        (f"example.com/a@{DIGEST}", f"example.com/a@{DIGEST}", "example.com"),
        (f"example.com/a:1@{DIGEST}", f"example.com/a:1@{DIGEST}", "example.com"),
        (DIGEST, DIGEST, "docker.io"),
    ],
)
def test_a_name_gets_the_default_tag_and_its_registry(image: str, asked_for: str, registry: str) -> None:
    reference = parse(image)
    assert (reference.image, reference.registry) == (asked_for, registry)


@pytest.mark.parametrize(
    ("image", "why"),
    [
        ("", "invalid reference format"),
        ("Busybox", "invalid reference format: repository name (library/Busybox) must be lowercase"),
        ("a b", "invalid reference format"),
        ("a\n", "invalid reference format"),
        ("a:", "invalid reference format"),
        ("a:-tag", "invalid reference format"),
        ("a:" + "t" * 129, "invalid reference format"),
        ("a//b", "invalid reference format"),
        ("http://a/b", "invalid reference format"),
        ("a@sha256:" + "ab" * 20, "invalid checksum digest length"),
        ("a@sha256:" + "AB" * 32, "invalid checksum digest format"),
        ("a@md5:" + "ab" * 16, "unsupported digest algorithm"),
        ("ab" * 32, f"invalid repository name ({'ab' * 32}), cannot specify 64-byte hexadecimal strings"),
        ("x/" + "a" * 256, "repository name must not be more than 255 characters"),
    ],
)
def test_invalid_image_name_gives_the_kubelets_message(image: str, why: str) -> None:
    with pytest.raises(InvalidImageName) as caught:
        parse(image)
    assert str(caught.value).startswith("Failed to apply default image tag ")
    assert str(caught.value).endswith(f": {why}")
