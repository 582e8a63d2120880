"""Sees to it that a runtime has the samples' image and its own sandbox image, from the machine's busybox if need be.

`python -m tests.containerd.samples --endpoint unix:///PATH` says in one line what it did. An image is taken from its
registry where that works; a machine without one, as in CI, gets what `images` builds.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from actors._cri.client import Cri
from actors._cri.errors import CriError
from tests.containerd.images import BUSYBOX, Image, busybox, pause, write_archive
from tests.containerd.requirements import BUSYBOX_BINARY, which

PULL_S = 20.0
"""For each registry: it is there and quick, or the image is built here."""
SEEN_S = 10.0


class CannotProvide(Exception):
    """An image is missing and cannot be had; the message says what to do."""


def provide(cri: Cri) -> str:
    """Have the runtime hold the images the samples need; what was done, as a line. Raises CannotProvide, CriError."""
    wanted = [busybox()]
    sandbox_image = sandbox_image_of(cri.status(verbose=True).result().info)
    if sandbox_image:
        wanted.append(replace(pause(), name=sandbox_image))
    missing = [image for image in wanted if cri.image_status(image.name).result() is None]
    if not missing:
        return f"Images: {_names(wanted)} are there."
    pulled = [image for image in missing if _pull(cri, image.name)]
    built = [image for image in missing if image not in pulled]
    if built:
        _import(cri, built)
    done = [f"pulled {_names(pulled)}"] if pulled else []
    done += [f"built {_names(built)} from {BUSYBOX_BINARY}"] if built else []
    return f"Images: {', '.join(done)}."


def sandbox_image_of(info: Any) -> str:
    """The runtime's sandbox image, from the verbose info of its status; empty where it does not tell."""
    try:
        config = json.loads(info["config"])
    except (KeyError, ValueError):
        return ""
    return str(config.get("sandboxImage", ""))


def _pull(cri: Cri, name: str) -> bool:
    try:
        cri.pull_image(name, timeout=PULL_S).result()
    except CriError:
        return False
    return True


def _import(cri: Cri, images: Sequence[Image]) -> None:
    ctr = which("ctr")
    if ctr is None or not BUSYBOX_BINARY.exists():
        raise CannotProvide(
            f"cannot get {_names(images)}: no registry gives it, and building it here needs containerd's ctr and a "
            "static busybox (apt-get install busybox-static)"
        )
    socket = cri.endpoint.removeprefix("unix://")
    with tempfile.TemporaryDirectory(prefix="nodevisor-images-") as directory:
        archive = Path(directory) / "images.tar"
        write_archive(archive, images)
        command = [ctr, "-a", socket, "-n", "k8s.io", "images", "import", str(archive)]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    if ran.returncode != 0:
        raise CannotProvide(f"cannot import {_names(images)} into {socket}: {ran.stderr.strip()}")
    deadline = time.monotonic() + SEEN_S
    for image in images:  # CRI learns of what ctr did through containerd's events, a moment later
        while cri.image_status(image.name).result() is None:
            if time.monotonic() > deadline:
                raise CannotProvide(f"cannot see {image.name} over CRI after its import into {socket}")
            time.sleep(0.02)


def _names(images: Sequence[Image]) -> str:
    return " and ".join(image.name for image in images)


def main() -> int:
    """Provide, and say so; 1 when it cannot."""
    parser = argparse.ArgumentParser(prog="python -m tests.containerd.samples", description=f"Provide {BUSYBOX}.")
    parser.add_argument("--endpoint", required=True, help="the runtime, unix:///PATH")
    cri = Cri(parser.parse_args().endpoint)
    try:
        print(provide(cri), flush=True)
    except (CannotProvide, CriError) as error:
        print(f"cannot provide images: {error}", file=sys.stderr)
        return 1
    finally:
        cri.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
