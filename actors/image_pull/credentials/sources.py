"""Reads the credentials for a pull: the pod's pull Secrets, then the node's Docker configuration.

The node's files are read at every pull, so that an administrator's change holds for the next one. Source:
pkg/credentialprovider (config.go: preferred path, home, root; config.json before .dockercfg).
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress

from actors.image_pull import keyring
from actors.image_pull.keyring import Credentials, Entries, Keyring, KeyringError
from actors.image_pull.verification import PullSecret, credential_hash
from proto.pods.objects import ApiObject, ObjectRef

log = logging.getLogger(__name__)

MAX_FILE_BYTES = 1024 * 1024


def of_secrets(refs: Iterable[ObjectRef], found: dict[ObjectRef, ApiObject]) -> Keyring:
    """Keyring of a pod's pull Secrets, in their order. Raises KeyringError that names the Secret."""
    configurations = []
    for ref in refs:
        if ref in found:
            name = f"pull secret {ref.namespace}/{ref.name}"
            try:
                configurations.append(keyring.secret_entries(found[ref]))
            except KeyringError as error:
                raise KeyringError(f"cannot use {name}: {error}") from error
            _warn_of_more(configurations[-1], name)
    return Keyring(configurations)


def _warn_of_more(entries: Entries, name: str) -> None:
    """Log that `name` has more entries than are looked at."""
    if keyring.has_more(entries):
        log.warning("%s has more than %d registries; only these are looked at", name, keyring.MOST_ENTRIES)


def held_by(
    refs: Iterable[ObjectRef], found: Mapping[ObjectRef, ApiObject], repository: str
) -> dict[PullSecret, Credentials]:
    """Credentials for a repository by pull Secret, in their order; invalid Secrets are left out."""
    held = {}
    for ref in refs:
        secret = found.get(ref)
        with suppress(KeyringError):
            entries = keyring.secret_entries(secret) if secret is not None else {}
            for one in Keyring([entries]).lookup(repository):
                uid = secret.uid if secret is not None else ""
                hashed = credential_hash(one)
                held[PullSecret(namespace=ref.namespace, name=ref.name, uid=uid, credential_hash=hashed)] = one
    return held


def of_node(root_dir: str, home: str) -> Keyring:
    """Keyring of the first valid file of the node. Blocks."""
    for path, read in _places(root_dir, home):
        try:
            with open(path, "rb") as file:
                entries: Entries = read(file.read(MAX_FILE_BYTES))
        except FileNotFoundError:
            continue
        except OSError as error:
            log.warning("cannot read %s: %s; images are pulled without it", path, error.strerror)
            continue
        except KeyringError as error:
            log.warning("cannot use %s: %s; images are pulled without it", path, error)
            continue
        if entries:
            _warn_of_more(entries, path)
            return Keyring([entries])
    return Keyring()


def _places(root_dir: str, home: str) -> Iterator[tuple[str, keyring.Read]]:
    # The kubelet also reads its working directory; an actor's working directory has no meaning.
    for directory in (root_dir, os.path.join(home, ".docker") if home else "", "/.docker"):
        if directory:
            yield os.path.join(directory, "config.json"), keyring.docker_config_json
    for directory in (root_dir, home, "/"):
        if directory:
            yield os.path.join(directory, ".dockercfg"), keyring.docker_cfg
