"""The image_pull process on a real containerd."""

import pytest

from proto.node.image_pull import EnsureImage
from proto.wire.errors import Refused
from tests.containerd import ContainerdInstance
from tests.containerd.images import BUSYBOX
from tests.harness import actor_process


def test_presence_user_and_a_pull_that_fails(containerd: ContainerdInstance) -> None:
    with actor_process("image_pull", ("pleg",), container_runtime_endpoint=containerd.endpoint) as actor:

        def ensure(image: str, policy: str = "IfNotPresent") -> EnsureImage:
            return EnsureImage(
                pod_uid="u", pod_namespace="default", pod_name="p", container="c", image=image, policy=policy
            )

        found = actor.ask(ensure("busybox"))
        assert BUSYBOX == "docker.io/library/busybox:latest"
        assert found.image_ref.startswith("sha256:")
        assert (found.user, found.pulled) == ("0", False)
        with pytest.raises(Refused) as caught:
            actor.ask(ensure("127.0.0.1:1/none:1"), timeout_s=60)
        assert caught.value.reason == "ErrImagePull"
        assert caught.value.message.startswith(
            'failed to pull and unpack image "127.0.0.1:1/none:1": failed to resolve'
        )
        with pytest.raises(Refused) as caught:
            actor.ask(ensure("127.0.0.1:1/none:1"))
        assert caught.value.reason == "ImagePullBackOff"
        assert caught.value.message.startswith(
            'Back-off pulling image "127.0.0.1:1/none:1": ErrImagePull: failed to pull and unpack image '
        )
