"""Checks a run directory for commands that read its files, and need no running agent: an empty answer must be true."""

from __future__ import annotations

import os
from pathlib import Path

from supervisor.cli.errors import CommandError


def check(run_dir: str | Path, *below: str) -> None:
    """Raise CommandError when the directory does not exist, or it or one of `below` may not be read.

    An agent makes the directories `below` it when it needs them, so they may be absent.
    """
    _check(Path(run_dir), must_exist=True)
    for name in below:
        _check(Path(run_dir, name), must_exist=False)


def _check(directory: Path, *, must_exist: bool) -> None:
    try:
        with os.scandir(directory):
            return
    except FileNotFoundError:
        if must_exist:
            raise CommandError(
                f"cannot find an agent: there is no directory {directory}; start one, or name its run directory with "
                "--run-dir"
            ) from None
    except PermissionError as error:
        raise CommandError(
            f"cannot read {directory}: {error.strerror}; commands run as the user who started the agent"
        ) from error
    except OSError as error:
        raise CommandError(
            f"cannot read {directory}: {error.strerror}; name the run directory with --run-dir"
        ) from error
