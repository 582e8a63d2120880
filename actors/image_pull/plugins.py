"""Asks the node's credential providers for the credentials of a repository; concurrent pulls share one call."""

from __future__ import annotations

import logging
import time
from typing import Any

from actors._base import Actor, Task, gather
from actors._metrics import kubelet as metrics
from actors.image_pull import exec_provider, providers
from actors.image_pull.keyring import Entries, Keyring
from actors.image_pull.providers import Answer, PluginError
from proto.schema import credential_provider
from proto.schema.credential_provider import CredentialProvider, ProviderConfigError
from proto.wire.errors import AskTimeout

log = logging.getLogger(__name__)

MARGIN_S = 5.0
"""Time to kill a plugin and to read its output, after its deadline."""


class Plugins:
    """The providers and a cache of their answers, in memory only. Runs in the actor's mailbox thread."""

    def __init__(self, actor: Actor, path: str, bin_dir: str) -> None:
        self._actor = actor
        self._bin_dir = bin_dir
        self._cache = providers.Cache()
        self._asked: dict[tuple[str, str], Task[Entries]] = {}
        self._providers: tuple[CredentialProvider, ...] = ()
        try:
            self._providers = credential_provider.load(path, bin_dir)
        except ProviderConfigError as error:
            # It was valid at the agent's start; pulls that need no provider go on.
            log.error("cannot use the credential providers: %s; repair the configuration and restart image_pull", error)

    def describe(self) -> list[dict[str, Any]]:
        """Names of the providers, with their image patterns."""
        return [{"name": one.name, "matchImages": list(one.match_images)} for one in self._providers]

    async def keyring(self, repository: str) -> Keyring:
        """Credentials from the providers of a repository; a failure is logged and gives none."""
        chosen = providers.chosen(self._providers, repository)
        if not chosen:
            return Keyring()
        return Keyring(await gather(*[self._entries(provider, repository) for provider in chosen]))

    def _entries(self, provider: CredentialProvider, repository: str) -> Task[Entries]:
        key = (provider.name, repository)
        task = self._asked.get(key)
        if task is None:
            task = self._actor.spawn(self._ask(provider, repository), "credential_provider")
            if not task.done():
                self._asked[key] = task
        return task

    async def _ask(self, provider: CredentialProvider, repository: str) -> Entries:
        kept = self._cache.get(provider.name, repository, time.monotonic())
        if kept is not None:
            return kept
        began = time.monotonic()
        try:
            limit_s = exec_provider.TIMEOUT_S + MARGIN_S
            answer: Answer = await self._actor.blocking(limit_s, exec_provider.run, self._bin_dir, provider, repository)
        except (PluginError, AskTimeout) as error:
            log.error("Failed getting credential from external registry credential provider: %s", error)
            metrics.CREDENTIAL_PLUGIN_ERRORS.inc(provider.name)
            return {}
        finally:
            metrics.CREDENTIAL_PLUGIN_SECONDS.observe(time.monotonic() - began, provider.name)
            self._asked.pop((provider.name, repository), None)
        self._cache.put(provider.name, answer, time.monotonic())
        return answer.entries
