"""RuntimeDefault names what is allowed, and follows the container's capabilities."""

from __future__ import annotations

from typing import Any

import pytest

from actors.runtime.helper.kernel.capabilities import CAPABILITIES
from actors.runtime.oci.spec.seccomp import default_seccomp
from actors.runtime.oci.spec.security import DEFAULT_CAPABILITIES

ALL = tuple(f"CAP_{name}" for name in CAPABILITIES)


def names(profile: dict[str, Any], action: str, errno: int | None = None) -> set[str]:
    """Calls that rules without conditions give an action."""
    rules = [one for one in profile["syscalls"] if one["action"] == f"SCMP_ACT_{action}" and not one.get("args")]
    return {name for rule in rules if rule.get("errnoRet") == errno for name in rule["names"]}


def allowed(*granted: str) -> set[str]:
    return names(default_seccomp(granted), "ALLOW")


def refused(*granted: str) -> set[str]:
    return names(default_seccomp(granted), "ERRNO", 1)


def test_default_filter_allows_calls_of_granted_capabilities() -> None:
    assert {"mount", "reboot", "init_module", "add_key", "syslog", "bpf", "unshare"} <= refused()
    assert "mount" in allowed("CAP_SYS_ADMIN")
    assert {"reboot", "add_key"} <= refused("CAP_SYS_ADMIN")
    assert {"read", "execve", "socketpair", "chroot"} <= allowed(*DEFAULT_CAPABILITIES)


@pytest.mark.parametrize(
    ("capability", "call"),
    [
        ("BPF", "bpf"),
        ("DAC_READ_SEARCH", "open_by_handle_at"),
        ("PERFMON", "perf_event_open"),
        ("SYSLOG", "syslog"),
        ("SYS_ADMIN", "setns"),
        ("SYS_BOOT", "reboot"),
        ("SYS_CHROOT", "chroot"),
        ("SYS_MODULE", "finit_module"),
        ("SYS_NICE", "mbind"),
        ("SYS_PACCT", "acct"),
        ("SYS_PTRACE", "pidfd_getfd"),
        ("SYS_RAWIO", "iopl"),
        ("SYS_TIME", "clock_settime"),
        ("SYS_TTY_CONFIG", "vhangup"),
    ],
)
def test_call_needs_its_capability(capability: str, call: str) -> None:
    assert call in allowed(f"CAP_{capability}")
    assert call in refused(*set(ALL) - {f"CAP_{capability}", "CAP_SYS_ADMIN"})


def test_calls_that_the_list_does_not_know_fail_as_on_an_older_kernel() -> None:
    profile = default_seccomp(ALL)
    assert (profile["defaultAction"], profile["defaultErrnoRet"]) == ("SCMP_ACT_ERRNO", 38)
    assert names(default_seccomp(()), "ERRNO", 38) == {"clone3"}
    assert names(profile, "ERRNO", 38) == set()


def test_no_call_is_both_allowed_and_refused() -> None:
    for granted in ((), DEFAULT_CAPABILITIES, ALL):
        profile = default_seccomp(granted)
        conditional = {name for rule in profile["syscalls"] if rule.get("args") for name in rule["names"]}
        assert allowed(*granted).isdisjoint(refused(*granted))
        assert conditional.isdisjoint(allowed(*granted) | refused(*granted))


@pytest.mark.parametrize(("machine", "index"), [("x86_64", 0), ("aarch64", 0), ("s390x", 1)])
def test_flags_of_clone_are_at_the_machines_place(machine: str, index: int) -> None:
    rules = [one for one in default_seccomp((), machine)["syscalls"] if one["names"] == ["clone"]]
    assert len(rules) == 8
    assert {argument["index"] for rule in rules for argument in rule["args"]} == {index}
