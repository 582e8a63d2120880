"""`supervisor images`: list, pull, import and remove images of any container runtime, over CRI."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from proto.node.runtime import ListPulls, PullUnderWay
from proto.wire.errors import ActorError
from supervisor.cli.common import connect, no_runtime, output_option, run_dir_option, runtime_endpoint
from supervisor.cli.errors import CommandError
from supervisor.cli.views import render
from supervisor.sockets.client import Client

if TYPE_CHECKING:
    from actors._cri.client import Cri
    from proto.cri import api_pb2 as pb

HEADERS = ("IMAGE", "TAG", "IMAGE ID", "SIZE")
NONE = "<none>"
BAR = 24
LOOK_S = 0.1
"""Pause between requests for a pull's progress."""
EMBEDDED_NAME = "nodevisor"
"""The embedded runtime's name in CRI's Version."""
_progress = click.option("-q", "--quiet", is_flag=True, help="Show no progress.")


@click.group(invoke_without_command=True)
@run_dir_option
@output_option("json", "yaml")
@click.pass_context
def images(ctx: click.Context, run_dir: str, output: str | None) -> None:
    """Show the images of the container runtime, or pull, import and remove images.

    It needs access to the runtime's socket, which usually only root has.
    """
    ctx.meta["run_dir"] = run_dir
    if ctx.invoked_subcommand is None:
        _list(run_dir, output)
    elif output is not None:
        raise click.UsageError("-o is for the list of images only", ctx)


@images.command("list")
@run_dir_option
@output_option("json", "yaml")
def list_(run_dir: str, output: str | None) -> None:
    """Show the images of the container runtime."""
    _list(run_dir, output)


def _list(run_dir: str, output: str | None) -> None:
    with _runtime(run_dir, changes=False) as cri:
        found = _result_of(lambda: cri.list_images().result())
    if output is not None:
        text = render.json_text if output == "json" else render.yaml_text
        render.echo(text({"images": [plain(one) for one in found]}))
        return
    rows = sorted(row for image in found for row in cells(image))
    if not rows:
        render.echo("No images.", err=True)
        return
    render.table(HEADERS, rows, frozenset({"SIZE"}))


@images.command()
@run_dir_option
@_progress
@click.option(
    "-u", "--user", metavar="USER", help="The registry's user; the password is prompted for, or read from a pipe."
)
@click.argument("names", nargs=-1, required=True, metavar="IMAGE...")
def pull(run_dir: str, quiet: bool, user: str | None, names: tuple[str, ...]) -> None:
    """Pull each IMAGE, also present ones, because a tag may have moved. Prints the image IDs."""
    from proto.cri import api_pb2 as pb  # noqa: PLC0415

    password = _password() if user else ""
    auth = pb.AuthConfig(username=user, password=password) if user else None
    with _runtime(run_dir) as cri:
        for name in names:
            call = cri.pull_image(pb.ImageSpec(image=name, user_specified_image=name), auth)
            with contextlib.ExitStack() as stack:
                stack.callback(call.cancel)  # Ctrl-C ends the pull too; pulled layers stay
                if not quiet and sys.stderr.isatty():
                    _show_progress(run_dir, name, call)
                render.echo(_result_of(call.result))


@images.command("import")
@run_dir_option
@click.argument("paths", nargs=-1, required=True, metavar="PATH...", type=click.Path(exists=True, resolve_path=True))
def import_(run_dir: str, paths: tuple[str, ...]) -> None:
    """Import OCI layouts (directories) and archives of them, under the names that they contain.

    Only the embedded runtime can do this, because CRI has no such call.
    """
    with _runtime(run_dir) as cri:
        name = _result_of(lambda: cri.version().result()).runtime_name
        if name != EMBEDDED_NAME:
            hint = "; use `ctr -n k8s.io images import`" if name == "containerd" else ""
            raise CommandError(f"cannot import images to {name}: only the embedded runtime can over CRI{hint}")
        for path in paths:
            transport = "oci" if os.path.isdir(path) else "oci-archive"
            before = {one.id for one in _result_of(lambda: cri.list_images().result())}
            reference = _result_of(lambda path=path, of=transport: cri.pull_image(f"{of}:{path}").result())
            after = _result_of(lambda: cri.list_images().result())
            for image in after:
                if image.id == reference or image.id not in before:
                    render.echo(f"{', '.join(image.repo_tags) or NONE} {image.id}")


@images.command()
@run_dir_option
@click.argument("names", nargs=-1, required=True, metavar="IMAGE...")
def remove(run_dir: str, names: tuple[str, ...]) -> None:
    """Remove each IMAGE, by name, by ID or by the ID's beginning. Running containers keep its files."""
    failed = []
    with _runtime(run_dir) as cri:
        found = _result_of(lambda: cri.list_images().result())
        for name in names:
            try:
                wanted = chosen(name, found)
                if _result_of(lambda wanted=wanted: cri.image_status(wanted).result()) is None:
                    raise CommandError(f"cannot remove {name}: no such image; `supervisor images` lists all images")
                _result_of(lambda wanted=wanted: cri.remove_image(wanted).result())
                render.echo(name)
            except CommandError as error:
                failed.append(error.message)
    if failed:
        raise CommandError("\nsupervisor: ".join(failed))


def chosen(name: str, found: Sequence[pb.Image]) -> str:
    """`name`, or the only image ID that begins with it. Raises CommandError for several."""
    begin = name.removeprefix("sha256:")
    if len(begin) < 6 or not set(begin) <= set("0123456789abcdef"):
        return name
    ids = {one.id for one in found if one.id.removeprefix("sha256:").startswith(begin)}
    if len(ids) > 1:
        raise CommandError(f"cannot choose image {name}: there are {', '.join(sorted(ids))}; write more of the ID")
    return ids.pop() if ids else name


def cells(image: pb.Image) -> list[tuple[str, ...]]:
    """A row for each tag of the image; without tags one row with its repository."""
    id_, size = image.id.removeprefix("sha256:")[:13], human_bytes(image.size)
    lines: list[tuple[str, ...]] = []
    for tag in image.repo_tags:
        repository, _, version = tag.rpartition(":") if ":" in tag.rpartition("/")[2] else (tag, "", NONE)
        lines.append((repository, version, id_, size))
    repository = image.repo_digests[0].partition("@")[0] if image.repo_digests else NONE
    return lines or [(repository, NONE, id_, size)]


def plain(image: pb.Image) -> dict[str, Any]:
    """The image as plain values, with CRI's names."""
    return {
        "id": image.id,
        "repoTags": list(image.repo_tags),
        "repoDigests": list(image.repo_digests),
        "size": image.size,
        "pinned": image.pinned,
    }


def human_bytes(size: int) -> str:
    """A size in decimal units, as other tools print sizes of images."""
    value, unit = float(size), "B"
    for larger in ("kB", "MB", "GB", "TB"):
        if value < 1000:
            break
        value, unit = value / 1000, larger
    return f"{value:.3g}{unit}"


# Progress


def _show_progress(run_dir: str, name: str, call: Any) -> None:
    """Redraw one line until the call ends: the progress, or the elapsed time if the runtime reports none."""
    began = time.monotonic()
    with connect(run_dir) as client:
        while not call.done():
            seconds = time.monotonic() - began
            text = progress_line(name, _progress_of(client, name), seconds)
            render.progress(text)
            time.sleep(LOOK_S)
    render.progress("")


def _progress_of(client: Client, name: str) -> PullUnderWay | None:
    try:
        pulls = client.ask("runtime", ListPulls(), 1.0).pulls
    except ActorError:  # another runtime, or ours restarts
        return None
    same = [one for one in pulls if one.name == name or one.name.endswith((f"/{name}", f"/{name}:latest"))]
    return next(iter(same or [one for one in pulls if one.name.startswith(name)]), None)


def progress_line(name: str, pull: PullUnderWay | None, seconds: float) -> str:
    """`busybox [########----]  1.2MB of 4.3MB, 1 of 3 layers, 12s`."""
    if pull is None or not pull.total_bytes:
        return f"{name}: pulling, {seconds:.0f}s"
    full = BAR * pull.done_bytes // pull.total_bytes
    bar = "#" * full + "-" * (BAR - full)
    if pull.done_bytes >= pull.total_bytes:
        return f"{name} [{bar}] unpacking {human_bytes(pull.total_bytes)}, {seconds:.0f}s"
    sizes = f"{human_bytes(pull.done_bytes)} of {human_bytes(pull.total_bytes)}"
    return f"{name} [{bar}] {sizes}, {pull.layers_done} of {pull.layers} layers, {seconds:.0f}s"


# The runtime


@contextlib.contextmanager
def _runtime(run_dir: str, *, changes: bool = True) -> Iterator[Cri]:
    """A client of the agent's container runtime. Raises CommandError, and Refused if the role may change nothing."""
    from actors._cri.client import Cri  # noqa: PLC0415 - gRPC

    client = connect(run_dir)
    if changes:
        client.check_role("CallRuntime")
    if not (endpoint := runtime_endpoint(run_dir)):
        raise CommandError(f"cannot find a container runtime: no agent has used {run_dir}; give --run-dir")
    cri = Cri(endpoint)
    try:
        yield cri
    finally:
        cri.close()


def _result_of(call: Any) -> Any:
    """The result of a CRI call. Raises CommandError with the runtime's message."""
    from actors._cri.errors import CriError  # noqa: PLC0415

    try:
        return call()
    except CriError as error:
        raise no_runtime(error.code, error.rpc) or CommandError(str(error)) from error


def _password() -> str:
    if sys.stdin.isatty():
        return str(click.prompt("Password", hide_input=True, err=True))
    return sys.stdin.readline().rstrip("\n")
