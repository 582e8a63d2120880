"""Runs a credential provider plugin. Blocks: not for the mailbox thread."""

from __future__ import annotations

import os

from actors.image_pull.credentials import providers
from actors.image_pull.credentials.providers import Account, Answer, PluginRunError
from proto.common.machine import program
from proto.common.machine.program import OutputTooLongError
from proto.schema.credential_provider import CredentialProvider

TIMEOUT_S = 60.0
"""The kubelet's deadline: enough for a plugin that retries a cloud's service."""
MAX_ERROR_BYTES = 2048
"""The end of its standard error, which goes into the log. The rest is read and dropped."""


def run(
    bin_dir: str,
    provider: CredentialProvider,
    repository: str,
    account: Account | None = None,
    timeout_s: float = TIMEOUT_S,
) -> Answer:
    """Ask a plugin for the credentials of a repository, those of a service account if given.

    Raises PluginRunError, and PluginError for an answer that cannot be used.
    """
    who = f"error execing credential provider plugin {provider.name} for image {repository}"
    command = [os.path.join(bin_dir, provider.name), *provider.args]
    environment = os.environ | {one.name: one.value for one in provider.env or ()}
    request = providers.request(provider, repository, account)
    try:
        ended = program.run(command, environment, timeout_s, MAX_ERROR_BYTES, request)
    except TimeoutError:
        raise PluginRunError(f"{who}: context deadline exceeded") from None
    except OutputTooLongError:
        raise PluginRunError(f"{who}: it wrote more than {program.MAX_OUTPUT_BYTES} bytes") from None
    except (OSError, ValueError) as error:  # ValueError: a NUL in an argument
        raise PluginRunError(f"{who}: {getattr(error, 'strerror', None) or error}") from error
    if ended.code != 0:
        raise PluginRunError(f"{who}: exit status {ended.code}: {ended.errors}")
    return providers.answer(provider, repository, ended.output, account)
