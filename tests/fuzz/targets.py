"""All targets, by name."""

from tests.fuzz import files, images, peers, wire

TARGETS = {target.name: target for module in (files, images, peers, wire) for target in module.TARGETS}
