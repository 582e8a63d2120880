"""The pod of the examples, and what they share."""

from __future__ import annotations

from tests.model import specs

PLAIN = {"containers": [{"name": "a", "image": "image:1"}], "restartPolicy": "Always"}
UID = specs.api_pod(PLAIN, 1).metadata.uid


def shown(world, name="a"):
    return next(one for one in world.pods()[UID].status.container_statuses if one.name == name)
