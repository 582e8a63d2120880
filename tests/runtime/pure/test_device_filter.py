"""The BPF program that limits devices, run by a small interpreter of its instructions."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.runtime.helper.kernel.device_filter import Instruction, program
from actors.runtime.oci.spec.security import device_rules

KINDS = {"b": 1, "c": 2}
ACCESS = {"m": 1, "r": 2, "w": 4}
DENY_ALL = {"allow": False, "access": "rwm"}
NULL = {"allow": True, "type": "c", "major": 1, "minor": 3, "access": "rw"}


def run(code: list[Instruction], kind: str, major: int, minor: int, access: str) -> bool:
    """The verdict of the program. Fails on an instruction that is never reached, as the kernel does."""
    assert reached(code) == set(range(len(code)))
    memory = {0: KINDS[kind] | sum(ACCESS[one] for one in access) << 16, 4: major, 8: minor}
    registers = dict.fromkeys(range(6), -1)
    place = 0
    while True:
        one = code[place]
        place += 1
        match one.code:
            case 0x61:
                assert registers[one.source] == -1, "the context has been overwritten"
                registers[one.target] = memory[one.offset]
            case 0x57:
                registers[one.target] &= one.number
            case 0x77:
                registers[one.target] >>= one.number
            case 0xBF:
                registers[one.target] = registers[one.source]
            case 0xB7:
                registers[one.target] = one.number
            case 0x15:
                place += one.offset if registers[one.target] == one.number else 0
            case 0x55:
                place += one.offset if registers[one.target] != one.number else 0
            case 0x95:
                return bool(registers[0])
            case unknown:
                pytest.fail(f"opcode {unknown:#x}")


def reached(code: list[Instruction]) -> set[int]:
    found: set[int] = set()
    ways = [0]
    while ways:
        place = ways.pop()
        if place in found:
            continue
        found.add(place)
        if code[place].code != 0x95:
            ways.append(place + 1)
        if code[place].code in (0x15, 0x55):
            ways.append(place + 1 + code[place].offset)
    return found


@pytest.mark.parametrize(
    ("rules", "device", "allowed"),
    [
        ([DENY_ALL], ("c", 1, 3, "r"), False),
        ([], ("c", 1, 3, "r"), False),
        ([{"allow": True, "access": "rwm"}], ("b", 8, 0, "w"), True),
        ([DENY_ALL, NULL], ("c", 1, 3, "rw"), True),
        ([DENY_ALL, NULL], ("c", 1, 3, "r"), True),
        ([DENY_ALL, NULL], ("c", 1, 3, "m"), False),
        ([DENY_ALL, NULL], ("c", 1, 5, "r"), False),
        ([DENY_ALL, NULL], ("c", 5, 3, "r"), False),
        ([DENY_ALL, NULL], ("b", 1, 3, "r"), False),
        ([NULL, DENY_ALL], ("c", 1, 3, "r"), False),
        ([DENY_ALL, {"allow": True, "type": "c", "access": "m"}], ("c", 10, 200, "m"), True),
        ([DENY_ALL, {"allow": True, "type": "c", "access": "m"}], ("c", 10, 200, "r"), False),
        ([DENY_ALL, {"allow": True, "type": "c", "major": 136, "minor": -1, "access": "rw"}], ("c", 136, 9, "w"), True),
        ([DENY_ALL, {"allow": True, "type": "a", "major": 7, "access": "r"}], ("b", 7, 1, "r"), True),
        ([DENY_ALL, NULL, {**NULL, "allow": False, "access": "w"}], ("c", 1, 3, "rw"), False),
        ([DENY_ALL, NULL, {**NULL, "allow": False, "access": "w"}], ("c", 1, 3, "r"), True),
        ([{"allow": True}, {"allow": False, "type": "b"}], ("b", 8, 0, "r"), False),
        ([{"allow": True}, {"allow": False, "type": "b"}], ("c", 8, 0, "r"), True),
    ],
)
def test_filter_decides(rules: list[dict[str, Any]], device: tuple[str, int, int, str], allowed: bool) -> None:
    assert run(program(rules), *device) is allowed


def test_an_ordinary_containers_devices() -> None:
    disk = {"type": "b", "major": 8, "minor": 16}
    code = program(device_rules([disk], ["r"], privileged=False))
    assert run(code, "c", 1, 9, "rw")
    assert run(code, "c", 136, 4, "rw")
    assert run(code, "b", 8, 16, "r")
    assert run(code, "b", 8, 0, "m")
    assert not run(code, "b", 8, 16, "w")
    assert not run(code, "c", 1, 1, "r")  # /dev/mem
    assert run(program(device_rules([disk], ["r"], privileged=True)), "c", 1, 1, "rw")


NUMBERS = st.one_of(st.none(), st.integers(-1, 2))
ACCESSES = st.sets(st.sampled_from("rwm"), min_size=1).map("".join)
RULES = st.fixed_dictionaries(
    {
        "allow": st.booleans(),
        "type": st.sampled_from(["", "a", "b", "c"]),
        "major": NUMBERS,
        "minor": NUMBERS,
        "access": ACCESSES,
    }
)


@given(st.lists(RULES, max_size=6), st.sampled_from("bc"), st.integers(0, 2), st.integers(0, 2), ACCESSES)
def test_filter_agrees_with_the_rules(
    rules: list[dict[str, Any]], kind: str, major: int, minor: int, access: str
) -> None:
    expected = False
    for rule in rules:  # the last rule that decides wins
        wanted, ruled = set(access), set(rule["access"])
        decides = wanted <= ruled if rule["allow"] else bool(wanted & ruled)
        numbers = ((rule["major"], major), (rule["minor"], minor))
        matches = rule["type"] in ("", "a", kind) and all(a in (None, -1, b) for a, b in numbers)
        if decides and matches:
            expected = rule["allow"]
    assert run(program(rules), kind, major, minor, access) is expected
