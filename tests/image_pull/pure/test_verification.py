"""Permission to use a present image."""

import hashlib
import os
import time
import types
from collections.abc import Callable, Coroutine, Generator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from actors._base import Actor
from actors._cri import image_reference
from actors.image_pull import verification
from actors.image_pull.keyring import Credentials
from actors.image_pull.ledger import Ledger
from actors.image_pull.records import Loaded, Records, file_name
from actors.image_pull.verification import (
    ALLOWED,
    PullCredentials,
    PulledRecord,
    PullSecret,
    PullServiceAccount,
    matching_secret,
    may_use,
    merged,
)

REPOSITORY = "registry.example/team/app"
NOW = 1_800_000_000.0


def secret(name: str = "hub", content: str = "x", uid: str = "u1") -> PullSecret:
    return PullSecret(namespace="default", name=name, uid=uid, credential_hash=content)


def record(allowed: PullCredentials | None = None) -> PulledRecord:
    return merged(None, "sha256:1", REPOSITORY, allowed, NOW)


ANYBODY = PullCredentials(node_pods_accessible=True)
BY_SECRET = PullCredentials(kubernetes_secrets=(secret(),))
ACCOUNT = PullServiceAccount(namespace="default", name="builder", uid="u9")
BY_ACCOUNT = PullCredentials(kubernetes_service_accounts=(ACCOUNT,))


@pytest.mark.parametrize(
    ("policy", "is_pulled", "allowed", "answer"),
    [
        ("", True, None, "yes"),
        ("NeverVerify", True, None, "yes"),
        ("NeverVerifyPreloadedImages", False, None, "yes"),
        ("NeverVerifyPreloadedImages", True, None, "no"),
        ("NeverVerifyPreloadedImages", True, ANYBODY, "recorded"),
        ("NeverVerifyPreloadedImages", True, BY_SECRET, "credentials"),
        ("AlwaysVerify", True, BY_ACCOUNT, "credentials"),
        ("AlwaysVerify", False, None, "no"),
        ("AlwaysVerify", True, ANYBODY, "recorded"),
        ("AlwaysVerify", True, PullCredentials(), "no"),
        ("NeverVerifyAllowlistedImages", True, None, "no"),
        ("NeverVerifyAllowlistedImages", True, ANYBODY, "recorded"),
        ("NeverVerifyAllowlistedImages", True, BY_SECRET, "credentials"),
    ],
)
def test_policy_and_record_decide_about_a_present_image(
    policy: verification.Policy, is_pulled: bool, allowed: PullCredentials | None, answer: str
) -> None:
    found = record(allowed) if allowed is not None else None
    assert may_use(policy, ("other.example/*",), REPOSITORY, found, is_pulled=is_pulled) == answer


@pytest.mark.parametrize(
    ("policy", "allowed", "answer"),
    [
        ("NeverVerify", None, "unreadable"),
        ("NeverVerifyPreloadedImages", None, "unreadable"),
        ("AlwaysVerify", None, "unreadable"),
        ("AlwaysVerify", ANYBODY, "recorded"),
        ("AlwaysVerify", PullCredentials(), "no"),
    ],
)
def test_damaged_files_count_only_without_a_record(
    policy: verification.Policy, allowed: PullCredentials | None, answer: str
) -> None:
    found = record(allowed) if allowed is not None else None
    assert may_use(policy, (), REPOSITORY, found, is_pulled=True, is_unreadable=True) == answer


@pytest.mark.parametrize(
    ("pattern", "allowed"),
    [
        (REPOSITORY, True),
        ("registry.example/team/*", True),
        ("registry.example/*", True),
        ("registry.example/team", False),
        ("registry.example/tea/*", False),
        ("registry.example/team/app/*", False),
    ],
)
def test_allowlist_matches_repositories_and_path_prefixes(pattern: str, allowed: bool) -> None:
    answer = may_use("NeverVerifyAllowlistedImages", (pattern,), REPOSITORY, None, is_pulled=True)
    assert answer == ("yes" if allowed else "no")


def test_record_of_one_repository_does_not_hold_for_another() -> None:
    assert may_use("AlwaysVerify", (), "other.example/app", record(ANYBODY), is_pulled=True) == "no"


@pytest.mark.parametrize(
    ("own", "opens"),
    [
        (secret(), True),
        (secret("copy", "x", "u2"), True),
        (secret("hub", "rotated"), True),
        (secret("other", "y", "u2"), False),
        (secret("hub", "y", "u2"), False),
        (PullSecret(namespace="default", name="other", uid="u2", credential_hash=""), False),
    ],
    ids=["the same", "same content", "changed content", "another", "a namesake made anew", "without a hash"],
)
def test_secret_matches_a_record_by_name_or_content(own: PullSecret, opens: bool) -> None:
    assert (matching_secret(record(BY_SECRET), REPOSITORY, [own]) == own) is opens


def test_changed_secret_matches_no_record_that_takes_no_more() -> None:
    """As in the kubelet: the new content would not be recorded."""
    full = tuple(secret(f"s{number}", f"x{number}") for number in range(verification.MOST_SECRETS))
    nearly, known = (
        record(PullCredentials(kubernetes_secrets=full[1:])),
        record(PullCredentials(kubernetes_secrets=full)),
    )
    assert matching_secret(nearly, REPOSITORY, [secret("s1", "new")]) == secret("s1", "new")
    assert matching_secret(known, REPOSITORY, [secret("s1", "new")]) is None
    assert matching_secret(known, REPOSITORY, [secret("s1", "x1")]) == secret("s1", "x1")


def test_first_secret_of_the_pod_with_used_content_is_recorded() -> None:
    used, other = Credentials("u", "p"), Credentials("v", "q")
    held = {secret("c"): other, secret("b"): used, secret("a"): used}
    assert verification.pull_credentials(used, held, {}) == PullCredentials(kubernetes_secrets=(secret("b"),))


def test_merged_secrets_add_up_and_node_access_replaces_them() -> None:
    first = record(BY_SECRET)
    same = merged(first, "sha256:1", REPOSITORY, BY_SECRET, NOW + 60)
    assert same is first
    both = merged(
        first, "sha256:1", REPOSITORY, PullCredentials(kubernetes_secrets=(secret("a", "z", "u2"),)), NOW + 60
    )
    assert [one.name for one in both.credential_mapping[REPOSITORY].kubernetes_secrets] == ["a", "hub"]
    assert both.last_updated_time > first.last_updated_time
    rotated = merged(
        both, "sha256:1", REPOSITORY, PullCredentials(kubernetes_secrets=(secret("hub", "new"),)), NOW + 61
    )
    hashes = [one.credential_hash for one in rotated.credential_mapping[REPOSITORY].kubernetes_secrets]
    assert hashes == ["z", "new"]
    for_all = merged(rotated, "sha256:1", REPOSITORY, ANYBODY, NOW + 62)
    assert for_all.credential_mapping[REPOSITORY] == ANYBODY
    assert merged(for_all, "sha256:1", REPOSITORY, BY_SECRET, NOW + 63) is for_all


def test_node_credentials_allow_the_image_to_all_pods() -> None:
    used, other = Credentials("u", "p"), Credentials("v", "q")
    assert verification.pull_credentials(None, {}, {}) == ANYBODY
    assert verification.pull_credentials(used, {secret(): other}, {}) == ANYBODY
    assert verification.pull_credentials(used, {secret(): used}, {used: ACCOUNT}) == BY_SECRET
    assert verification.pull_credentials(used, {}, {used: ACCOUNT}) == BY_ACCOUNT
    assert verification.pull_credentials(used, {}, {other: ACCOUNT}) == ANYBODY


def test_merged_accounts_add_up_beside_secrets() -> None:
    both = merged(record(BY_SECRET), "sha256:1", REPOSITORY, BY_ACCOUNT, NOW + 1)
    allowed = both.credential_mapping[REPOSITORY]
    assert (allowed.kubernetes_secrets, allowed.kubernetes_service_accounts) == ((secret(),), (ACCOUNT,))
    assert merged(both, "sha256:1", REPOSITORY, BY_ACCOUNT, NOW + 2) is both


def test_the_hash_of_credentials_is_that_of_gos_json() -> None:
    expected = hashlib.sha256(b'{"username":"u","password":"\\u003cp\\u003e"}').hexdigest()
    assert verification.credential_hash(Credentials("u", "<p>")) == expected


def test_records_are_the_kubelets_files(tmp_path: Path) -> None:
    records = Records(str(tmp_path))
    records.write_intent("busybox")
    records.write_pulled(record(BY_SECRET))
    pulling, pulled = tmp_path / "image_manager/pulling", tmp_path / "image_manager/pulled"
    assert [one.name for one in pulling.iterdir()] == [file_name("busybox")]
    assert (pulling / file_name("busybox")).read_text() == (
        '{"kind":"ImagePullIntent","apiVersion":"kubelet.config.k8s.io/v1beta1","image":"busybox"}'
    )
    assert (pulled / file_name("sha256:1")).read_text() == (
        '{"kind":"ImagePulledRecord","apiVersion":"kubelet.config.k8s.io/v1beta1",'
        '"lastUpdatedTime":"2027-01-15T08:00:00Z","imageRef":"sha256:1","credentialMapping":{"registry.example/team/app":'
        '{"kubernetesSecrets":[{"namespace":"default","name":"hub","uid":"u1","credentialHash":"x"}]}}}'
    )
    assert pulled.stat().st_mode & 0o777 == 0o700
    assert (pulled / file_name("sha256:1")).stat().st_mode & 0o777 == 0o600
    (pulled / "sha256-00.tmp").write_text("half")
    (pulled / file_name("sha256:2")).write_text('{"kind":"ImagePulledRecord","apiVersion":"other/v1"}')
    (pulled / file_name("sha256:3")).write_text("{")
    loaded = Records(str(tmp_path)).load()
    assert loaded.intents == {"busybox"}
    assert loaded.pulled == {"sha256:1": record(BY_SECRET)}
    assert (set(loaded.broken), loaded.unread) == ({file_name("sha256:2"), file_name("sha256:3")}, False)
    records.delete_intent("busybox")
    records.delete_intent("busybox")
    records.delete_pulled("sha256:1")
    assert not list(pulling.iterdir())


def test_records_that_cannot_be_read_are_told_from_missing_ones(tmp_path: Path) -> None:
    records = Records(str(tmp_path))
    assert records.load() == Loaded()
    names = {file_name(one) for one in ("sha256:1", "busybox", "empty")}
    (tmp_path / "image_manager/pulled" / file_name("sha256:1")).mkdir()
    os.mkfifo(tmp_path / "image_manager/pulling" / file_name("busybox"))
    (tmp_path / "image_manager/pulling" / file_name("empty")).touch()
    assert records.write_intent("empty") is False
    loaded = records.load()
    assert (loaded.intents, loaded.pulled, set(loaded.broken), loaded.unread) == (set(), {}, names, True)


def test_failed_write_leaves_no_temporary_file(tmp_path: Path) -> None:
    records, pulled = Records(str(tmp_path)), tmp_path / "image_manager/pulled"
    (pulled / file_name("sha256:1")).mkdir(parents=True)
    with pytest.raises(IsADirectoryError):
        records.write_pulled(record(BY_SECRET))
    assert [one.name for one in pulled.iterdir()] == [file_name("sha256:1")]


IMAGE = f"{REPOSITORY}:1"
GOOD = f"""{{"kind": "ImagePulledRecord", "apiVersion": "kubelet.config.k8s.io/v1alpha1", "imageRef": "sha256:1",
"lastUpdatedTime": "2026-01-01T01:00:00+01:00",
"credentialMapping": {{"{REPOSITORY}": {{"nodePodsAccessible": true}}}}}}"""
INTENT = f"""{{"kind": "ImagePullIntent", "apiVersion": "kubelet.config.k8s.io/v1beta1", "image": "{IMAGE}"}}"""


class Direct:
    """An actor of a ledger, whose file operations run at once."""

    def __init__(self, root_dir: Path) -> None:
        self.settings = SimpleNamespace(root_dir=str(root_dir))

    async def blocking(self, _seconds: float, act: Callable[..., object], *args: object) -> object:
        return act(*args)


def run(call: Coroutine[Any, Any, None]) -> None:
    with suppress(StopIteration):
        while True:
            call.send(None)


@types.coroutine
def pause() -> Generator[None, None, None]:
    """Let other calls go on."""
    yield


def loaded_ledger(root_dir: Path, policy: verification.Policy, pulled: str, pulling: str) -> Ledger:
    for folder, key, content in (("pulled", "sha256:1", pulled), ("pulling", IMAGE, pulling)):
        (root_dir / "image_manager" / folder).mkdir(parents=True)
        if content:
            (root_dir / "image_manager" / folder / file_name(key)).write_text(content)
    ledger = Ledger(cast("Actor", Direct(root_dir)), policy, (REPOSITORY,))
    run(ledger.load())
    return ledger


POLICIES: tuple[verification.Policy, ...] = (
    "NeverVerify", "NeverVerifyPreloadedImages", "NeverVerifyAllowlistedImages", "AlwaysVerify"
)  # fmt: skip
FILES = {
    "none": ("", "", "use use use pull"),
    "a record": (GOOD, "", "use use use use"),
    "of another repository": (GOOD.replace(REPOSITORY, "other.example/app"), "", "use pull use pull"),
    "of another image": (GOOD.replace("sha256:1", "sha256:2"), "", "use use use pull"),
    "without an image": (GOOD.replace('"imageRef": "sha256:1",', ""), "", "use use use pull"),
    "damaged": ("{", "", "pull pull pull pull"),
    "of another version": (GOOD.replace("v1alpha1", "v2"), "", "pull pull pull pull"),
    "without a version": (
        GOOD.replace('"apiVersion": "kubelet.config.k8s.io/v1alpha1",', ""),
        "",
        "pull pull pull pull",
    ),
    "without a kind": (GOOD.replace('"kind": "ImagePulledRecord",', ""), "", "pull pull pull pull"),
    "of another kind": (INTENT, "", "pull pull pull pull"),
    "with an unknown field": (GOOD.replace("lastUpdatedTime", "updated"), "", "pull pull pull pull"),
    "with an unknown credential": (GOOD.replace("nodePodsAccessible", "x"), "", "pull pull pull pull"),
    "with an invalid time": (GOOD.replace("2026-01-01", "2026-13-01"), "", "pull pull pull pull"),
    "an intent": ("", INTENT, "use pull use pull"),
    "a damaged intent": ("", "{", "pull pull pull pull"),
    "of another version's intent": ("", INTENT.replace("v1beta1", "v2"), "pull pull pull pull"),
    "a record beside a damaged intent": (GOOD, "{", "use use use use"),
    "damaged beside an intent": ("{", INTENT, "pull pull pull pull"),
}


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("files", FILES)
def test_files_and_policies_decide_as_in_the_kubelet(tmp_path: Path, policy: verification.Policy, files: str) -> None:
    """MustAttemptImagePull: an error pulls before the policy is asked."""
    pulled, pulling, expected = FILES[files]
    ledger = loaded_ledger(tmp_path, policy, pulled, pulling)
    found = "use" if ledger.may_use(IMAGE, image_reference.parse(IMAGE), "sha256:1") in ALLOWED else "pull"
    assert found == expected.split()[POLICIES.index(policy)]


def test_damaged_intent_does_not_count_during_a_pull(tmp_path: Path) -> None:
    ledger, ref = loaded_ledger(tmp_path, "NeverVerify", "", "{"), image_reference.parse(IMAGE)
    run(ledger.begin(IMAGE))
    assert ledger.may_use(IMAGE, ref, "sha256:1") == "yes"
    run(ledger.failed(IMAGE))
    assert ledger.may_use(IMAGE, ref, "sha256:1") == "unreadable"


def test_record_of_a_pull_during_the_removal_of_others_stays(tmp_path: Path) -> None:
    """Without it, a later process takes the image for a preloaded one, which each pod may use."""
    ids = {"sha256:1", "sha256:2"}
    ledger, ref = loaded_ledger(tmp_path, "NeverVerifyPreloadedImages", GOOD, ""), image_reference.parse(IMAGE)
    directory = tmp_path / "image_manager" / "pulled"
    (directory / file_name("sha256:2")).write_text(GOOD.replace("sha256:1", "sha256:2"))
    run(ledger.load())
    run(ledger.begin(IMAGE))
    calls: list[Coroutine[Any, Any, None]] = [ledger.prune((), time.time())]
    removed: list[str] = []

    async def slowly(_seconds: float, act: Callable[..., object], key: Any) -> object:
        """While the first record is removed, a pull of the other image ends."""
        if not removed:
            removed.append(key)
            calls.append(ledger.succeeded(IMAGE, ref, min(ids - {key}), None, {}, {}))
            await pause()
        return act(key)

    cast("Any", ledger)._actor.blocking = slowly
    while calls:
        for call in reversed(calls):
            try:
                call.send(None)
            except StopIteration:
                calls.remove(call)
    assert [path.name for path in directory.iterdir()] == [file_name(min(ids - set(removed)))]
    assert ledger.describe()["pulled"] == 1


def test_record_of_an_image_that_was_pulled_after_the_list_stays(tmp_path: Path) -> None:
    """The pull leaves the record as it is, with the time of an earlier pull."""
    ledger, ref = loaded_ledger(tmp_path, "NeverVerifyPreloadedImages", GOOD, ""), image_reference.parse(IMAGE)
    looked = time.time()
    run(ledger.begin(IMAGE))
    run(ledger.succeeded(IMAGE, ref, "sha256:1", None, {}, {}))
    run(ledger.prune((), looked))
    assert ledger.describe()["pulled"] == 1
    run(ledger.prune((), looked + 60))
    assert ledger.describe()["pulled"] == 0


def test_records_are_dropped_once_when_two_lists_come(tmp_path: Path) -> None:
    ledger = loaded_ledger(tmp_path, "NeverVerifyPreloadedImages", GOOD, "")
    (tmp_path / "image_manager" / "pulled" / file_name("sha256:2")).write_text(GOOD.replace("sha256:1", "sha256:2"))
    run(ledger.load())

    async def slowly(_seconds: float, act: Callable[..., object], key: Any) -> object:
        await pause()
        return act(key)

    cast("Any", ledger)._actor.blocking = slowly
    calls = [ledger.prune((), time.time()), ledger.prune((), time.time())]
    while calls:
        for call in reversed(calls):
            try:
                call.send(None)
            except StopIteration:
                calls.remove(call)
    assert ledger.describe()["pulled"] == 0


@pytest.mark.parametrize(
    ("intent", "found"),
    [("busybox", True), ("docker.io/library/busybox:latest", True), ("busybox:1", False), ("not an image", False)],
)
def test_pull_intent_matches_any_name_of_the_image(intent: str, found: bool) -> None:
    assert verification.images_of([intent], ["docker.io/library/busybox:latest"]) == ([intent] if found else [])


def test_record_goes_with_its_image_unless_newer_than_the_list() -> None:
    young = record(ANYBODY)
    assert verification.is_unknown(young, frozenset(), NOW + 60)
    assert not verification.is_unknown(young, frozenset({"sha256:1"}), NOW + 60)
    assert not verification.is_unknown(young, frozenset(), NOW)
