"""Coverage-guided runs: libFuzzer through Atheris, a process for each target, as many at a time as there are cores."""

from __future__ import annotations

import concurrent.futures
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from tests.fuzz.guard import DEADLINE_S, Guard
from tests.fuzz.mutation import MOST_BYTES
from tests.fuzz.target import Target

MARGIN_S = 300.0
"""For a run to start and end beside its time: instrumented imports are slow, and `Guard` ends an input that hangs."""
PACKAGES = ("actors", "proto", "supervisor", "tarfile", "h11", "yaml", "wsproto")
"""Packages whose branches guide the mutations."""


def fuzz(target: Target, seconds: int, artifacts: Path) -> NoReturn:
    """Fuzz one target until the time is over or a finding; ends the process. `instrument` must have run."""
    import atheris  # noqa: PLC0415 - only this command needs it

    guard = Guard(target, artifacts)

    with tempfile.TemporaryDirectory(prefix="nv-fuzz-") as directory:
        corpus = Path(directory, "corpus")
        corpus.mkdir()
        for number, data in enumerate(target.inputs()):
            (corpus / str(number)).write_bytes(data)
        words = Path(directory, "words")
        words.write_text("".join(f'"{_escaped(word)}"\n' for word in target.tokens))
        atheris.Setup(
            [
                sys.argv[0],
                f"-max_total_time={seconds}",
                f"-max_len={MOST_BYTES}",
                f"-timeout={DEADLINE_S:.0f}",
                f"-artifact_prefix={artifacts}/{target.name}-",
                f"-dict={words}",
                "-rss_limit_mb=2048",
                "-verbosity=0",
                str(corpus),
            ],
            guard.feed,
        )
        atheris.Fuzz()
    sys.exit(0)


def instrument() -> None:
    """Have what is imported from here on tell its branches to libFuzzer."""
    import atheris  # noqa: PLC0415 - only this command needs it

    finder = atheris.instrument_imports(include=list(PACKAGES))
    finder.__enter__()


def fuzz_all(names: Sequence[str], seconds: float, artifacts: Path) -> int:
    """Fuzz the targets for `seconds` in all; prints a line for each. 1 if any had a finding, else 0."""
    cores = os.cpu_count() or 1
    each = max(1, int(seconds * min(cores, len(names)) / len(names)))
    artifacts.mkdir(parents=True, exist_ok=True)
    with concurrent.futures.ThreadPoolExecutor(cores) as pool:
        results = list(pool.map(lambda name: _guided(name, each, artifacts), names))
    return int(any(results))


def _guided(name: str, seconds: int, artifacts: Path) -> bool:
    log = artifacts / f"{name}.log"
    command = [sys.executable, "-m", "tests.fuzz.guided", name, str(seconds), str(artifacts)]
    # libFuzzer ends the process without its clean-up, so what it writes is in a directory of this process.
    with log.open("wb") as output, tempfile.TemporaryDirectory(prefix="nv-fuzz-") as scratch:
        environment = {**os.environ, "TMPDIR": scratch}
        try:
            code = subprocess.run(
                command, stdout=output, stderr=output, timeout=seconds + MARGIN_S, check=False, env=environment
            )
            failed, how = code.returncode != 0, f"exit code {code.returncode}"
        except subprocess.TimeoutExpired:
            failed, how = True, "it does not end"
    result = f"FINDING ({how}), see {log}" if failed else "no finding"
    print(f"{name:20} {seconds} s  {result}", flush=True)
    return failed


def _escaped(word: bytes) -> str:
    return "".join(f"\\x{byte:02x}" for byte in word[:64])
