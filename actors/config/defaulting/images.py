"""What an image reference says about pulling: its tag and the policy that follows.

Covers tag and default policy. Does not cover validity of references or credentials.
"""


def image_tag(image: str) -> str:
    """Return the tag of an image reference: `latest` where it has neither tag nor digest, "" where only a digest."""
    name, _, digest = image.partition("@")
    tag = name.rpartition("/")[2].partition(":")[2]
    return tag or ("" if digest else "latest")


def pull_policy(image: str) -> str:
    """Return the default imagePullPolicy: Always for the tag latest, else IfNotPresent."""
    return "Always" if image_tag(image) == "latest" else "IfNotPresent"
