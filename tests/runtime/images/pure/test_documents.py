"""An image's documents as Go's programs write them."""

import json
from typing import Any

import pytest

from actors.runtime.images.errors import BadImage
from actors.runtime.images.manifest import (
    ARCHITECTURE,
    INDEXES,
    Execution,
    Index,
    Manifest,
    for_this_machine,
    parse,
    parse_config,
)

DIGEST = f"sha256:{'0' * 64}"
BLOB = {"digest": DIGEST, "size": 1}
HERE = {"os": "linux", "architecture": ARCHITECTURE}


def encoded(**document: Any) -> bytes:
    return json.dumps({"schemaVersion": 2} | document).encode()


@pytest.mark.parametrize("field", ["User", "WorkingDir", "StopSignal", "Env", "Labels", "Volumes"])
def test_null_in_a_configuration_is_the_empty_value(field: str) -> None:
    told = {"os": None, "rootfs": {"diff_ids": None}, "config": {field: None}}
    config = parse_config(json.dumps(told).encode(), 0)
    assert config.config == Execution()
    assert config.os == ""
    assert config.rootfs.diff_ids == ()
    assert parse_config(json.dumps({"rootfs": {}, "config": None}).encode(), 0).config is None


def test_volume_with_null_for_its_value_stays() -> None:
    config = parse_config(json.dumps({"config": {"Volumes": {"/v": None}}}).encode(), 0)
    assert config.config is not None
    assert config.config.volumes is not None
    assert [*config.config.volumes] == ["/v"]


def test_null_in_a_list_or_map_of_texts_is_the_empty_text() -> None:
    """Go leaves the element at its zero value."""
    told = {"Env": ["A=1", None], "Entrypoint": [None], "Cmd": ["x", None], "Labels": {"a": None, "b": "c"}}
    config = parse_config(json.dumps({"config": told}).encode(), 0)
    assert config.config is not None
    assert config.config.env == ["A=1"], "a variable without a name is none"
    assert (config.config.entrypoint, config.config.cmd) == ([""], ["x", ""])
    assert config.config.labels == {"a": "", "b": "c"}
    manifest = parse(encoded(config=BLOB | {"annotations": {"a": None}}, layers=[]))
    assert isinstance(manifest, Manifest)
    assert manifest.config.annotations == {"a": ""}


def test_null_in_place_of_a_layer_is_refused_by_its_field() -> None:
    with pytest.raises(BadImage, match=r"manifest has null in place of a descriptor at layers\[1\]"):
        parse(encoded(config=BLOB, layers=[BLOB, None]))
    with pytest.raises(BadImage, match=r"configuration has null in place of a digest at rootfs\.diff_ids\[1\]"):
        parse_config(json.dumps({"rootfs": {"diff_ids": [DIGEST, None]}}).encode(), 2)


@pytest.mark.parametrize("place", [0, 1])
def test_null_in_an_index_is_passed_over(place: int) -> None:
    manifests: list[Any] = [BLOB]
    manifests.insert(place, None)
    index = parse(encoded(manifests=manifests))
    assert isinstance(index, Index)
    assert for_this_machine(index).digest == DIGEST
    empty = parse(encoded(mediaType=INDEXES[0], manifests=None))
    assert isinstance(empty, Index)
    with pytest.raises(BadImage, match="it has no image for linux"):
        for_this_machine(empty)


def test_null_in_a_manifest_is_the_empty_value() -> None:
    manifest = parse(encoded(mediaType=None, config=BLOB | {"mediaType": None}, layers=None))
    assert isinstance(manifest, Manifest)
    assert (manifest.layers, manifest.config.media_type) == ((), "")


def test_entry_for_another_machine_may_be_of_any_kind() -> None:
    """A registry's index may have digests of another algorithm for other machines."""
    foreign = {"digest": f"sha512:{'0' * 128}", "size": 1, "platform": {"os": "linux", "architecture": "vax"}}
    index = parse(encoded(manifests=[foreign, BLOB | {"platform": HERE | {"variant": None}}]))
    assert isinstance(index, Index)
    assert for_this_machine(index).digest == DIGEST


@pytest.mark.parametrize("config", [None, {"digest": None, "size": 1}, {"digest": DIGEST, "size": None}])
def test_null_in_place_of_what_must_be_there_is_refused(config: Any) -> None:
    with pytest.raises(BadImage, match="cannot be read"):
        parse(encoded(config=config, layers=[]))
