"""Finds the test modules for changed files: their importers, and the folders of their packages."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path, PurePosixPath

SOURCES = ("actors", "supervisor", "proto")


def folder_of(package: str) -> str:
    """The folder below tests/ of a package: "probe" for "actors/probe", "kube" for "actors/_kube"."""
    return PurePosixPath(package).name.lstrip("_")


def module_name(path: str) -> str:
    """The module in a file: "actors.probe.policy" for "actors/probe/policy.py"; a package for its __init__.py."""
    parts = PurePosixPath(path).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(source: str) -> set[str]:
    """Modules that a file imports by name, and, of `from M import N`, also M.N, which may be one."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


def read(root: Path) -> dict[str, set[str]]:
    """Return path below `root` to the imports of each Python file below tests/."""
    paths = sorted((root / "tests").rglob("*.py"))
    return {path.relative_to(root).as_posix(): imports(path.read_text(encoding="utf-8")) for path in paths}


def affected(changed: Iterable[str], imported: Mapping[str, Collection[str]]) -> list[str]:
    """Test modules to run for changed files, as sorted paths.

    These are the changed ones, the importers of a changed module, and all in the folder of a changed package. An
    import of a test helper through another helper counts, too. An import of changed code through other code of the
    agent does not count: nearly every test has one.
    """
    helpers = {path for path in changed if path.startswith("tests/") and path in imported}
    sources = {path for path in changed if path.startswith(tuple(f"{one}/" for one in SOURCES))}
    names = {module_name(path) for path in (*helpers, *sources) if path.endswith(".py")}
    while further := {path for path, used in imported.items() if path not in helpers and names & set(used)}:
        helpers |= further
        names |= {module_name(path) for path in further if not is_test(path)}
    folders = {f"tests/{folder_of(package)}/" for path in sources if (package := _package(path))}
    inside = {path for path in imported if path.startswith(tuple(folders))} if folders else set()
    return sorted(path for path in helpers | inside if is_test(path))


def of_package(package: str, imported: Mapping[str, Collection[str]]) -> list[str]:
    """Test modules of one package: in its folder, or importing something of it."""
    name = package.strip("/").replace("/", ".")
    folder = f"tests/{folder_of(package)}/"
    return sorted(
        path
        for path, used in imported.items()
        if is_test(path) and (path.startswith(folder) or any(f"{one}.".startswith(f"{name}.") for one in used))
    )


def is_test(path: str) -> bool:
    return PurePosixPath(path).name.startswith("test_")


def _package(path: str) -> str:
    """The package that a source file is in: "actors/probe", "supervisor/cli", "supervisor", "proto"."""
    parts = PurePosixPath(path).parts
    deep = parts[0] == "actors" or (parts[0] == "supervisor" and len(parts) > 2)
    return "/".join(parts[: 2 if deep and len(parts) > 2 else 1]) if parts[0] != "actors" or len(parts) > 2 else ""
