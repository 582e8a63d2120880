"""Environments, commands, sub paths and probes that Linux refuses: no text of that length is made."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from actors._host.node import downward
from actors.pod_workers.cri_config.container_config import InstanceInputs, container_config
from actors.pod_workers.cri_config.mounts import sub_paths
from actors.pod_workers.environment.exec_limits import MAX_PATH_BYTES, MAX_TOTAL_BYTES, size, total_size
from actors.pod_workers.environment.probe_commands import MAX_COMMANDS_BYTES, expanded_probes
from actors.pod_workers.environment.variables import (
    ConfigError,
    Sources,
    TooLongError,
    environment,
    expand,
    expand_words,
)
from actors.pod_workers.model.view import ContainerView, PodView, SandboxView
from actors.pod_workers.shared.pod_scope import PodScope
from actors.pod_workers.shared.pod_tracer import PodTracer
from actors.pod_workers.status.reporting import StatusReporter
from proto.agent.settings import Settings
from proto.v1 import Container, Pod
from proto.v1.codec import from_dict

MOST_MEMORY = 64 << 20
KIB = 1 << 10
REFUSED = "which Linux refuses"


@pytest.fixture(autouse=True)
def little_memory() -> Iterator[None]:
    tracemalloc.start()
    began = time.process_time()
    yield
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < MOST_MEMORY
    assert time.process_time() - began < 20


def doubled(count: int, first: str = "x" * 64) -> list[dict[str, Any]]:
    later = [{"name": f"V{n}", "value": f"$(V{n - 1})$(V{n - 1})"} for n in range(1, count)]
    return [{"name": "V0", "value": first}, *later]


def pod(metadata: dict[str, Any] | None = None, **fields: Any) -> Pod:
    meta = {"name": "p", "namespace": "ns", "uid": "u"} | (metadata or {})
    return from_dict(Pod, {"metadata": meta, "spec": {"containers": [{"name": "c", "image": "i", **fields}]}})


def refusal(subject: Pod, sources: Sources | None = None) -> str:
    with pytest.raises(ConfigError) as caught:
        environment(subject, subject.spec.containers[0], sources or Sources())
    assert caught.value.reason == "CreateContainerConfigError"
    return str(caught.value)


def variables(subject: Pod, sources: Sources | None = None) -> dict[str, str]:
    return environment(subject, subject.spec.containers[0], sources or Sources())


def test_doubled_variables_end_at_the_longest_environment() -> None:
    before = "cannot make the environment of container c: with variable V16 it is longer than"
    assert refusal(pod(env=doubled(40))) == f"{before} {MAX_TOTAL_BYTES} bytes, {REFUSED}"
    assert len(variables(pod(env=doubled(16)))["V15"]) == 64 << 15


@pytest.mark.parametrize("letter", ["x", "é", "\udcff"])
def test_a_variable_may_have_all_bytes_that_linux_takes(letter: str) -> None:
    count = (MAX_TOTAL_BYTES - 3) // size(letter)
    longest = letter * count
    sources = Sources(config_map=lambda _: {"k": longest, "l": longest + letter * 2})
    ref = {"name": "A", "valueFrom": {"configMapKeyRef": {"name": "m", "key": "k"}}}
    assert variables(pod(env=[ref]), sources) == {"A": longest}
    ref["valueFrom"]["configMapKeyRef"]["key"] = "l"  # type: ignore[index]
    assert "with variable A it is longer" in refusal(pod(env=[ref]), sources)


def test_a_replaced_value_does_not_count() -> None:
    sources = Sources(config_map=lambda name: {"A": name * 4_000_000})
    env_from = [{"configMapRef": {"name": name}} for name in "ab"]
    assert variables(pod(envFrom=env_from), sources) == {"A": "b" * 4_000_000}
    assert variables(pod(envFrom=env_from, env=[{"name": "A", "value": "a"}]), sources) == {"A": "a"}


@pytest.mark.parametrize(
    "source",
    [
        {"fieldRef": {"fieldPath": "metadata.annotations"}},
        {"configMapKeyRef": {"name": "m", "key": "k"}},
        {"secretKeyRef": {"name": "m", "key": "k"}},
        {"fileKeyRef": {"volumeName": "v", "path": "f", "key": "k"}},
    ],
)
def test_a_value_of_many_variables_counts_each_time(source: dict[str, Any]) -> None:
    text = "x" * 100_000
    sources = Sources(
        config_map=lambda _: {"k": text[:] + "c"}, secret=lambda _: {"k": text + "s"}, file_key=lambda _: text + "f"
    )
    env = [{"name": f"V{number}", "valueFrom": source} for number in range(1000)]
    subject = pod({"annotations": {"a": text}}, env=env)
    before = "cannot make the environment of container c: with variable V62 it is longer than"
    assert refusal(subject, sources) == f"{before} {MAX_TOTAL_BYTES} bytes, {REFUSED}"


def test_a_source_is_read_once_for_all_its_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def text(*given: Any) -> str:
        asked.append(next(one for one in given if not isinstance(one, Pod)))
        return "text"

    def data(name: str) -> dict[str, str]:
        asked.append(name)
        return {f"k{number}": "" for number in range(10)}

    monkeypatch.setattr(downward, "field_value", text)
    refs = [
        {"name": f"k{number}", "valueFrom": source}
        for number in range(10)
        for source in (
            {"secretKeyRef": {"name": "s", "key": "k0"}},
            {"fieldRef": {"fieldPath": "metadata.annotations"}},
            {"fileKeyRef": {"volumeName": "v", "path": "f", "key": "k"}},
        )
    ]
    again = [{"configMapRef": {"name": "m"}}, {"secretRef": {"name": "s"}}] * 100
    sources = Sources(config_map=data, secret=data, file_key=lambda key: text(key.path))
    assert len(variables(pod(env=refs, envFrom=again), sources)) == 10
    assert sorted(asked) == ["f", "m", "metadata.annotations", "s"]


def test_the_last_of_equal_sources_decides() -> None:
    sources = Sources(config_map=lambda name: {"A": name, name: ""})
    env_from = [{"configMapRef": {"name": name}} for name in "mnm"]
    assert variables(pod(envFrom=env_from), sources) == {"A": "m", "m": "", "n": ""}


def test_keys_with_many_prefixes_end_at_the_longest_environment() -> None:
    keys = {f"{'k' * 200}{number}": "" for number in range(1000)}
    env_from = [{"prefix": f"p{number}_", "configMapRef": {"name": "m"}} for number in range(1000)]
    assert f"it is longer than {MAX_TOTAL_BYTES} bytes" in refusal(
        pod(envFrom=env_from), Sources(config_map=lambda _: keys)
    )


def test_variables_of_services_count() -> None:
    services = {f"S{number}": "x" * 100_000 for number in range(70)}
    assert f"it is longer than {MAX_TOTAL_BYTES} bytes" in refusal(pod(), Sources(services=services))
    assert len(variables(pod(), Sources(services=dict(list(services.items())[:60])))) == 60


@pytest.mark.parametrize("field", ["command", "args"])
def test_commands_end_at_the_kernels_limits(field: str) -> None:
    envs = {"V": "x" * 65_000}
    before = "cannot make the command of container c: "

    def problem(*words: str) -> str:
        subject = pod(**{field: list(words)})
        with pytest.raises(ConfigError) as caught:
            container_config(subject, subject.spec.containers[0], InstanceInputs(image_ref="i", envs=envs))
        return str(caught.value)

    after = f"and its variables it is longer than {MAX_TOTAL_BYTES} bytes, {REFUSED}"
    assert problem("a", "$(V)" * 1000) == f"{before}with word 2 {after}"
    assert problem(*["$(V)$(V)"] * 1000) == f"{before}with word 48 {after}"


def test_a_command_may_have_all_bytes_that_linux_takes() -> None:
    left = MAX_TOTAL_BYTES - total_size({"V": "x"})
    count, last = divmod(left, KIB)
    words = ["x" * (KIB - 1)] * count + ["x" * (last - 1)]
    assert expand_words(words, {"V": "x"}, "c") == words
    with pytest.raises(ConfigError, match="and its variables it is longer"):
        expand_words([*words, ""], {"V": "x"}, "c")
    assert expand("$(V)" * KIB, {"V": "x"}, KIB) == "x" * KIB
    with pytest.raises(TooLongError):
        expand("$(V)" * KIB + "y", {"V": "x"}, KIB)
    assert expand("$$" * KIB, {}, KIB) == "$" * KIB, "it is the result that counts"


def test_sub_paths_end_at_the_longest_path() -> None:
    def paths(expression: str, count: int = 1) -> dict[int, str]:
        mounts = [{"name": "v", "mountPath": f"/{number}", "subPathExpr": expression} for number in range(count)]
        return sub_paths(from_dict(Container, {"name": "c", "volumeMounts": mounts}), known)

    def known() -> dict[str, str]:
        made.append(1)
        return {"V": "x" * 100_000, "P": "p" * MAX_PATH_BYTES}

    made: list[int] = []
    assert paths("$(P)", 100) == dict.fromkeys(range(100), "p" * MAX_PATH_BYTES)
    assert len(made) == 1, "the environment is made once"
    with pytest.raises(ConfigError) as caught:
        paths("$(V)" * 1000)
    problem = f"it is longer than {MAX_PATH_BYTES} bytes, {REFUSED}"
    assert str(caught.value) == f'cannot make the sub path of volume "v": {problem}'


def probed(*commands: list[str], env: list[dict[str, Any]]) -> tuple[Container, ...]:
    return tuple(
        from_dict(Container, {"name": f"c{number}", "env": env, "readinessProbe": {"exec": {"command": command}}})
        for number, command in enumerate(commands)
    )


def test_commands_of_probes_are_bounded_for_the_whole_pod() -> None:
    other = {"name": "OTHER", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}
    env = [{"name": "V", "value": "x" * 100_000}, other]
    commands = [["echo", "$(V)$(OTHER)"], ["$(V)" * 100], *[["$(V)"] * 10] * 10]
    found, refused = expanded_probes(probed(*commands, env=env))
    sizes = [sum(map(size, one["readiness_probe"].exec.command)) for one in found.values()]  # type: ignore[union-attr]
    assert sizes[:4] == [100_004, 0, 1_000_000, 1_000_000]
    assert sum(sizes) <= MAX_COMMANDS_BYTES
    assert refused[0] == "c1"
    assert set(refused) == {f"c{number}" for number, count in enumerate(sizes) if not count}


def test_a_pod_with_a_probe_that_linux_refuses_is_published(caplog: pytest.LogCaptureFixture) -> None:
    sent: list[Any] = []
    published = SimpleNamespace(status=lambda *_, **__: None, probing=lambda one, **_: sent.append(one))
    context: Any = SimpleNamespace(
        settings=Settings(), host_ips=(), host_ips_told=True, actuated={}, runtime_name="", published=published,
        health=SimpleNamespace(of_pod=lambda _: None), probes_known=True,
    )  # fmt: skip
    probe = {"exec": {"command": ["$(V)" * 100]}}
    subject = pod(env=[{"name": "V", "value": "x" * 100_000}], livenessProbe=probe)
    report = StatusReporter(PodScope(context, subject, subject, None, None, PodTracer(subject)), None, None, ())  # type: ignore[arg-type]
    view = PodView.of([SandboxView(id="s")], [ContainerView("i", "c", state="running")])
    report.publish(view)
    report.publish(view)
    assert [one.containers[0].liveness.exec.command for one in sent] == [(), ()]
    assert caplog.text.count("the probes of c fail: Linux refuses commands of that length") == 1
