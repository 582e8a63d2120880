"""Sees to it that a runtime has the images of the samples, and its own sandbox image.

The images are made of this machine's programs before any registry is asked. So a registry that is slow or away costs
no time. containerd imports them with `ctr`; they are removed from it at the end. Other runtimes can only pull.

`python -m tests.containerd.run.samples --endpoint unix:///PATH` says in one line what it did; the images stay.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from actors._cri.client import Cri
from actors._cri.errors import CriError
from tests.containerd.images import BUSYBOX, PYTHON, Image, busybox, made_of, pause, python, write_archive
from tests.containerd.machine import CannotBuild
from tests.containerd.requirements import which

PULL_S = 5.0
"""For a runtime that takes images from registries only: the registry is quick, or another runtime is used."""
SEEN_S = 10.0
IMPORT_S = 120.0


class CannotProvide(Exception):
    """An image is missing and cannot be had; the message says why."""


def sample_images() -> list[Image]:
    """The images of etc/samples."""
    return [busybox(), python()]


def making(images: Sequence[Image]) -> str:
    """A line that names the sources of the images. Printed before they are made, which takes a second or two."""
    made = ", ".join(f"{image.name} from {made_of(image)}" for image in images)
    return f"Images: made here, without a registry: {made}."


@contextlib.contextmanager
def provided(cri: Cri, say: Callable[[str], None]) -> Iterator[None]:
    """Have the runtime hold the samples' images; those made here go at the end. Raises CannotProvide, CriError."""
    made = provide(cri, say)
    try:
        yield
    finally:
        for image, image_id in made.items():
            _remove(cri, image, image_id)


def provide(cri: Cri, say: Callable[[str], None]) -> dict[str, str]:
    """The same for good; the names and IDs of the images that were made. Raises CannotProvide, CriError."""
    wanted = sample_images()
    if sandbox_image := sandbox_image_of(cri.status(verbose=True).result().info):
        wanted.append(replace(pause(), name=sandbox_image))
    missing = [image for image in wanted if cri.image_status(image.name).result() is None]
    if not missing:
        say(f"Images: {_names(wanted)} are there.")
        return {}
    if cri.version().result().runtime_name != "containerd" or which("ctr") is None:
        _pull(cri, missing, say)
        return {}
    say(making(missing))
    return _import(cri, missing)


def sandbox_image_of(info: Any) -> str:
    """The runtime's sandbox image, from the verbose info of its status; empty where it does not tell."""
    try:
        config = json.loads(info["config"])
    except (KeyError, ValueError):
        return ""
    return str(config.get("sandboxImage", ""))


def _pull(cri: Cri, images: Sequence[Image], say: Callable[[str], None]) -> None:
    say(f"Images: pulling {_names(images)}, for at most {PULL_S:.0f} s ...")
    calls = [cri.pull_image(image.name, timeout=PULL_S) for image in images]
    for image, call in zip(images, calls, strict=True):
        try:
            call.result()
        except CriError as error:
            raise CannotProvide(
                f"it cannot pull {image.name} within {PULL_S:.0f} s ({error}), and takes no image but from registries"
            ) from error


def _import(cri: Cri, images: Sequence[Image]) -> dict[str, str]:
    ctr, socket = which("ctr"), cri.endpoint.removeprefix("unix://")
    with tempfile.TemporaryDirectory(prefix="nodevisor-images-") as directory:
        archive = Path(directory) / "images.tar"
        try:
            write_archive(archive, images)
        except CannotBuild as error:
            raise CannotProvide(str(error)) from error
        command = [str(ctr), "-a", socket, "-n", "k8s.io", "images", "import", str(archive)]
        try:
            ran = subprocess.run(command, capture_output=True, text=True, timeout=IMPORT_S, check=False)
        except subprocess.TimeoutExpired as error:
            raise CannotProvide(f"it does not import images within {IMPORT_S:.0f} s") from error
    if ran.returncode != 0:
        raise CannotProvide(f"it cannot import {_names(images)}: {ran.stderr.strip()}")
    return {image.name: _seen(cri, image.name) for image in images}


def _seen(cri: Cri, name: str) -> str:
    """The image's ID, once CRI shows it: it learns of what ctr did through containerd's events, a moment later."""
    deadline = time.monotonic() + SEEN_S
    while (image := cri.image_status(name).result()) is None:
        if time.monotonic() > deadline:
            raise CannotProvide(f"it does not show {name} within {SEEN_S:.0f} s of its import")
        time.sleep(0.02)
    return image.id


def _remove(cri: Cri, name: str, image_id: str) -> None:
    """Remove an image that was made here, unless the name has become another's since."""
    with contextlib.suppress(CriError):
        image = cri.image_status(name).result()
        if image is not None and image.id == image_id:
            cri.remove_image(name).result()


def _names(images: Sequence[Image]) -> str:
    return " and ".join(image.name for image in images)


def main() -> int:
    """Provide, and say so; 1 when it cannot."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.containerd.run.samples", description=f"Provide {BUSYBOX} and {PYTHON}."
    )
    parser.add_argument("--endpoint", required=True, help="the runtime, unix:///PATH")
    cri = Cri(parser.parse_args().endpoint)
    try:
        provide(cri, lambda line: print(line, flush=True))
    except (CannotProvide, CriError) as error:
        print(f"cannot provide images to {cri.endpoint}: {error}", file=sys.stderr)
        return 1
    finally:
        cri.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
