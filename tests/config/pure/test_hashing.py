"""The container hash is the kubelet's."""

from actors._host.files.hashing import container_hash, fnv1a_32, fnv1a_128


def test_hash_of_a_container_is_what_the_kubelet_wrote() -> None:
    # From a Kubernetes 1.36.2 kubelet: io.kubernetes.container.hash of this container.
    assert container_hash("web", "docker.io/library/busybox:latest") == "90b33c84"


def test_fnv_matches_the_published_vectors() -> None:
    assert [fnv1a_32(text) for text in (b"", b"a", b"foobar")] == [0x811C9DC5, 0xE40C292C, 0xBF9CF968]
    assert [f"{fnv1a_128(text):032x}" for text in (b"", b"a", b"ab", b"abc")] == [
        "6c62272e07bb014262b821756295c58d",
        "d228cb696f1a8caf78912b704e4a8964",
        "08809544bbab1be95aa0733055b69a62",
        "a68d622cec8b5822836dbc7977af7f3b",
    ]


def test_name_and_image_both_count() -> None:
    assert len({container_hash(name, image) for name in ("a", "b") for image in ("x", "y&<>")}) == 4
