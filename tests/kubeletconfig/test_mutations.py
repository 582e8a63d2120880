"""Randomly damaged files give either errors or a whole configuration, and no other result.

NODEVISOR_MUTATIONS sets the number of examples for a long run (10000 before a release).
"""

import copy
import json
import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from proto.agent.settings import Settings
from supervisor.config.kubeletconfig import defaults, fields, validation
from supervisor.config.kubeletconfig.loading import Loaded, load, parse
from supervisor.config.kubeletconfig.problems import Problem, located
from supervisor.config.kubeletconfig.typed import decode, encode
from tests.kubeletconfig.samples import EVERY, KUBEADM

FILES = (KUBEADM, EVERY, json.dumps(yaml.safe_load(EVERY), indent=1))
EXAMPLES = int(os.environ.get("NODEVISOR_MUTATIONS", "300"))
pytestmark = pytest.mark.timeout(120 + EXAMPLES / 10)
# No example may take long; the two cores of a test machine are shared, hence the slack.
RUN = settings(max_examples=EXAMPLES // 2, deadline=timedelta(seconds=10), suppress_health_check=[HealthCheck.too_slow])


def check(loaded: Loaded) -> None:
    """Everything a start does with a file, as far as it goes."""
    for problem in (*loaded.errors, *loaded.warnings):
        assert isinstance(problem, Problem)
        assert problem.file == loaded.file
        assert problem.message
        assert len(str(problem)) < 20_000
    if loaded.errors:
        return
    again = decode.decode(encode.plain(loaded.config, mask=False))
    assert again == (loaded.config, [])
    config = defaults.apply(loaded.config)
    assert defaults.apply(config) == config
    problems = located(validation.validate(config), loaded.sources)
    assert all(isinstance(problem, Problem) and str(problem) for problem in problems)
    if not problems:
        validation.warnings(config)
        fields.without_effect(config)
        assert fields.to_settings(config, Settings(), cores=2).max_pods >= 0


SPLICES = st.one_of(
    st.binary(max_size=8),
    st.sampled_from(
        [
            b"\n",
            b": ",
            b"\t",
            b"- ",
            b"{",
            b"}",
            b"[",
            b"]",
            b"'",
            b'"',
            b"#",
            b"&a ",
            b"*a",
            b"<<: ",
            b"!!int ",
            b"---\n",
            b"|\n",
            b"\0",
            b"\xff",
            b"\xc3",
            b"\xef\xbb\xbf",
            b"\\ud800",
            b"null",
            b"~",
            b"-1",
            b"1e999",
            b"0x",
            b".inf",
            b".nan",
            b"%",
            b"9" * 50,
        ]
    ),
)


@st.composite
def damaged_bytes(draw: st.DrawFn) -> bytes:
    """A file with some spans replaced, removed, repeated, moved or cut off."""
    data = draw(st.sampled_from(FILES)).encode()
    for _ in range(draw(st.integers(1, 6))):
        start = draw(st.integers(0, len(data)))
        end = draw(st.integers(start, min(len(data), start + 40)))
        kind = draw(st.sampled_from(["replace", "remove", "repeat", "move", "cut"]))
        if kind == "replace":
            data = data[:start] + draw(SPLICES) + data[end:]
        elif kind == "remove":
            data = data[:start] + data[end:]
        elif kind == "repeat":
            data = data[:end] + data[start:end] * draw(st.integers(1, 3)) + data[end:]
        elif kind == "move":
            at = draw(st.integers(0, start))
            data = data[:at] + data[start:end] + data[at:start] + data[end:]
        else:
            data = data[:end] if draw(st.booleans()) else data[start:]
    return data


TEXTS = st.one_of(
    st.text(max_size=12),
    st.sampled_from(
        [
            "",
            "0",
            "-1",
            "1h",
            "-1h",
            "10%",
            "101%",
            "1Gi",
            "-1Gi",
            "1e99999",
            "0-3",
            "/",
            "unix://",
            "::1",
            "a/b",
            "true",
        ]
    ),
)
SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), TEXTS, st.sampled_from([2**31, 2**63, -(2**63) - 1, 10**400])
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


NUMBERS = st.integers(-2, 200) | st.sampled_from([2**31 - 1, 65536, 1_000_001])


def alike(value: Any) -> st.SearchStrategy[Any]:
    """Values of the same type, which pass the decoder and meet the rules."""
    if isinstance(value, bool):
        return st.booleans()
    if isinstance(value, int | float):
        return NUMBERS
    if isinstance(value, list):
        return st.lists(st.sampled_from(value), max_size=4) if value else st.just(value)
    if isinstance(value, dict):
        kept = st.sets(st.sampled_from(sorted(value))) if value else st.just(set())
        return kept.map(lambda keys: {key: value[key] for key in keys})
    return TEXTS


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, item in inner for place in places(item, (*path, key)))]


def at(value: Any, path: tuple[Any, ...]) -> Any:
    for part in path:
        value = value[part]
    return value


@st.composite
def damaged_structures(draw: st.DrawFn) -> bytes:
    """A document with some values replaced, removed, added or swapped, written as YAML or JSON."""
    document = copy.deepcopy(yaml.safe_load(draw(st.sampled_from(FILES[:2]))))
    # Most keep to the types, so that not all of them end in the decoder.
    kinds = ["alike", "remove"] if draw(st.booleans()) else ["alike", "replace", "remove", "add", "swap"]
    for _ in range(draw(st.integers(1, 4))):
        path = draw(st.sampled_from([place for place in places(document) if place] or [()]))
        if not path:
            break
        around = at(document, path[:-1])
        kind = draw(st.sampled_from(kinds))
        if kind == "alike":
            around[path[-1]] = draw(alike(around[path[-1]]))
        elif kind == "replace":
            around[path[-1]] = draw(VALUES)
        elif kind == "remove":
            del around[path[-1]]
        elif kind == "add" and isinstance(around, dict):
            around[draw(st.text(max_size=12))] = draw(VALUES)
        else:
            other = draw(st.sampled_from(places(document)))
            around[path[-1]] = copy.deepcopy(at(document, other))
    text = json.dumps(document) if draw(st.booleans()) else yaml.safe_dump(document, allow_unicode=draw(st.booleans()))
    return text.encode("utf-8", "surrogatepass")


@RUN
@given(damaged_bytes())
def test_damaged_bytes_are_decoded_or_an_error(data: bytes) -> None:
    check(parse("kubelet.yaml", data))


@RUN
@given(damaged_structures())
def test_damaged_structures_are_decoded_or_an_error(data: bytes) -> None:
    check(parse("kubelet.yaml", data))


@pytest.mark.parametrize("text", FILES, ids=["kubeadm", "every field", "json"])
def test_truncated_file_is_decoded_or_an_error(text: str, tmp_path: Path) -> None:
    file = tmp_path / "kubelet.yaml"
    data = text.encode()
    for end in range(0, len(data), 97):
        file.write_bytes(data[:end])
        check(load(file))
