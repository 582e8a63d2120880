"""Chooses the user of a container's process, from CRI's security context and the image's USER, passwd and group.

The image's files are hostile: invalid lines are skipped, and reading is bounded.
"""

from __future__ import annotations

from dataclasses import dataclass

from proto.cri import api_pb2 as pb

MOST_BYTES = 4 * 1024 * 1024
"""Read of either file."""
_MAX_ID = 2**32 - 2


class NoSuchUser(ValueError):
    """The image lacks the user or group, or a group is set without a user; the message says which."""


@dataclass(frozen=True, slots=True)
class User:
    """The user of a process."""

    uid: int
    gid: int
    groups: tuple[int, ...]
    """Supplemental groups, with the primary one, as in other runtimes."""
    home: str = "/"


@dataclass(frozen=True, slots=True)
class Entry:
    """A line of passwd."""

    name: str
    uid: int
    gid: int
    home: str


def parse_passwd(text: str) -> list[Entry]:
    """The valid lines of passwd."""
    found = []
    for line in text.splitlines():
        fields = line.strip().split(":")
        if len(fields) >= 6 and (uid := _number(fields[2])) is not None and (gid := _number(fields[3])) is not None:
            found.append(Entry(fields[0], uid, gid, fields[5] or "/"))
    return found


def parse_group(text: str) -> list[tuple[str, int, tuple[str, ...]]]:
    """The valid lines of group: (name, number, members)."""
    found = []
    for line in text.splitlines():
        fields = line.strip().split(":")
        if len(fields) >= 3 and (gid := _number(fields[2])) is not None:
            members = tuple(name for name in fields[3].split(",") if name) if len(fields) > 3 else ()
            found.append((fields[0], gid, members))
    return found


def choose(context: pb.LinuxContainerSecurityContext, image_user: str, passwd: str, group: str) -> User:
    """The user to run as. Raises NoSuchUser."""
    if context.HasField("run_as_group") and not (context.HasField("run_as_user") or context.run_as_username):
        raise NoSuchUser("run_as_group is set without run_as_user or run_as_username, which CRI forbids")
    users, groups = parse_passwd(passwd), parse_group(group)
    wanted, _, wanted_group = image_user.partition(":")
    if context.HasField("run_as_user"):
        wanted, wanted_group = str(context.run_as_user.value), ""
    elif context.run_as_username:
        wanted, wanted_group = context.run_as_username, ""
    entry = _user(wanted or "0", users)
    gid = entry.gid
    if context.HasField("run_as_group"):
        gid = context.run_as_group.value
    elif wanted_group:
        gid = _group(wanted_group, groups)
    supplemental = list(context.supplemental_groups)
    if context.supplemental_groups_policy == pb.Merge:
        supplemental += [number for _, number, members in groups if entry.name and entry.name in members]
    return User(entry.uid, gid, tuple(sorted({gid, *supplemental})), entry.home)


def _user(wanted: str, users: list[Entry]) -> Entry:
    number = _number(wanted)
    for entry in users:
        if entry.uid == number if number is not None else entry.name == wanted:
            return entry
    if number is None:
        raise NoSuchUser(f"no user {wanted!r} in the image's /etc/passwd")
    return Entry("", number, 0, "/")


def _group(wanted: str, groups: list[tuple[str, int, tuple[str, ...]]]) -> int:
    number = _number(wanted)
    if number is not None:
        return number
    for name, gid, _ in groups:
        if name == wanted:
            return gid
    raise NoSuchUser(f"no group {wanted!r} in the image's /etc/group")


def _number(text: str) -> int | None:
    if not text.isascii() or not text.isdigit() or len(text) > 10 or int(text) > _MAX_ID:
        return None
    return int(text)
