"""`make check`: the linters, and the tests of what changed against main; in less than a minute.

With a package (`python -m tests.suite.check actors/probe`): the linters and the pure tests of that package.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from pathlib import Path

from tests.suite.affected import affected, of_package, read

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent
LINTERS = (("ruff", "check", "-q"), ("ruff", "format", "--check", "-q"), ("mypy",), ("lint-imports",))
BUDGET_S = 50.0
"""Time budget; tests that have not begun by then are left to `make test`."""
NO_TESTS = 5
"""pytest's exit code when it ran none."""


def main(arguments: list[str]) -> int:
    """0 when all is well."""
    began = time.monotonic()
    package = arguments[0].strip("/") if arguments else ""
    if package and not (ROOT / package).is_dir():
        print(f"cannot check {package}: there is no such directory; name one such as actors/probe", file=sys.stderr)
        return 2
    problems = [name for name, *rest in LINTERS if not _lint(name, *rest)]
    paths = of_package(package, read(ROOT)) if package else affected(changed(), read(ROOT))
    if not paths:
        print("No tests concern what changed. All tests: make test")
    elif not _test(paths, began, pure=bool(package)):
        problems.append("tests")
    print(f"{'Failed: ' + ', '.join(problems) if problems else 'All is well'}, {time.monotonic() - began:.0f} s.")
    return 1 if problems else 0


def changed() -> list[str]:
    """Files that differ from where this branch left main, and new ones."""
    base = next((found for name in ("main", "origin/main") if (found := _git("merge-base", "HEAD", name))), ["HEAD"])
    existing = [
        *_git("diff", "--name-only", "--no-renames", base[0]),
        *_git("ls-files", "--others", "--exclude-standard"),
    ]
    return sorted(set(existing))


def _git(*arguments: str) -> list[str]:
    if shutil.which("git") is None:
        return []
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.splitlines() if done.returncode == 0 else []


def _lint(name: str, *arguments: str) -> bool:
    done = subprocess.run([BIN / name, *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        print(f"{done.stdout}{done.stderr}", end="")
    print(f"{name} {' '.join(arguments)}: {'failed' if done.returncode else 'ok'}", flush=True)
    return done.returncode == 0


def _test(paths: list[str], began: float, *, pure: bool) -> bool:
    left_s = max(5.0, BUDGET_S - (time.monotonic() - began))
    command = [BIN / "pytest", "--target=test", f"--budget-s={left_s:.0f}", "-q", *paths]
    command += ["-m", "pure"] if pure else ["-n", "3", "--dist", "loadgroup", "--no-loadscope-reorder"]
    return subprocess.run(command, cwd=ROOT, check=False).returncode in (0, NO_TESTS)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
