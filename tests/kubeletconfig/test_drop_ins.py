"""Drop-ins and flags change the file's values: null entries of maps, hard thresholds, empty flags."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from proto.agent.settings import DEFAULT_EVICTION_HARD, Settings
from supervisor.config.configuration import Effective, assemble
from supervisor.config.flags import parser
from supervisor.config.kubeletconfig.loading import parse
from supervisor.config.kubeletconfig.mapping import to_settings
from supervisor.config.kubeletconfig.typed import encode
from supervisor.config.kubeletconfig.typed.types import API_VERSION, KIND

MEMORY = {"memory.available": "1Gi"}
MERGE, NO_MERGE = ({"mergeDefaultEvictionSettings": merged} for merged in (True, False))


def text(fields: dict[str, Any]) -> str:
    return yaml.safe_dump({"apiVersion": API_VERSION, "kind": KIND, **fields}, sort_keys=False)


def assembled(directory: Path, in_file: dict[str, Any], in_drop_in: dict[str, Any] | None, *flags: str) -> Effective:
    config, drop_ins = directory / "config.yaml", directory / "config.d"
    config.write_text(text(in_file))
    drop_ins.mkdir()
    if in_drop_in is not None:
        (drop_ins / "1.conf").write_text(text(in_drop_in))
    return assemble(parser.parse(flags).by_field(), str(config), str(drop_ins))


# Null entries of maps


@pytest.mark.parametrize(
    ("field", "in_file", "key", "left"),
    [
        ("evictionHard", {"memory.available": "1Gi", "nodefs.available": "5%"}, "nodefs.available", MEMORY),
        ("kubeReserved", {"cpu": "1", "memory": "1Gi"}, "memory", {"cpu": "1"}),
        ("featureGates", {"KubeletPSI": True, "NodeSwap": True}, "NodeSwap", {"KubeletPSI": True}),
        ("staticPodURLHeader", {"A": ["x"], "B": ["z"]}, "A", {"B": ["z"]}),
    ],
)
def test_null_entry_of_a_drop_in_removes_the_key(
    tmp_path: Path, field: str, in_file: dict[str, Any], key: str, left: dict[str, Any]
) -> None:
    effective = assembled(tmp_path, {field: in_file}, {field: {key: None}})
    assert encode.plain(effective.config, mask=False)[field] == left
    assert not [at for at in effective.sources if at.startswith(field) and key in at]


def test_null_entry_removes_a_default_threshold(tmp_path: Path) -> None:
    hard = assembled(tmp_path, {}, {"evictionHard": {"nodefs.available": None}}).config.eviction_hard
    assert hard == {signal: value for signal, value in DEFAULT_EVICTION_HARD.items() if signal != "nodefs.available"}


def test_null_entry_without_a_value_below_it_is_nothing(tmp_path: Path) -> None:
    config = assembled(tmp_path, {}, {"kubeReserved": {"memory": None, "cpu": "1"}}).config
    assert encode.plain(config)["kubeReserved"] == {"cpu": "1"}


def test_null_entry_of_the_file_is_refused() -> None:
    (problem,) = parse("f", text({"evictionHard": {"memory.available": None}}).encode()).errors
    assert str(problem) == "f:4: evictionHard[memory.available]: must be text, not nothing"


# Hard thresholds


@pytest.mark.parametrize(
    ("in_file", "in_drop_in", "flags", "expected"),
    [
        ({"evictionHard": MEMORY, **MERGE}, None, (), DEFAULT_EVICTION_HARD | MEMORY),
        ({"evictionHard": MEMORY, **MERGE}, {}, (), DEFAULT_EVICTION_HARD | MEMORY),
        ({"evictionHard": MEMORY, **MERGE}, NO_MERGE, (), DEFAULT_EVICTION_HARD | MEMORY),
        ({"evictionHard": MEMORY}, MERGE, (), MEMORY),
        ({}, {"evictionHard": MEMORY, **MERGE}, (), DEFAULT_EVICTION_HARD | MEMORY),
        (MERGE, None, ("--eviction-hard=memory.available<1Gi",), MEMORY),
        (MERGE, {}, ("--eviction-hard=memory.available<1Gi",), MEMORY),
        ({}, {"evictionHard": None}, (), DEFAULT_EVICTION_HARD),
    ],
)  # fmt: skip
def test_default_thresholds_are_merged_into_the_files_only(
    tmp_path: Path, in_file: dict[str, Any], in_drop_in: dict[str, Any] | None, flags: tuple[str, ...],
    expected: dict[str, str],
) -> None:  # fmt: skip
    config = assembled(tmp_path, in_file, in_drop_in, *flags).config
    assert config.eviction_hard == expected
    assert to_settings(config, Settings()).eviction_hard == expected


def test_merge_of_default_thresholds_in_a_drop_in_is_noted(tmp_path: Path) -> None:
    (note,) = assembled(tmp_path, {}, MERGE).notes
    assert note == (
        f"{tmp_path}/config.d/1.conf:3: mergeDefaultEvictionSettings: has no effect in a drop-in; "
        "set it in the --config file"
    )


# Flags and addresses


@pytest.mark.parametrize(
    ("flag", "in_file"),
    [
        ("--address=", {"address": "10.0.0.1"}),
        ("--healthz-bind-address=", {"healthzBindAddress": "10.0.0.1"}),
        (
            "--reserved-memory=",
            {
                "memoryManagerPolicy": "Static",
                "reservedMemory": [{"numaNode": 0, "limits": {"memory": "1100Mi"}}],
                "kubeReserved": {"memory": "1000Mi"},
            },
        ),
    ],
)
def test_empty_flag_leaves_the_files_value(tmp_path: Path, flag: str, in_file: dict[str, Any]) -> None:
    effective = assembled(tmp_path, in_file, None, flag)
    assert {field: encode.leaf(effective.config, field) for field in in_file} == in_file
    assert all("config.yaml" in str(effective.source(field)) for field in in_file)


def test_healthz_is_served_at_localhost(tmp_path: Path) -> None:
    assert assembled(tmp_path, {"healthzBindAddress": "localhost"}, None).config.healthz_bind_address == "127.0.0.1"


@pytest.mark.parametrize("fields", ["maxPods: 5\nmaxPods: 6\n", "logging: {verbosity: 1, verbosity: 2}\n"])
def test_repeated_key_of_a_drop_in_is_refused(fields: str) -> None:
    """The kubelet takes such a --config file, with a warning."""
    content = text({}) + fields
    for data in (content, json.dumps(yaml.safe_load(text({})))[:-1] + ', "maxPods": 5, "maxPods": 6}'):
        refused, accepted = (parse("1.conf", data.encode(), drop_in=drop_in) for drop_in in (True, False))
        assert "the key is there twice" in str(refused.errors[0])
        assert (accepted.errors, len(accepted.ignored)) == ((), 1)


def test_unknown_field_of_a_drop_in_is_ignored() -> None:
    loaded = parse("1.conf", text({"noSuchField": 1}).encode(), drop_in=True)
    assert (loaded.errors, len(loaded.ignored)) == ((), 1)


# --vmodule


@pytest.mark.parametrize(
    ("flags", "raised"),
    [
        ((), {"pod*": 5}),
        (("--vmodule=probe=4",), {"pod*": 5, "probe": 4}),
        (("--vmodule=probe=4,pod*=9", "--vmodule=late=0,late=3"), {"pod*": 5, "probe": 4, "late": 3}),
    ],
)
def test_vmodule_flag_adds_to_the_files_patterns(
    tmp_path: Path, flags: tuple[str, ...], raised: dict[str, int]
) -> None:
    """The first pattern counts, so the file's comes before an equal one of the flag."""
    in_file = {"logging": {"vmodule": [{"filePattern": "pod*", "verbosity": 5}]}}
    effective = assembled(tmp_path, in_file, None, *flags)
    assert to_settings(effective.config, Settings()).vmodule == raised
    assert not [note for note in effective.notes if "vmodule" in note]
