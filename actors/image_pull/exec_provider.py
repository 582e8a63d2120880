"""Runs a credential provider plugin. Blocks: not for the mailbox thread."""

from __future__ import annotations

import os
import subprocess
import time

from actors.image_pull import providers
from actors.image_pull.providers import Account, Answer, PluginRunError
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
    # A file in memory: a pipe could block here, for a plugin that reads nothing.
    with open(os.memfd_create("request"), "w+b") as request:
        request.write(providers.request(provider, repository, account))
        request.seek(0)
        try:
            process = subprocess.Popen(
                [os.path.join(bin_dir, provider.name), *provider.args],
                stdin=request,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=os.environ | {one.name: one.value for one in provider.env or ()},
                start_new_session=True,
                bufsize=0,
            )
        except OSError as error:
            raise PluginRunError(f"{who}: {error.strerror}") from error
    try:
        output, errors = program.output(process, time.monotonic() + timeout_s, MAX_ERROR_BYTES)
    except TimeoutError:
        raise PluginRunError(f"{who}: context deadline exceeded") from None
    except OutputTooLongError:
        raise PluginRunError(f"{who}: it wrote more than {program.MAX_OUTPUT_BYTES} bytes") from None
    except OSError as error:
        raise PluginRunError(f"{who}: {error.strerror}") from error
    finally:
        program.end(process)
    if process.returncode != 0:
        said = errors.decode(errors="replace").strip()
        raise PluginRunError(f"{who}: exit status {process.returncode}: {said}")
    return providers.answer(provider, repository, output, account)
