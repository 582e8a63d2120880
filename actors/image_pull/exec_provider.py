"""Runs a credential provider plugin. Blocks: not for the mailbox thread."""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import suppress

from actors.image_pull import providers
from actors.image_pull.providers import Account, Answer, PluginError
from proto.schema.credential_provider import CredentialProvider

TIMEOUT_S = 60.0
"""The kubelet's deadline: enough for a plugin that retries a cloud's service."""
MAX_OUTPUT_BYTES = 1024 * 1024
MAX_ERROR_BYTES = 2048
"""Limit of its standard error, which goes into the log."""


def run(
    bin_dir: str,
    provider: CredentialProvider,
    repository: str,
    account: Account | None = None,
    timeout_s: float = TIMEOUT_S,
) -> Answer:
    """Ask a plugin for the credentials of a repository, those of a service account if given. Raises PluginError."""
    who = f"error execing credential provider plugin {provider.name} for image {repository}"
    # Files in memory instead of pipes: a child that outlives the plugin could keep a pipe open.
    with (
        open(os.memfd_create("request"), "w+b") as request,
        open(os.memfd_create("answer"), "w+b") as output,
        open(os.memfd_create("errors"), "w+b") as errors,
    ):
        request.write(providers.request(repository, account))
        request.seek(0)
        try:
            process = subprocess.Popen(
                [os.path.join(bin_dir, provider.name), *provider.args],
                stdin=request,
                stdout=output,
                stderr=errors,
                env=os.environ | {one.name: one.value for one in provider.env or ()},
                start_new_session=True,
            )
        except OSError as error:
            raise PluginError(f"{who}: {error.strerror}") from error
        try:
            code = process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise PluginError(f"{who}: context deadline exceeded") from None
        if code != 0:
            errors.seek(0)
            said = errors.read(MAX_ERROR_BYTES).decode(errors="replace").strip()
            raise PluginError(f"{who}: exit status {code}: {said}")
        output.seek(0)
        return providers.answer(provider, repository, output.read(MAX_OUTPUT_BYTES), account)
