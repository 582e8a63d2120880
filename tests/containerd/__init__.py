"""A private containerd with images of its own, for tests and for trying things by hand.

`python -m tests.containerd --dir DIR` runs one in the foreground. In tests: the fixtures `containerd` and `cri`.
NODEVISOR_CONTAINERD=DIR takes the programs of another version: requirements.py.
"""

from tests.containerd.images import BUSYBOX, PAUSE
from tests.containerd.instance import ContainerdInstance
from tests.containerd.requirements import missing_requirements

__all__ = ["BUSYBOX", "PAUSE", "ContainerdInstance", "missing_requirements"]
