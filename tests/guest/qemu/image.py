"""The guest's disk and its snapshot, made once by mmdebstrap from the archives that this machine's apt uses.

The snapshot is qemu's state when the guest was ready, with the disk as it was then. A guest goes on from there in
seconds. Nothing of nodevisor is in it: a checkout comes on a disk of its own.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tests.fresh.downloads import rootfs
from tests.fresh.downloads.cache import cached
from tests.guest.qemu.archives import CONTAINERD_2, NEWEST, add_containerd_2
from tests.guest.qemu.machine import ADDRESS, GATEWAY, KVM, MEMORY_MIB, QEMU, TCG, CannotStart, Disks, Machine, kernel
from tests.guest.qemu.shell import Shell
from tests.guest.qemu.variants import APPARMOR, Variant
from tests.ports import free_port

CACHE = Path("/var/cache/nodevisor/guest")
PACKAGES = (
    "systemd,systemd-sysv,systemd-oomd,dbus,libpam-systemd,udev,kmod,procps,openssh-server,"
    "containerd,runc,crun,containernetworking-plugins,busybox-static,nftables,iptables,iproute2,"
    "python3,python3-venv,git,make,ca-certificates,openssl,e2fsprogs,apparmor,nfs-kernel-server,nfs-common,"
    "initramfs-tools,linux-image-cloud-amd64,patchelf"
)
BACKPORTS = {"bookworm": ("linux-image-cloud-amd64",)}
"""Packages by release that come from its backports: qemu's emulation and current features want a kernel 6.12."""
ROOT_SIZE, CHECKOUT_SIZE = 8 << 30, 2 << 30
"""In bytes."""
_MASKED = "apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer fstrim.timer man-db.timer"
_HOOKS = (
    'echo guest > "$1/etc/hostname"',
    f'printf "127.0.0.1 localhost\\n{ADDRESS.partition("/")[0]} guest\\n" > "$1/etc/hosts"',
    ': > "$1/etc/resolv.conf"',
    'echo "/dev/vda / ext4 defaults,noatime 0 0" > "$1/etc/fstab"',
    f'printf "[Match]\\nName=e*\\n[Network]\\nAddress={ADDRESS}\\nGateway={GATEWAY}\\n" '
    '> "$1/etc/systemd/network/guest.network"',
    'chroot "$1" systemctl enable systemd-networkd',
    f'chroot "$1" systemctl mask {_MASKED} e2scrub_reap.service systemd-networkd-wait-online.service',
    'chroot "$1" systemctl disable systemd-oomd nfs-server',
)
READY = "systemctl is-system-running --wait; systemctl is-active containerd && sync"
BOOT_S = 480.0
"""Limit from power-on to ssh, under emulation on a machine that is busy."""
_TRIAL_S = 40.0


class Image(NamedTuple):
    """The files that a guest starts from."""

    disk: Path
    """Directory of kernel, initrd, and the key of root's ssh."""
    ready: Path
    """Directory of the snapshot and of the disk at that time."""
    variant: Variant = APPARMOR

    @property
    def snapshot(self) -> Path:
        return self.ready / "snapshot"

    @property
    def key(self) -> Path:
        return self.disk / "key"

    @property
    def root(self) -> Path:
        """Guests write to copies on write of it."""
        return self.ready / "root.qcow2"

    def disks(self, root: Path, checkout: Path) -> Disks:
        return Disks(self.disk / "vmlinuz", self.disk / "initrd", root, checkout, kernel(self.variant.security))

    def acceleration(self) -> Sequence[str]:
        return KVM if (self.ready / "kvm").exists() else TCG


def image(variant: Variant = APPARMOR) -> Image:
    """Has one; made in some minutes where the cache has none. Raises CannotMake, CannotStart, TimeoutError."""
    listed = sources()
    suffix = f"-{variant.name}" if variant.name else ""
    own = filter(None, (*variant.packages, *variant.hooks, variant.last))
    recipe = "\n".join((PACKAGES, NEWEST, CONTAINERD_2, *_HOOKS, *own, *listed))
    disk = cached(f"disk{suffix}", recipe, lambda directory: _make_disk(directory, listed, variant), CACHE)
    # The disk is made again from time to time, and then its key is another one.
    facts = (
        run(QEMU, "--version"),
        platform.release(),
        kernel(variant.security),
        str(MEMORY_MIB),
        *TCG,
        *KVM,
        READY,
        (disk / "key.pub").read_text(),
    )
    make = lambda directory: _make_ready(Image(disk, directory, variant))  # noqa: E731 - as the disk's
    return Image(disk, cached(f"ready{suffix}", "\n".join(facts), make, CACHE), variant)


def sources() -> list[str]:
    """This machine's own, and the backports of its release."""
    listed = rootfs.sources()
    release = rootfs.release()
    own = [line for line in listed if line.split()[2] == release]
    further = [line.replace(f" {release} ", f" {release}-backports ") for line in own] if release in BACKPORTS else []
    return [*listed, *further]


def _make_disk(directory: Path, listed: Sequence[str], variant: Variant) -> None:
    print(f"Making the guest's disk in {CACHE}, once: some two minutes.", flush=True)
    directory.chmod(0o700)
    run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "guest", "-f", directory / "key")
    release = rootfs.release()
    later = BACKPORTS.get(release, ())
    wanted = (*PACKAGES.split(","), *variant.packages)
    packages = (f"{name}/{release}-backports" if name in later else name for name in wanted)
    root, raw = directory / "root", directory / "root.raw"
    root.mkdir()
    rootfs.make_debian(root, ",".join(packages), (*_HOOKS, *variant.hooks), listed)
    add_containerd_2(root, listed, release)
    (root / "root/.ssh").mkdir(mode=0o700, exist_ok=True)
    shutil.copy(directory / "key.pub", root / "root/.ssh/authorized_keys")
    for name, pattern in (("vmlinuz", "vmlinuz-*"), ("initrd", "initrd.img-*")):
        (found,) = (root / "boot").glob(pattern)
        shutil.copy(found, directory / name)
    if variant.last:
        run("sh", "-c", variant.last, "sh", root)
    make_file_system(root, raw, ROOT_SIZE)
    run("qemu-img", "convert", "-O", "qcow2", raw, directory / "root.qcow2")
    raw.unlink()
    shutil.rmtree(root)


def _make_ready(made: Image) -> None:
    print("Taking a snapshot of the guest, once: two to six minutes.", flush=True)
    with tempfile.TemporaryDirectory(prefix="nv-guest-") as name:
        scratch = Path(name)
        make_overlay(made.disk / "root.qcow2", made.root)
        with (scratch / "checkout").open("wb") as file:
            file.truncate(CHECKOUT_SIZE)
        disks = made.disks(made.root, scratch / "checkout")
        if _carries_kvm(scratch, disks):
            (made.ready / "kvm").touch()
        port = free_port()
        shell = Shell(scratch, f"root@127.0.0.1:{port}", made.key)
        with Machine(scratch, disks, made.acceleration(), port) as machine:
            machine.boot()
            try:
                shell.connect(BOOT_S, lambda: not machine.ended)
                shell.run(READY, BOOT_S)
            except (TimeoutError, AssertionError) as error:
                raise CannotStart(f"{error}\n{machine.said()}") from error
            shell.close()
            machine.save(made.snapshot)


def _carries_kvm(scratch: Path, disks: Disks) -> bool:
    """Return True when /dev/kvm runs the guest's kernel: some machines have it and cannot."""
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        return False
    trial = scratch / "trial.qcow2"
    make_overlay(disks.root, trial)
    with Machine(scratch, disks._replace(root=trial), KVM, free_port()) as machine:
        machine.boot()
        deadline = time.monotonic() + _TRIAL_S
        try:
            while time.monotonic() < deadline and machine.status() == "running":
                if "login:" in machine.said():
                    return True
                time.sleep(0.2)
        except CannotStart:
            return False
    return False


def make_overlay(base: Path, overlay: Path) -> None:
    """Make a copy on write of a qcow2."""
    run("qemu-img", "create", "-q", "-f", "qcow2", "-F", "qcow2", "-b", base, overlay)


def make_file_system(content: Path, file: Path, size: int) -> None:
    """Make an ext4 of so many bytes with the content of a directory."""
    with file.open("wb") as opened:
        opened.truncate(size)
    run("mke2fs", "-q", "-t", "ext4", "-m", "0", "-d", content, file)


def run(*command: str | Path) -> str:
    """Run a program that makes files; its output. Raises CannotStart."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    except OSError as error:
        raise CannotStart(f"cannot make a guest: {error}; run: python -m tests.guest.prepare") from error
    if done.returncode != 0:
        raise CannotStart(f"cannot make a guest: {command[0]} failed ({done.returncode}):\n{done.stderr[-2000:]}")
    return done.stdout
