"""Credential provider plugins: configuration, selection, answers, and programs that misbehave."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from actors.image_pull.credentials import exec_provider, providers
from actors.image_pull.credentials.providers import Answer, Cache, PluginError, PluginRunError
from proto.schema.credential_provider import CredentialProvider, ExecEnvVar, ProviderConfigError, load, pattern_problem
from tests.harness import Stalls, alive, wait_for

PROVIDER: dict[str, Any] = {
    "name": "plugin",
    "apiVersion": "credentialprovider.kubelet.k8s.io/v1",
    "matchImages": ["*.r.io", "q.io/team"],
    "defaultCacheDuration": "12h",
}

ALPHA, BETA = (f"credentialprovider.kubelet.k8s.io/{version}" for version in ("v1alpha1", "v1beta1"))


def config(*some: dict[str, Any], **fields: Any) -> dict[str, Any]:
    head = {"apiVersion": "kubelet.config.k8s.io/v1", "kind": "CredentialProviderConfig"}
    return head | {"providers": list(some) or [PROVIDER]} | fields


def with_tokens(**changes: Any) -> dict[str, Any]:
    """A configuration whose provider gets tokens."""
    good = {"serviceAccountTokenAudience": "r", "cacheType": "Token", "requireServiceAccount": True}
    return config(PROVIDER | {"tokenAttributes": good | changes})


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "bin").mkdir()
    program(tmp_path, "exit 0")
    return tmp_path


def program(place: Path, script: str, name: str = "plugin") -> None:
    path = place / "bin" / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def loaded(place: Path, value: Any) -> tuple[CredentialProvider, ...]:
    (place / "config.json").write_text(json.dumps(value))
    return load(str(place / "config.json"), str(place / "bin"))


def test_a_file_and_a_directory_of_files(place: Path) -> None:
    (one,) = loaded(place, config())
    assert (one.name, one.match_images) == ("plugin", ("*.r.io", "q.io/team"))
    keys = {"requiredServiceAccountAnnotationKeys": ["Example.com/Role"], "optionalServiceAccountAnnotationKeys": ["b"]}
    assert loaded(place, with_tokens(**keys))[0].token_attributes is not None
    loaded(place, config())
    program(place, "exit 0", "second")
    directory = place / "several"
    directory.mkdir()
    (directory / "b.json").write_text(json.dumps(config()))
    (directory / "a.yaml").write_text(json.dumps(config(PROVIDER | {"name": "second"})))
    (directory / "c.txt").write_text("{")
    assert [one.name for one in load(str(directory), str(place / "bin"))] == ["second", "plugin"]
    assert load("", "") == ()


def test_fields_without_a_value_are_not_set(place: Path) -> None:
    """A template that writes `args:` and no arguments is a configuration for the kubelet."""
    (one,) = loaded(place, config(PROVIDER | {"args": None, "env": None, "tokenAttributes": None}))
    assert (one.args, one.env, one.token_attributes) == ((), None, None)
    with pytest.raises(ProviderConfigError, match="defaultCacheDuration: Required value"):
        loaded(place, config(PROVIDER | {"defaultCacheDuration": None}))


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (config(kind="Other"), "must be a CredentialProviderConfig"),
        (config(providers=[]), "at least 1 item in plugins is required"),
        (config(PROVIDER, PROVIDER), "the name 'plugin' is there twice"),
        (config(PROVIDER | {"name": "../x"}), "without '/' and spaces"),
        (config(PROVIDER | {"name": "none"}), "bin/none did not exist"),
        (config(PROVIDER | {"apiVersion": "credentialprovider.kubelet.k8s.io/v2"}), "apiVersion: Unsupported value"),
        (config(PROVIDER | {"apiVersion": ""}), "apiVersion: Required value"),
        (
            config(with_tokens()["providers"][0] | {"apiVersion": BETA}),
            "Forbidden: tokenAttributes is only supported for credentialprovider.kubelet.k8s.io/v1 API version",
        ),
        (config(PROVIDER | {"matchImages": []}), "at least 1 item in matchImages is required"),
        (
            config(PROVIDER | {"matchImages": ["a.io", "%invalid%"]}),
            "matchImages: Invalid value: '%invalid%': match image is invalid: invalid URL escape",
        ),
        (
            config({key: PROVIDER[key] for key in ("name", "apiVersion", "matchImages")}),
            "defaultCacheDuration: Required",
        ),
        (config(PROVIDER | {"defaultCacheDuration": "-1s"}), "must be greater than or equal to 0"),
        (with_tokens(serviceAccountTokenAudience=""), "serviceAccountTokenAudience: Required value"),
        (with_tokens(cacheType=""), "cacheType: Required value: ServiceAccount or Token"),
        (with_tokens(cacheType="Pod"), "cacheType"),
        (with_tokens(requireServiceAccount=None), "requireServiceAccount: Required value"),
        (
            with_tokens(requireServiceAccount=False, requiredServiceAccountAnnotationKeys=["a"]),
            "requiredServiceAccountAnnotationKeys: Forbidden",
        ),
        (with_tokens(optionalServiceAccountAnnotationKeys=["a b"]), "must be an annotation's key"),
        (with_tokens(optionalServiceAccountAnnotationKeys=["a", "a"]), "Duplicate value: 'a'"),
        (
            with_tokens(requiredServiceAccountAnnotationKeys=["a"], optionalServiceAccountAnnotationKeys=["a"]),
            "cannot be both required and optional",
        ),
        (config(PROVIDER | {"matchImage": ["a"]}), "matchImage"),
        ([], "Expected `object`"),
    ],
)
def test_invalid_provider_configurations(place: Path, value: Any, problem: str) -> None:
    with pytest.raises(ProviderConfigError, match=problem):
        loaded(place, value)


@pytest.mark.parametrize(
    ("pattern", "problem"),
    [
        ("%invalid%", "invalid URL escape"),
        ("a.io/%zz", "invalid URL escape"),
        ("a.io:port", "invalid port"),
        ("a.io:*", "invalid port"),
        ("[::1]x", "invalid port"),
        ("[::1", "missing ']'"),
        ("a b.io", "invalid character"),
        ("a.io/\n", "control character"),
        ("", ""),
        ("a.io", ""),
        ("*.a.io", ""),
        ("a.*.io:5000/team/*", ""),
        ("a.io:", ""),
        ("[::1]:5000/a", ""),
        ("[::1]", ""),
        ("::1", ""),
        ("a.io/b c", ""),
        ("a.io/%20", ""),
        ("a.io/x:y", ""),
        ("a?.io", ""),
        ("r[0-9].io", ""),
        ("123456789.dkr.ecr.us-east-1.amazonaws.com", ""),
    ],
)
def test_patterns_of_images_are_urls_without_a_scheme(pattern: str, problem: str) -> None:
    found = pattern_problem(pattern)
    assert (problem in found) if problem else found == ""


def test_provider_config_needs_its_bin_dir_and_vice_versa(place: Path) -> None:
    with pytest.raises(ProviderConfigError, match="need each other"):
        load("", str(place / "bin"))


@pytest.mark.parametrize(
    ("repository", "asked"), [("x.r.io/a", True), ("r.io/a", False), ("q.io/team/a", True), ("q.io/other", False)]
)
def test_providers_are_chosen_by_match_images(place: Path, repository: str, asked: bool) -> None:
    assert bool(providers.chosen(loaded(place, config()), repository)) is asked


def response(**fields: Any) -> bytes:
    head = {"apiVersion": PROVIDER["apiVersion"], "kind": "CredentialProviderResponse", "cacheKeyType": "Registry"}
    return json.dumps(head | {"auth": {"r.io": {"username": "u", "password": "hunter2"}}} | fields).encode()


@pytest.mark.parametrize(
    ("fields", "key", "keep_s"),
    [
        ({}, "x.r.io", 43200.0),
        ({"cacheKeyType": "Image", "cacheDuration": "5m"}, "x.r.io/a", 300.0),
        ({"cacheKeyType": "Global", "cacheDuration": "0s"}, "global", 0.0),
    ],
)
def test_an_answer(place: Path, fields: dict[str, Any], key: str, keep_s: float) -> None:
    (provider,) = loaded(place, config())
    assert providers.answer(provider, "x.r.io/a", response(**fields)) == Answer({"r.io": ("u", "hunter2")}, key, keep_s)


@pytest.mark.parametrize(
    ("output", "problem"),
    [
        (b"hunter2", "error decoding"),
        (response(auth={"r.io": "hunter2"}), "error decoding"),
        (response(cacheTime="hunter2"), "error decoding"),
        (response(auth={"r.io": {"username": "u", "password": "p", "token": "hunter2"}}), "error decoding"),
        (response()[:-1] + b', "kind": "CredentialProviderResponse"}', "error decoding"),
        (response().replace(b'"username"', b'"username": "hunter2", "username"'), "error decoding"),
        (response(apiVersion="hunter/v2"), "did not match expected apiVersion"),
        (response(kind="Other"), "did not match expected apiVersion"),
        (response(cacheKeyType="Often"), 'valid cacheKeyType: "Often"'),
        (response(cacheDuration="soon"), "cacheDuration"),
    ],
)
def test_invalid_answer_error_does_not_show_secrets(place: Path, output: bytes, problem: str) -> None:
    (provider,) = loaded(place, config())
    with pytest.raises(PluginError, match=problem) as raised:
        providers.answer(provider, "x.r.io/a", output)
    assert "hunter2" not in str(raised.value)


def test_cache_key_is_image_registry_or_global_for_its_duration() -> None:
    cache = Cache()
    for key in ("r.io/a", "r.io", "global"):
        cache.put("p", Answer({key: providers.Credentials(key, "")}, key, 10), 0)
    found = {name: cache.get("p", name, 5) for name in ("r.io/a", "r.io/b", "q.io/a")}
    assert {name: list(entries or ()) for name, entries in found.items()} == {
        "r.io/a": ["r.io/a"],
        "r.io/b": ["r.io"],
        "q.io/a": ["global"],
    }
    assert cache.get("p", "r.io/a", 11) is None
    assert cache.get("other", "r.io/a", 5) is None
    cache.put("p", Answer({}, "x.io", 0), 0)
    assert cache.get("none", "x.io", 0) is None


def run(place: Path, timeout_s: float = 20.0, **fields: Any) -> Answer:
    fields = {"api_version": PROVIDER["apiVersion"]} | fields
    provider = CredentialProvider(name="plugin", default_cache_duration="0s", **fields)
    return exec_provider.run(str(place / "bin"), provider, "x.r.io/a", timeout_s=timeout_s)


def test_a_plugin_gets_request_arguments_and_variables(place: Path) -> None:
    body = '{"kind":"CredentialProviderResponse","apiVersion":"credentialprovider.kubelet.k8s.io/v1",'
    body += '"cacheKeyType":"Image","auth":{"r.io":{"username":"\'$1-$WHO\'","password":"p"}}}'
    program(place, f"cat > {place}/request\necho '{body}'")
    found = run(place, args=("--one",), env=(ExecEnvVar(name="WHO", value="me"),))
    assert found.entries["r.io"].username == "--one-me"
    assert json.loads((place / "request").read_text()) == {
        "kind": "CredentialProviderRequest",
        "apiVersion": PROVIDER["apiVersion"],
        "image": "x.r.io/a",
    }


@pytest.mark.parametrize("version", [ALPHA, BETA])
def test_an_older_plugin_is_asked_in_its_own_version(place: Path, version: str) -> None:
    (provider,) = loaded(place, config(PROVIDER | {"apiVersion": version}))
    body = response(apiVersion=version).decode()
    program(place, f"cat > {place}/request\necho '{body}'")
    assert run(place, api_version=version).entries == {"r.io": ("u", "hunter2")}
    asked = json.loads((place / "request").read_text())
    assert asked == {"kind": "CredentialProviderRequest", "apiVersion": version, "image": "x.r.io/a"}
    with pytest.raises(PluginError, match=f"expected apiVersion:{version}, actual apiVersion:{PROVIDER['apiVersion']}"):
        providers.answer(provider, "x.r.io/a", response())


@pytest.mark.parametrize(
    ("script", "problem", "kind"),
    [
        ("echo no way >&2; exit 3", "plugin plugin for image x.r.io/a: exit status 3: no way", PluginRunError),
        ("echo {}", "did not match expected apiVersion", PluginError),
        ("kill -9 $$", "exit status -9", PluginRunError),
    ],
)
def test_a_plugin_that_fails(place: Path, script: str, problem: str, kind: type[PluginError]) -> None:
    program(place, script)
    with pytest.raises(PluginError, match=problem) as raised:
        run(place)
    assert raised.type is kind


def test_a_plugin_that_cannot_be_run_is_an_error(place: Path) -> None:
    """A NUL, which YAML can write, must not end the actor."""
    for fields in ({"args": ("a\0b",)}, {"env": (ExecEnvVar(name="A=B", value="x"),)}):
        with pytest.raises(PluginRunError, match=r"plugin plugin for image x.r.io/a: (embedded null|illegal environ)"):
            run(place, **fields)
    (place / "bin" / "plugin").unlink()
    with pytest.raises(PluginRunError, match=r"for image x.r.io/a: No such file or directory"):
        run(place)


def test_a_plugin_that_hangs_is_killed_with_its_children(place: Path) -> None:
    program(place, f"sleep 1000 & echo $! > {place}/child; wait")
    began = time.monotonic()
    with Stalls() as machine, pytest.raises(PluginError, match="context deadline exceeded"):
        run(place, 6.0)  # the child has been told of by then
    assert time.monotonic() - began < 15 + machine.longest_s
    child = int((place / "child").read_text())
    wait_for(lambda: not alive(child), what="the child ends")


def test_a_plugin_that_writes_without_end_is_killed(place: Path) -> None:
    program(place, f"echo $$ > {place}/pid; exec cat /dev/zero")
    with pytest.raises(PluginError, match="it wrote more than 1048576 bytes"):
        run(place)
    pid = int((place / "pid").read_text())
    assert not alive(pid)


def test_errors_without_end_keep_no_answer_back(place: Path) -> None:
    body = '{"kind":"CredentialProviderResponse","apiVersion":"credentialprovider.kubelet.k8s.io/v1",'
    body += '"cacheKeyType":"Image","auth":{"r.io":{"username":"u","password":"p"}}}'
    program(place, f"head -c 9000000 /dev/zero >&2; echo '{body}'")
    assert run(place).entries["r.io"].username == "u"


def test_a_child_that_outlives_its_plugin_is_not_waited_for(place: Path) -> None:
    body = '{"kind":"CredentialProviderResponse","apiVersion":"credentialprovider.kubelet.k8s.io/v1",'
    body += '"cacheKeyType":"Image","auth":{"r.io":{"username":"u","password":"p"}}}'
    child = f"setsid sh -c 'echo $$ > {place}/child; until test -e {place}/go; do sleep 0.05; done; cat /dev/zero'"
    program(place, f"{child} &\nuntil test -s {place}/child; do sleep 0.05; done; echo '{body}'")
    assert run(place).entries["r.io"].username == "u"
    pid = int((place / "child").read_text())
    assert alive(pid)
    (place / "go").touch()
    wait_for(lambda: not alive(pid), what="its output fails")


def test_no_descriptor_is_left(place: Path) -> None:
    program(place, "exit 1")
    before = set(os.listdir("/proc/self/fd"))
    with pytest.raises(PluginError):
        run(place)
    # Waited for: threads that other tests have left may open something for a moment.
    wait_for(lambda: set(os.listdir("/proc/self/fd")) <= before, what="nothing is left open")
