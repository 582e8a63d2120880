"""The kinds of guests: which security module the kernel has, and what the disk has for it."""

from __future__ import annotations

from typing import NamedTuple

_SERVICES = "selinux-policy-src/policy/modules/services"
_SOURCES = f"{_SERVICES}/container.te {_SERVICES}/container.fc"
_MODULE = (
    "set -e; mkdir /tmp/module; cd /tmp/module; "
    f"tar --zstd -xf /usr/src/selinux-policy-src.tar.zst --strip-components=4 {_SOURCES}; "
    "make -s -f /usr/share/selinux/devel/Makefile NAME=default container.pp; "
    "semodule -n -s default -i container.pp; rm -r /tmp/module"
)
"""Debian 12 has the reference policy's container module among its sources only."""


class Variant(NamedTuple):
    """A kind of guest."""

    name: str
    """Of its files in the cache; empty for the guest of most tests."""
    security: str
    """Words of the kernel's command line."""
    packages: tuple[str, ...] = ()
    """Besides those of all guests."""
    hooks: tuple[str, ...] = ()
    """Shell commands after the installation, with the root directory as $1."""
    last: str = ""
    """A shell command once all files are there."""
    checkout_options: str = ""
    """Mount options for the checkout, after a comma."""


APPARMOR = Variant("", "apparmor=1 security=apparmor")
SELINUX = Variant(
    "selinux",
    "security=selinux selinux=1 enforcing=1",
    ("selinux-policy-default", "selinux-policy-dev", "selinux-policy-src", "selinux-utils", "policycoreutils", "zstd"),
    (
        'sed -i "s/^SELINUX=.*/SELINUX=enforcing/" "$1/etc/selinux/config"',
        f"chroot \"$1\" sh -c '{_MODULE}'",
    ),
    'unshare --mount sh -c \'mount -t proc proc "$0/proc" && '
    'exec chroot "$0" setfiles -F -e /proc /etc/selinux/default/contexts/files/file_contexts /\' "$1"',
    ",context=system_u:object_r:usr_t:s0",
)
"""SELinux is enforcing, with Debian's reference policy. The checkout's disk has no labels: its mount gives one."""
