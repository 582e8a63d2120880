"""All targets, by name."""

from tests.fuzz.parsers import files, images, peers, resources, wire

TARGETS = {target.name: target for module in (files, images, peers, resources, wire) for target in module.TARGETS}
