"""Asks the node's credential providers for the credentials of a repository; concurrent pulls share one call."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

from actors._base import Actor, Task, gather
from actors._metrics import kubelet as metrics
from actors._objects.fetch import fetch
from actors._objects.peer import objects_of
from actors.image_pull.credentials import exec_provider, providers
from actors.image_pull.credentials.providers import Account, Answer, PluginError, PluginRunError
from actors.image_pull.keyring import MOST_ENTRIES, Credentials, Entries, Keyring, has_more
from actors.image_pull.verification import PullServiceAccount
from proto.pods.objects import GetToken, ObjectRef
from proto.schema import credential_provider
from proto.schema.credential_provider import CredentialProvider, ProviderConfigError, TokenAttributes
from proto.wire.errors import ActorError, AskTimeout, Refused

log = logging.getLogger(__name__)

MARGIN_S = 5.0
"""Time to kill a plugin and to read its output, after its deadline."""


TOKEN_S = 15.0


class PodIdentity(NamedTuple):
    """The pod that an image is for. `service_account`: empty for a pod without one, such as a static pod."""

    namespace: str
    name: str
    uid: str
    service_account: str


class PluginCredentials(NamedTuple):
    """Answers of the providers. `accounts`: the service accounts whose tokens gave credentials."""

    keyring: Keyring
    accounts: Mapping[Credentials, PullServiceAccount]


class Plugins:
    """The providers and a cache of their answers, in memory only. Runs in the actor's mailbox thread."""

    def __init__(self, actor: Actor, path: str, bin_dir: str) -> None:
        self._actor = actor
        self._bin_dir = bin_dir
        self._cache = providers.Cache()
        self._asked: dict[tuple[str, str, Account | None], Task[Entries]] = {}
        self._providers: tuple[CredentialProvider, ...] = ()
        try:
            self._providers = credential_provider.load(path, bin_dir)
        except ProviderConfigError as error:
            # It was valid at the agent's start; pulls that need no provider go on.
            log.error("cannot use the credential providers: %s; repair the configuration and restart image_pull", error)

    def describe(self) -> list[dict[str, Any]]:
        """Names of the providers, with their image patterns."""
        return [{"name": one.name, "matchImages": list(one.match_images)} for one in self._providers]

    async def credentials(self, repository: str, pod: PodIdentity) -> PluginCredentials:
        """Credentials from the providers of a repository; a failure is logged and gives none."""
        chosen = providers.chosen(self._providers, repository)
        tasks = [self._actor.spawn(self._of(one, repository, pod), "credential_provider") for one in chosen]
        found = [each for each in await gather(*tasks) if each is not None]
        accounts: dict[Credentials, PullServiceAccount] = {}
        for entries, account in found:
            if account is not None:
                accounts |= dict.fromkeys(Keyring([entries]).lookup(repository), account.reference)
        return PluginCredentials(Keyring(entries for entries, _ in found), accounts)

    async def _of(
        self, provider: CredentialProvider, repository: str, pod: PodIdentity
    ) -> tuple[Entries, Account | None] | None:
        """A provider's entries, and the service account that they are for; None without an answer."""
        attributes, account = provider.token_attributes, None
        if attributes is not None and not pod.service_account and attributes.require_service_account:
            return None
        try:
            if attributes is not None and pod.service_account:
                account = await self._account(attributes, pod)
                if account is None:
                    return None
            return await self._entries(provider, repository, account), account
        except (PluginError, AskTimeout) as error:
            log.error("Failed getting credential from external registry credential provider: %s", error)
        except ActorError as error:
            log.error("cannot ask credential provider %s for pod %s/%s: %s", provider.name, *pod[:2], error)
        return None

    async def _account(self, attributes: TokenAttributes, pod: PodIdentity) -> Account | None:
        """The pod's service account with a token; None when it lacks a required annotation. Raises ActorError."""
        objects = objects_of(self._actor)
        ref = ObjectRef(kind="ServiceAccount", namespace=pod.namespace, name=pod.service_account)
        found = (await fetch(objects, [ref])).get(ref)
        if found is None:
            raise Refused("NotFound", f"there is no service account {pod.namespace}/{pod.service_account}")
        meta = found.document["metadata"]
        annotations = providers.annotations_for(attributes, meta.get("annotations") or {})
        if annotations is None:
            return None  # the account has not opted in
        wish = GetToken(
            namespace=pod.namespace, service_account=pod.service_account, account_uid=meta["uid"],
            pod_name=pod.name, pod_uid=pod.uid, audiences=(attributes.service_account_token_audience,),
        )  # fmt: skip
        token = (await objects.ask(wish, TOKEN_S)).token
        reference = PullServiceAccount(namespace=pod.namespace, name=pod.service_account, uid=meta["uid"])
        return Account(reference, annotations, token, echoed=attributes.cache_type == "Token")

    def _entries(self, provider: CredentialProvider, repository: str, account: Account | None) -> Task[Entries]:
        key = (provider.name, repository, account)
        task = self._asked.get(key)
        if task is None:
            task = self._actor.spawn(self._ask(provider, repository, account), "ask credential_provider")
            if not task.done():
                self._asked[key] = task
        return task

    async def _ask(self, provider: CredentialProvider, repository: str, account: Account | None) -> Entries:
        kept = self._cache.get(provider.name, repository, time.monotonic(), account)
        if kept is not None:
            return kept
        began = time.monotonic()
        try:
            limit_s = exec_provider.TIMEOUT_S + MARGIN_S
            request = (self._bin_dir, provider, repository, account)
            answer: Answer = await self._actor.blocking(limit_s, exec_provider.run, *request)
        except (PluginRunError, AskTimeout):
            metrics.CREDENTIAL_PLUGIN_ERRORS.inc(provider.name)
            raise
        finally:
            metrics.CREDENTIAL_PLUGIN_SECONDS.observe(time.monotonic() - began, provider.name)
            self._asked.pop((provider.name, repository, account), None)
        if has_more(answer.entries):
            words = "credential provider %s gives more than %d registries; only these are looked at"
            log.warning(words, provider.name, MOST_ENTRIES)
        self._cache.put(provider.name, answer, time.monotonic(), account)
        return answer.entries
