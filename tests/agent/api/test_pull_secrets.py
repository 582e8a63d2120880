"""Images of a registry that wants a user and a password."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

import pytest

from proto.pods.events import ListEvents
from tests.agent.agent import Agent, container, pod
from tests.agent.api.canary import holding
from tests.agent.api.test_objects import document, prepare, put, waiting
from tests.agent.changing import content, files
from tests.agent.table import Table, running
from tests.containerd import ContainerdInstance
from tests.containerd.registry import Registry, registry
from tests.harness import wait_for

pytestmark = pytest.mark.timeout(300)

PASSWORD = "hunter2-canary-pull"


@pytest.fixture(scope="module")
def hub(containerd: ContainerdInstance) -> Iterator[Registry]:
    with registry([containerd.registries], {"good": PASSWORD, "node": PASSWORD, "plugged": PASSWORD}) as one:
        yield one


@pytest.fixture(scope="module")
def table(containerd: ContainerdInstance, hub: Registry) -> Iterator[Table]:
    def with_plugin(agent: Agent) -> tuple[str, ...]:
        return (*prepare(agent), *plugin(agent, hub))

    with running(containerd, {}, with_plugin) as one:
        yield one


def plugin(agent: Agent, hub: Registry) -> tuple[str, ...]:
    """A credential provider for the registry's `plugged` images, which counts its runs, and a provider that fails."""
    answer = {
        "apiVersion": "credentialprovider.kubelet.k8s.io/v1",
        "kind": "CredentialProviderResponse",
        "cacheKeyType": "Registry",
        "auth": {hub.name: {"username": "plugged", "password": PASSWORD}},
    }
    program = agent.dir / "bin" / "plugin"
    program.parent.mkdir()
    # The password is put together there, so that it is in no file.
    text = json.dumps(answer).replace(PASSWORD, "'$(echo yranac-2retnuh | rev)'-pull").replace("hunter2-canary", "")
    program.write_text(f"#!/bin/sh\necho run >> {agent.dir}/runs\necho '{text}'\n")
    program.chmod(0o755)
    provider = {"name": "plugin", "apiVersion": answer["apiVersion"], "matchImages": [f"{hub.name}/plugged"]}
    broken = provider | {"name": "broken", "matchImages": [f"{hub.name}/broken"], "defaultCacheDuration": "0s"}
    (program.parent / "broken").write_text("#!/bin/sh\nexit 7\n")
    (program.parent / "broken").chmod(0o755)
    config = {"apiVersion": "kubelet.config.k8s.io/v1", "kind": "CredentialProviderConfig"}
    path = agent.dir / "providers.yaml"
    path.write_text(json.dumps(config | {"providers": [provider | {"defaultCacheDuration": "1h"}, broken]}))
    return (f"--image-credential-provider-config={path}", f"--image-credential-provider-bin-dir={program.parent}")


def pull_secret(name: str, hub: Registry, *users: tuple[str, str], old: bool = False) -> dict[str, Any]:
    entries = {hub.name + "/team" * number: {"auth": auth(*user)} for number, user in enumerate(users)}
    kind, key = ("dockercfg", ".dockercfg") if old else ("dockerconfigjson", ".dockerconfigjson")
    content = json.dumps(entries if old else {"auths": entries})
    return document("Secret", name, type=f"kubernetes.io/{kind}", stringData={key: content})


def auth(user: str, password: str) -> str:
    return base64.b64encode(f"{user}:{password}".encode()).decode()


def run(agent: Agent, name: str, image: str, *secrets: str) -> None:
    one = container("c", image=image)
    agent.write(name, pod(name, one, imagePullSecrets=[{"name": secret} for secret in secrets]))


def runs(table: Table, name: str, timeout_s: float = 60.0) -> None:
    wait_for(
        lambda: (seen := table.see(name)) is not None and "running" in seen.container().get("state", {}),
        timeout_s,
        f"{name} runs; log: {table.agent.log}",
    )


def messages(table: Table) -> list[str]:
    return [one.message or "" for one in table.eye.client.ask("events", ListEvents()).events]


def test_the_pods_secret_opens_the_registry(table: Table, hub: Registry) -> None:
    put(table.agent, pull_secret("hub", hub, ("good", PASSWORD)), file="hub.yaml")
    run(table.agent, "secret", hub.add("team/secret"), "hub")
    runs(table, "secret")


def test_credentials_are_tried_in_order_the_more_specific_first(table: Table, hub: Registry) -> None:
    secret = pull_secret("two", hub, ("good", PASSWORD), ("wrong", "x"), old=True)
    put(table.agent, secret, file="two.yaml")
    hub.seen.clear()
    run(table.agent, "two", hub.add("team/two"), "two")
    runs(table, "two")
    assert [user for user in hub.tried() if user] == ["wrong", "good"]


def test_pull_fails_until_a_valid_secret_appears(table: Table, hub: Registry) -> None:
    agent = table.agent
    run(agent, "late", hub.add("team/late"), "late-a", "late-b")
    seen = waiting(table, "late", "ImagePullBackOff")
    assert "401 Unauthorized" in seen.message() or "authorization failed" in seen.message(), seen.message()
    said = "Unable to retrieve some image pull secrets (late-a, late-b); attempting to pull the image may not succeed."
    wait_for(lambda: said in messages(table), 10, "the event of the missing Secrets")
    put(agent, pull_secret("late-a", hub, ("good", PASSWORD)), file="late.yaml")
    runs(table, "late", 9)  # at once, not after the back-off of 10 s


def test_the_nodes_own_configuration_is_used_without_any_secret(table: Table, hub: Registry) -> None:
    config = table.agent.root_dir / "config.json"
    config.write_text(json.dumps({"auths": {hub.name: {"auth": auth("node", PASSWORD)}}}))
    try:
        hub.seen.clear()
        run(table.agent, "node", hub.add("team/node"))
        runs(table, "node")
        assert "node" in hub.tried()
    finally:
        config.unlink()


def test_credential_provider_is_asked_once_per_cached_answer(table: Table, hub: Registry) -> None:
    for name in ("plugged-a", "plugged-b"):
        run(table.agent, name, hub.add(f"plugged/{name}"))
        runs(table, name)
    assert (table.agent.dir / "runs").read_text().split() == ["run"]
    assert plugin_metric(table.agent, "duration") == {("plugin",): 1}
    assert not plugin_metric(table.agent, "errors_total")


def plugin_metric(agent: Agent, name: str) -> dict[tuple[str, ...], float]:
    """By plugin: the value of a metric of credential providers, or the number of observations."""
    return agent.counts("image_pull", f"kubelet_credential_provider_plugin_{name}")


def test_credential_provider_that_fails_is_counted(table: Table, hub: Registry) -> None:
    run(table.agent, "broken", hub.add("broken/image"))
    waiting(table, "broken", "ImagePullBackOff")
    assert plugin_metric(table.agent, "errors_total").get(("broken",), 0) >= 1
    assert plugin_metric(table.agent, "duration").get(("broken",), 0) >= 1
    (table.agent.manifests / "broken.yaml").unlink()
    # It would try again after its back-off, which the next test would see.
    wait_for(lambda: set(table.eye.listed()).isdisjoint({"broken"}), 60, "the pod goes, and its pulls end")


def test_present_image_needs_credentials_that_could_pull_it(table: Table, hub: Registry) -> None:
    put(table.agent, pull_secret("mine", hub, ("good", PASSWORD)), file="mine.yaml")
    image = hub.add("team/mine")
    run(table.agent, "first", image, "mine")
    runs(table, "first")
    hub.seen.clear()
    run(table.agent, "also", image, "mine")
    runs(table, "also")
    assert hub.tried() == [], "its Secret has opened it before"
    run(table.agent, "other", image)
    waiting(table, "other", "ImagePullBackOff")
    assert hub.tried() != [], "it has to show something, and has nothing"
    records = [content(one).decode() for one in (table.agent.root_dir / "image_manager/pulled").iterdir()]
    assert any('"name":"mine"' in one and f"{hub.name}/team/mine" in one for one in records)


def test_a_password_is_in_no_file_of_the_agent(table: Table) -> None:
    agent = table.agent
    wanted = (PASSWORD.encode(), auth("good", PASSWORD).encode())
    there = [path for path in files(agent.dir) if agent.dir / "objects" not in path.parents]
    assert holding(there, *wanted) == []
