"""Runs a private containerd in the foreground until SIGINT or SIGTERM: `python -m tests.containerd --dir DIR`.

Prints its endpoint as one line once it is ready, and takes everything away at the end.
"""

import argparse
import signal
import sys
from pathlib import Path
from types import FrameType

from tests.containerd.instance import ContainerdInstance
from tests.containerd.requirements import missing_requirements


def main() -> int:
    """Run it; 0 after a signal, 1 when it cannot run here or containerd dies."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.containerd", description="Run a private containerd until SIGINT or SIGTERM."
    )
    parser.add_argument("--dir", type=Path, required=True, help="an empty or new directory for all its files")
    options = parser.parse_args()
    if problem := missing_requirements():
        print(problem, file=sys.stderr)
        return 1
    signal.signal(signal.SIGTERM, _interrupt)
    signal.signal(signal.SIGINT, _interrupt)
    try:
        with ContainerdInstance(options.dir) as containerd:
            print(containerd.endpoint, flush=True)
            code = containerd.wait()
            print(f"containerd ended by itself with code {code}; see {containerd.log}", file=sys.stderr)
            return 1
    except KeyboardInterrupt:
        return 0


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    """End the wait, or the start; the cleaning up that follows is not to be interrupted."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
