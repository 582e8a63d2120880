"""Generates the stubs next to `api.proto`: `api_pb2.py`, `api_pb2.pyi` and `api_pb2_grpc.py`.

Run as `python -m proto.cri.generate` (`make proto`); needs the development group's grpcio-tools and mypy-protobuf.
`--check` writes nothing and fails when a checked-in stub is not what `api.proto` gives.
"""

import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
SOURCE = "proto/cri/api.proto"  # relative to ROOT: the generated modules import one another by this path
STUBS = ("api_pb2.py", "api_pb2.pyi", "api_pb2_grpc.py")


class GenerateError(Exception):
    """The stubs could not be generated; the message says why and what to do."""


def generate(out: Path) -> None:
    """Write the stubs under `out`/proto/cri. Raises GenerateError when protoc or its plug-in fails or is missing."""
    plugin = _mypy_plugin()
    command = [
        *(sys.executable, "-m", "grpc_tools.protoc", f"--proto_path={ROOT}"),
        *(f"--python_out={out}", f"--grpc_python_out={out}"),
        *(f"--plugin=protoc-gen-mypy={plugin}", f"--mypy_out=quiet:{out}"),
        SOURCE,
    ]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if run.returncode != 0:
        raise GenerateError(f"cannot generate stubs from {SOURCE}: {run.stderr.strip()}")


def _mypy_plugin() -> Path:
    """Find the mypy-protobuf executable of this very environment; PATH may lead to another."""
    plugin = Path(sysconfig.get_path("scripts")) / "protoc-gen-mypy"
    if not plugin.exists():
        raise GenerateError(f"cannot find {plugin}: install the development group (pip install --group dev)")
    return plugin


def stale() -> list[str]:
    """Names of the checked-in stubs that differ from what `api.proto` gives; empty when all are current."""
    with tempfile.TemporaryDirectory() as scratch:
        generate(Path(scratch))
        fresh = Path(scratch) / "proto" / "cri"
        return [name for name in STUBS if not _same(fresh / name, HERE / name)]


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
        print(f"proto/cri/{name} is not current: run python -m proto.cri.generate", file=sys.stderr)
    return 1 if names else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
