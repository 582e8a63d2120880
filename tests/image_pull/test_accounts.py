"""Credential providers that get tokens of the pods' service accounts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from actors.image_pull.credentials import providers
from actors.image_pull.credentials.providers import Account, Answer, Cache, Credentials, PluginError
from actors.image_pull.verification import PullServiceAccount
from proto.pods.objects import ApiObject, GetObjects, GetToken, Objects, Token
from proto.schema.credential_provider import CredentialProvider, TokenAttributes
from proto.wire.message import Message
from tests.harness import ActorProcess, actor_process
from tests.image_pull.fake import FakeImages
from tests.image_pull.test_actor import counts, ensure, refused
from tests.image_pull.test_credentials import PRIVATE, records
from tests.image_pull.test_providers import PROVIDER, config

ROLE = "example.com/role"
TOKENS = {"serviceAccountTokenAudience": "registry", "cacheType": "ServiceAccount", "requireServiceAccount": True}
ANSWER = {
    "apiVersion": PROVIDER["apiVersion"], "kind": "CredentialProviderResponse", "cacheKeyType": "Registry",
    "auth": {"registry.example": {"username": "u", "password": "right"}},
}  # fmt: skip


class World:
    """The actor with a plugin, a registry with PRIVATE, and service accounts."""

    def __init__(self, actor: ActorProcess, place: Path) -> None:
        self.actor, self._place = actor, place
        self.annotations = {"builder": {ROLE: "push", "note": "n"}, "reader": {ROLE: "pull"}, "plain": {}}
        actor.peers["objects"].answers.update({GetObjects: self.objects, GetToken: self.token})

    def objects(self, request: GetObjects) -> Objects:
        found = []
        for ref in request.refs:
            if ref.kind == "ServiceAccount" and ref.name in self.annotations:
                meta = {"name": ref.name, "uid": f"uid-{ref.name}", "annotations": self.annotations[ref.name]}
                found.append(ApiObject(ref=ref, resource_version="1", document={"metadata": meta}))
        return Objects(found=tuple(found), missing=tuple({*request.refs} - {one.ref for one in found}))

    def token(self, request: GetToken) -> Message:
        return Token(token=f"token of {request.pod_uid}", expires=2e9, refresh=1.9e9)

    def runs(self) -> list[dict[str, Any]]:
        """The requests of the plugin's runs."""
        path = self._place / "requests"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@contextmanager
def world(place: Path, attributes: dict[str, Any], answer: dict[str, Any] = ANSWER) -> Iterator[World]:
    (place / "bin").mkdir()
    program = place / "bin" / "plugin"
    program.write_text(f"#!/bin/sh\ncat >> {place}/requests; echo >> {place}/requests\necho '{json.dumps(answer)}'\n")
    program.chmod(0o755)
    provider = PROVIDER | {"matchImages": ["registry.example"], "tokenAttributes": TOKENS | attributes}
    (place / "config.json").write_text(json.dumps(config(provider)))
    images = FakeImages(place / "cri.sock")
    images.passwords[PRIVATE] = "right"
    settings = {
        "container_runtime_endpoint": images.endpoint,
        "image_credential_provider_config": str(place / "config.json"),
        "image_credential_provider_bin_dir": str(place / "bin"),
        "kubeconfig": "/there-is-a-cluster",
    }
    try:
        with actor_process("image_pull", ("events", "pleg", "objects"), **settings) as process:
            yield World(process, place)
    finally:
        images.close()


def of(account: str, pod: str, policy: Any = "IfNotPresent") -> Any:
    return msgspec.structs.replace(ensure(PRIVATE, policy, pod), service_account=account)


def test_plugin_gets_the_pods_token_and_chosen_annotations(tmp_path: Path) -> None:
    keys = {"requiredServiceAccountAnnotationKeys": [ROLE], "optionalServiceAccountAnnotationKeys": ["none"]}
    with world(tmp_path, keys) as one:
        assert one.actor.ask(of("builder", "a")).pulled
        (run,) = one.runs()
        assert (run["serviceAccountToken"], run["serviceAccountAnnotations"]) == ("token of a", {ROLE: "push"})
        (wish,) = one.actor.peers["objects"].of(GetToken)
        assert (wish.audiences, wish.account_uid, wish.pod_uid) == (("registry",), "uid-builder", "a")
        assert refused(one.actor, of("plain", "b", "Always"))[0] == "ErrImagePull"
        assert refused(one.actor, of("missing", "c", "Always"))[0] == "ErrImagePull"
        assert len(one.runs()) == 1


def test_answer_is_kept_for_all_pods_of_a_service_account(tmp_path: Path) -> None:
    with world(tmp_path, {}) as one:
        assert one.actor.ask(of("builder", "a", "Always")).pulled
        assert one.actor.ask(of("builder", "b", "Always")).pulled
        assert len(one.runs()) == 1
        assert one.actor.ask(of("reader", "c", "Always")).pulled
        assert [run["serviceAccountToken"] for run in one.runs()] == ["token of a", "token of c"]
        one.annotations["builder"] = {ROLE: "other"}
        assert one.actor.ask(of("builder", "d", "Always")).pulled
        assert len(one.runs()) == 2, "no annotation is for the plugin"


def test_answer_is_kept_for_one_token_where_it_is_the_token(tmp_path: Path) -> None:
    with world(tmp_path, {"cacheType": "Token"}) as one:
        for pod in ("a", "b", "a"):
            assert one.actor.ask(of("builder", pod, "Always")).pulled
        assert [run["serviceAccountToken"] for run in one.runs()] == ["token of a", "token of b"]


ERRORS = "kubelet_credential_provider_plugin_errors_total"


def test_only_failed_runs_of_a_plugin_are_counted(tmp_path: Path) -> None:
    with world(tmp_path, {}, ANSWER | {"apiVersion": "other/v1"}) as one:
        assert refused(one.actor, of("builder", "a"))[0] == "ErrImagePull"
        assert (len(one.runs()), counts(one.actor, ERRORS)) == (1, {})
        (tmp_path / "bin" / "plugin").write_text("#!/bin/sh\nexit 1\n")
        assert refused(one.actor, of("builder", "b"))[0] == "ErrImagePull"
        assert counts(one.actor, ERRORS) == {("plugin",): 1}


@pytest.mark.parametrize("required", [True, False])
def test_pod_without_account_is_asked_about_where_allowed(tmp_path: Path, required: bool) -> None:
    with world(tmp_path, {"requireServiceAccount": required}) as one:
        if required:
            assert refused(one.actor, of("", "static"))[0] == "ErrImagePull"
            assert one.runs() == []
        else:
            assert one.actor.ask(of("", "static")).pulled
            assert "serviceAccountToken" not in one.runs()[0]
            assert one.actor.peers["objects"].of(GetToken) == []


def test_present_image_is_for_pods_of_the_same_account(tmp_path: Path) -> None:
    with world(tmp_path, {}) as one:
        assert one.actor.ask(of("builder", "a")).pulled
        assert not one.actor.ask(of("builder", "b")).pulled
        assert one.actor.ask(of("reader", "c")).pulled, "another account has to show its credentials"
        assert not one.actor.ask(of("reader", "d")).pulled
        assert refused(one.actor, of("", "e"))[0] == "ErrImagePull"
        (record,) = records(one.actor, "pulled")
        (allowed,) = record["credentialMapping"].values()
        assert [each["name"] for each in allowed["kubernetesServiceAccounts"]] == ["builder", "reader"]
        assert "token" not in json.dumps(record)


def account(token: str = "t0ken", *, echoed: bool = False) -> Account:
    return Account(PullServiceAccount(namespace="ns", name="n", uid="u"), (), token, echoed)


def test_returned_token_is_refused_where_answers_are_shared() -> None:
    provider = CredentialProvider(name="p", api_version=ANSWER["apiVersion"], default_cache_duration="1h")
    output = json.dumps(ANSWER | {"auth": {"r.io": {"username": "u", "password": "t0ken"}}}).encode()
    assert providers.answer(provider, "r.io/a", output, account(echoed=True)).entries["r.io"].password == "t0ken"
    with pytest.raises(PluginError, match="needs cacheType Token") as raised:
        providers.answer(provider, "r.io/a", output, account())
    assert "t0ken" not in str(raised.value) + repr(account())


def test_cached_answers_of_accounts_and_of_none_are_apart() -> None:
    cache, kept = Cache(), Answer({"r.io": Credentials("u", "p")}, "r.io", 10)
    cache.put("p", kept, 0, account("one"))
    assert cache.get("p", "r.io/a", 5, account("two")) == kept.entries
    assert cache.get("p", "r.io/a", 5) is None
    assert cache.get("p", "r.io/a", 5, account("one", echoed=True)) is None


def test_required_annotations_must_be_there_and_others_are_left() -> None:
    wish = TokenAttributes(
        required_service_account_annotation_keys=("a",), optional_service_account_annotation_keys=("b", "c")
    )
    assert providers.annotations_for(wish, {"b": "2"}) is None
    assert providers.annotations_for(wish, {"d": "4", "b": "2", "a": "1"}) == (("a", "1"), ("b", "2"))
