"""The tag of an image reference, and the default pull policy."""


def image_tag(image: str) -> str:
    """Return the tag of an image reference: `latest` without tag and digest, "" with a digest only."""
    name, _, digest = image.partition("@")
    tag = name.rpartition("/")[2].partition(":")[2]
    return tag or ("" if digest else "latest")


def pull_policy(image: str) -> str:
    """Return the default imagePullPolicy: Always for the tag latest, else IfNotPresent."""
    return "Always" if image_tag(image) == "latest" else "IfNotPresent"
