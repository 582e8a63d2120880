"""Builds and loads the filter of linux.seccomp with libseccomp, which knows the numbers of system calls."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping
from typing import Any

LIBRARY = "libseccomp.so.2"
_ACTIONS = {
    "SCMP_ACT_KILL": 0,
    "SCMP_ACT_KILL_THREAD": 0,
    "SCMP_ACT_KILL_PROCESS": 0x80000000,
    "SCMP_ACT_TRAP": 0x00030000,
    "SCMP_ACT_ERRNO": 0x00050000,
    "SCMP_ACT_TRACE": 0x7FF00000,
    "SCMP_ACT_LOG": 0x7FFC0000,
    "SCMP_ACT_ALLOW": 0x7FFF0000,
}
_WITH_ERRNO = ("SCMP_ACT_ERRNO", "SCMP_ACT_TRACE")
_OPS = {f"SCMP_CMP_{name}": number for number, name in enumerate(("NE", "LT", "LE", "EQ", "GE", "GT", "MASKED_EQ"), 1)}
_CTL_NNP = 3
_EEXIST, _EPERM = 17, 1


class _Compare(ctypes.Structure):
    _fields_ = (("arg", ctypes.c_uint), ("op", ctypes.c_int), ("a", ctypes.c_uint64), ("b", ctypes.c_uint64))


class Filter:
    """A filter, not loaded yet. Raises OSError when libseccomp is missing or refuses the profile."""

    def __init__(self, profile: Mapping[str, Any]) -> None:
        try:
            self._lib: Any = ctypes.CDLL(LIBRARY)
        except OSError as error:
            raise OSError(0, f"no seccomp filter without {LIBRARY} (Debian: apt install libseccomp2)") from error
        self._lib.seccomp_init.restype = ctypes.c_void_p
        self._default = _action(profile["defaultAction"], profile.get("defaultErrnoRet"))
        self._context = ctypes.c_void_p(self._lib.seccomp_init(ctypes.c_uint32(self._default)))
        if not self._context:
            raise OSError(0, "cannot make a seccomp filter")
        self._call("attr_set", _CTL_NNP, 0)
        for name in profile.get("architectures", ()):
            token = self._lib.seccomp_arch_resolve_name(name.removeprefix("SCMP_ARCH_").lower().encode())
            if token:
                self._call("arch_add", ctypes.c_uint32(token), accepted=(-_EEXIST,))
        for rule in profile.get("syscalls", ()):
            self._add(rule)

    def load(self) -> None:
        """Put the filter in force for this process."""
        self._call("load")

    def _add(self, rule: Mapping[str, Any]) -> None:
        action = _action(rule["action"], rule.get("errnoRet"))
        if action == self._default:
            return
        for name in rule["names"]:
            number = self._lib.seccomp_syscall_resolve_name(name.encode())
            if number == -1:
                continue  # a call of another architecture or a newer kernel
            for group in groups(rule.get("args", ())):
                compare = (_Compare * len(group))(
                    *(
                        _Compare(one["index"], _OPS[one["op"]], one.get("value", 0), one.get("valueTwo", 0))
                        for one in group
                    )
                )
                self._call("rule_add_array", ctypes.c_uint32(action), number, len(group), compare)

    def _call(self, name: str, *arguments: Any, accepted: tuple[int, ...] = ()) -> None:
        code = getattr(self._lib, f"seccomp_{name}")(self._context, *arguments)
        if code < 0 and code not in accepted:
            raise OSError(-code, f"{os.strerror(-code)}, from seccomp_{name}")


def groups(arguments: Any) -> list[list[Mapping[str, Any]]]:
    """Conditions that hold together. As in runc, several conditions on one argument are alternatives. Pure."""
    conditions = list(arguments)
    if len({one["index"] for one in conditions}) == len(conditions):
        return [conditions]
    return [[one] for one in conditions]


def available() -> bool:
    """Return True when libseccomp and the kernel support filters."""
    try:
        ctypes.CDLL(LIBRARY)
    except OSError:
        return False
    return os.path.exists("/proc/sys/kernel/seccomp")


def _action(name: str, number: int | None) -> int:
    if name not in _ACTIONS:
        raise OSError(0, f"no seccomp action {name}")
    return _ACTIONS[name] | ((_EPERM if number is None else number) if name in _WITH_ERRNO else 0)
