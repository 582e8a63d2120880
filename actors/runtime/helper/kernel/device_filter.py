"""Limits the devices of a cgroup of v2 by a BPF program that the kernel runs at each open and mknod of a device.

Cgroup v1 has files for this. `program` is pure; `attach` loads its result.
https://docs.kernel.org/admin-guide/cgroup-v2.html#device-controller,
https://docs.kernel.org/bpf/standardization/instruction-set.html
"""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from actors.runtime.helper.kernel import syscalls

_LOAD, _AND, _SHIFT, _COPY, _SET = 0x61, 0x57, 0x77, 0xBF, 0xB7
"""Opcodes: load 32 bits of memory, AND and shift right by a number, copy a register, set it to a number."""
_IF_EQUAL, _IF_NOT_EQUAL, _EXIT = 0x15, 0x55, 0x95
_RESULT, _CONTEXT, _KIND, _ACCESS, _MAJOR, _MINOR = range(6)
"""Registers."""
_KINDS = {"b": 1, "c": 2, "u": 2}
_ACCESSES = {"m": 1, "r": 2, "w": 4}
_ALL = 7

_PROG_LOAD, _PROG_ATTACH = 5, 8
_CGROUP_DEVICE_PROGRAM, _CGROUP_DEVICE, _ALLOW_MULTI = 15, 6, 2
_NAME = b"nv_devices"


class Instruction(NamedTuple):
    """One BPF instruction: opcode, destination and source register, offset, number."""

    code: int
    target: int = 0
    source: int = 0
    offset: int = 0
    number: int = 0


def program(rules: Sequence[Mapping[str, Any]]) -> list[Instruction]:
    """The filter of linux.resources.devices. Pure.

    The last rule that decides an access wins, and without one it is denied. An allowing rule decides if it allows all
    of the access, a denying rule if it denies any of it. So it was in cgroup v1.
    """
    made = [
        Instruction(_LOAD, _KIND, _CONTEXT, 0),
        Instruction(_COPY, _ACCESS, _KIND),
        Instruction(_AND, _KIND, number=0xFFFF),
        Instruction(_SHIFT, _ACCESS, number=16),
        Instruction(_LOAD, _MAJOR, _CONTEXT, 4),
        Instruction(_LOAD, _MINOR, _CONTEXT, 8),
    ]
    for rule in reversed(rules):
        conditions = _conditions(rule)
        made += _skipping(conditions) + _answer(allow=bool(rule["allow"]))
        if not conditions:
            return made  # the kernel refuses instructions that are never reached
    return made + _answer(allow=False)


def _conditions(rule: Mapping[str, Any]) -> list[Instruction]:
    """Instructions that jump when the rule does not decide; `_skipping` fills their offsets in."""
    found = []
    kind = rule.get("type") or "a"
    if kind != "a":
        found.append(Instruction(_IF_NOT_EQUAL, _KIND, number=_KINDS[kind]))
    access = sum(_ACCESSES[letter] for letter in set(rule.get("access") or "rwm"))
    if access != _ALL:
        # r1 held the context, which is not read again.
        found.append(Instruction(_COPY, _CONTEXT, _ACCESS))
        found.append(Instruction(_AND, _CONTEXT, number=_ALL & ~access if rule["allow"] else access))
        found.append(Instruction(_IF_NOT_EQUAL if rule["allow"] else _IF_EQUAL, _CONTEXT))
    for register, key in ((_MAJOR, "major"), (_MINOR, "minor")):
        number = rule.get(key)
        if number is not None and number >= 0:  # -1 is any number
            found.append(Instruction(_IF_NOT_EQUAL, register, number=number))
    return found


def _skipping(conditions: list[Instruction]) -> list[Instruction]:
    """Make each jump lead behind the two instructions of the answer."""
    last = len(conditions) + 1
    jumps = (_IF_EQUAL, _IF_NOT_EQUAL)
    return [one._replace(offset=last - place) if one.code in jumps else one for place, one in enumerate(conditions)]


def _answer(*, allow: bool) -> list[Instruction]:
    return [Instruction(_SET, _RESULT, number=int(allow)), Instruction(_EXIT)]


def attach(directory: str, rules: Sequence[Mapping[str, Any]]) -> None:
    """Limit the cgroup at `directory`, besides the limits of cgroups above it. Raises OSError.

    Other programs of the cgroup stay in force, such as systemd's.
    """
    code = b"".join(_encoded(one) for one in program(rules))
    place = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        loaded = _load(code)
        try:
            syscalls.bpf(_PROG_ATTACH, struct.pack("=4I", place, loaded, _CGROUP_DEVICE, _ALLOW_MULTI), directory)
        finally:
            os.close(loaded)
    except OSError as error:
        said = (error.strerror or "").lower()
        raise OSError(0, f"cannot limit the container's devices: the kernel refuses the BPF filter: {said}") from error
    finally:
        os.close(place)


def _load(code: bytes) -> int:
    instructions, licence = ctypes.create_string_buffer(code, len(code)), ctypes.create_string_buffer(b"GPL")
    attributes = struct.pack(
        "=IIQQIIQII16s",
        *(_CGROUP_DEVICE_PROGRAM, len(code) // 8, ctypes.addressof(instructions), ctypes.addressof(licence)),
        *(0, 0, 0, 0, 0, _NAME),  # no log of the verifier, no version, no flags
    )
    return syscalls.bpf(_PROG_LOAD, attributes, "the BPF filter")


def _encoded(one: Instruction) -> bytes:
    registers = one.source << 4 | one.target if _LITTLE else one.target << 4 | one.source
    return struct.pack("=BBhi", one.code, registers, one.offset, one.number)


_LITTLE = struct.pack("=H", 1) == b"\1\0"
