"""Generates the message classes next to each `.proto` file: `NAME_pb2.py` and, for mypy, `NAME_pb2.pyi`.

Run as `python -m proto.generate` (`make proto`); needs the development group's grpcio-tools and mypy-protobuf.
`--check` writes nothing, and fails when a checked-in file differs from the generated one.
"""

import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCES = (
    "proto/cri/api.proto",
    "proto/plugins/csi.proto",
    "proto/plugins/deviceplugin.proto",
    "proto/plugins/dra.proto",
    "proto/plugins/drahealth.proto",
    "proto/plugins/drav1beta1.proto",
    "proto/plugins/podresources.proto",
    "proto/plugins/podresourcesv1alpha1.proto",
    "proto/plugins/registration.proto",
)
"""Relative to ROOT, because the generated modules import one another by these paths."""
STUBS = tuple(f"{source.removesuffix('.proto')}_pb2{suffix}" for source in SOURCES for suffix in (".py", ".pyi"))


class GenerateError(Exception):
    """The stubs could not be generated. The message has the reason and the remedy."""


def generate(out: Path) -> None:
    """Write the stubs under `out`. Raises GenerateError when protoc or its plug-in fails or is missing."""
    plugin = _mypy_plugin()
    for source in SOURCES:
        command = [
            *(sys.executable, "-m", "grpc_tools.protoc", f"--proto_path={ROOT}"),
            *(f"--python_out={out}", f"--plugin=protoc-gen-mypy={plugin}", f"--mypy_out=quiet:{out}"),
            source,
        ]
        run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        if run.returncode != 0:
            raise GenerateError(f"cannot generate stubs from {source}: {run.stderr.strip()}")


def _mypy_plugin() -> Path:
    """Find the mypy-protobuf executable of this environment; PATH may lead to another."""
    plugin = Path(sysconfig.get_path("scripts")) / "protoc-gen-mypy"
    if not plugin.exists():
        raise GenerateError(f"cannot find {plugin}: install the development group (pip install --group dev)")
    return plugin


def stale(root: Path = ROOT) -> list[str]:
    """The checked-in stubs below `root` that differ from newly generated ones; empty when all are current."""
    with tempfile.TemporaryDirectory() as scratch:
        generate(Path(scratch))
        return [name for name in STUBS if not _same(Path(scratch, name), root / name)]


def _same(one: Path, other: Path) -> bool:
    return other.exists() and one.read_bytes() == other.read_bytes()


def main(arguments: Sequence[str]) -> int:
    """Generate, or with `--check` compare; 0 when done or current, 1 otherwise."""
    try:
        if "--check" not in arguments:
            generate(ROOT)
            return 0
        names = stale()
    except GenerateError as error:
        print(error, file=sys.stderr)
        return 1
    for name in names:
        print(f"{name} is not current: run python -m proto.generate", file=sys.stderr)
    return 1 if names else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
