"""RuntimeDefault: the system calls that a container may use, by its capabilities.

It behaves as the default profile of Docker and containerd does (docs.docker.com/engine/security/seccomp). It names what
is allowed: a call of a later kernel is refused until it is added here. A call that is known and refused fails with
EPERM. Any other fails with ENOSYS, as on an older kernel: C libraries then use an older call, where EPERM would make
them fail. OCI runtimes and the helper skip names that their libseccomp does not know.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import Any


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


_ALLOWED = {
    "files": _words(
        "access chmod chown chown32 close close_range copy_file_range creat dup dup2 dup3 faccessat faccessat2 "
        "fadvise64 fadvise64_64 fallocate fchmod fchmodat fchmodat2 fchown fchown32 fchownat fcntl fcntl64 fdatasync "
        "flock fstat fstat64 fstatat64 fsync ftruncate ftruncate64 futimesat ioctl lchown lchown32 link linkat lseek "
        "_llseek lstat lstat64 mknod mknodat name_to_handle_at newfstatat open openat openat2 pipe pipe2 readlink "
        "readlinkat rename renameat renameat2 stat stat64 statx symlink symlinkat sync sync_file_range syncfs truncate "
        "truncate64 umask unlink unlinkat utime utimensat utimensat_time64 utimes"
    ),
    "reading and writing": _words(
        "io_cancel io_destroy io_getevents io_pgetevents io_pgetevents_time64 io_setup io_submit pread64 preadv "
        "preadv2 pwrite64 pwritev pwritev2 read readahead readv sendfile sendfile64 splice tee vmsplice write writev"
    ),
    "directories, file systems, notifications": _words(
        "chdir fanotify_mark fchdir fstatfs fstatfs64 getcwd getdents getdents64 inotify_add_watch inotify_init "
        "inotify_init1 inotify_rm_watch listmount mkdir mkdirat rmdir statfs statfs64 statmount"
    ),
    "extended attributes": _words(
        "fgetxattr flistxattr fremovexattr fsetxattr getxattr getxattrat lgetxattr listxattr listxattrat llistxattr "
        "lremovexattr lsetxattr removexattr removexattrat setxattr setxattrat"
    ),
    "waiting for events": _words(
        "epoll_create epoll_create1 epoll_ctl epoll_ctl_old epoll_pwait epoll_pwait2 epoll_wait epoll_wait_old eventfd "
        "eventfd2 _newselect poll ppoll ppoll_time64 pselect6 pselect6_time64 select signalfd signalfd4"
    ),
    "memory": _words(
        "brk cachestat madvise map_shadow_stack membarrier memfd_create memfd_secret mincore mlock mlock2 mlockall "
        "mmap mmap2 mprotect mremap mseal msync munlock munlockall munmap pkey_alloc pkey_free pkey_mprotect "
        "remap_file_pages"
    ),
    "processes and threads": _words(
        "execve execveat exit exit_group fork futex futex_requeue futex_time64 futex_wait futex_waitv futex_wake "
        "get_robust_list get_thread_area getpgid getpgrp getpid getppid getsid gettid pidfd_open prctl "
        "process_mrelease process_vm_readv process_vm_writev ptrace restart_syscall rseq set_robust_list "
        "set_thread_area set_tid_address setpgid setsid uretprobe vfork wait4 waitid waitpid"
    ),
    "scheduling and limits": _words(
        "getcpu getpriority getrlimit getrusage ioprio_get ioprio_set prlimit64 sched_get_priority_max "
        "sched_get_priority_min sched_getaffinity sched_getattr sched_getparam sched_getscheduler "
        "sched_rr_get_interval sched_rr_get_interval_time64 sched_setaffinity sched_setattr sched_setparam "
        "sched_setscheduler sched_yield setpriority setrlimit ugetrlimit"
    ),
    "signals": _words(
        "kill pause pidfd_send_signal rt_sigaction rt_sigpending rt_sigprocmask rt_sigqueueinfo rt_sigreturn "
        "rt_sigsuspend rt_sigtimedwait rt_sigtimedwait_time64 rt_tgsigqueueinfo sigaltstack sigprocmask sigreturn "
        "tgkill tkill"
    ),
    "users, capabilities, sandboxes": _words(
        "capget capset getegid getegid32 geteuid geteuid32 getgid getgid32 getgroups getgroups32 getresgid getresgid32 "
        "getresuid getresuid32 getuid getuid32 landlock_add_rule landlock_create_ruleset landlock_restrict_self "
        "seccomp setfsgid setfsgid32 setfsuid setfsuid32 setgid setgid32 setgroups setgroups32 setregid setregid32 "
        "setresgid setresgid32 setresuid setresuid32 setreuid setreuid32 setuid setuid32"
    ),
    "time; the kernel lets only CAP_SYS_TIME adjust it": _words(
        "adjtimex alarm clock_adjtime clock_adjtime64 clock_getres clock_getres_time64 clock_gettime clock_gettime64 "
        "clock_nanosleep clock_nanosleep_time64 getitimer gettimeofday nanosleep setitimer time timer_create "
        "timer_delete timer_getoverrun timer_gettime timer_gettime64 timer_settime timer_settime64 timerfd_create "
        "timerfd_gettime timerfd_gettime64 timerfd_settime timerfd_settime64 times"
    ),
    "sockets": _words(
        "accept accept4 bind connect getpeername getsockname getsockopt listen recv recvfrom recvmmsg recvmmsg_time64 "
        "recvmsg send sendmmsg sendmsg sendto setsockopt shutdown socketcall socketpair"
    ),
    "messages, semaphores, shared memory": _words(
        "ipc mq_getsetattr mq_notify mq_open mq_timedreceive mq_timedreceive_time64 mq_timedsend mq_timedsend_time64 "
        "mq_unlink msgctl msgget msgrcv msgsnd semctl semget semop semtimedop semtimedop_time64 shmat shmctl shmdt "
        "shmget"
    ),
    "the machine": _words("getrandom riscv_hwprobe sysinfo uname"),
}
"""Calls that every container may use, by subject."""
_ALLOWED_ON = {
    "x86_64": _words("arch_prctl modify_ldt"),
    "aarch64": _words("arm_fadvise64_64 arm_sync_file_range breakpoint cacheflush set_tls sync_file_range2"),
    "ppc64le": _words("swapcontext sync_file_range2"),
    "riscv64": ("riscv_flush_icache",),
    "s390x": _words("s390_pci_mmio_read s390_pci_mmio_write s390_runtime_instr"),
}
_ALLOWED_ON["armv7l"] = _ALLOWED_ON["aarch64"]
"""Calls of one architecture, by the machine's name in uname(2)."""
_ALLOWED_WITH = {
    "CAP_BPF": ("bpf",),
    "CAP_DAC_READ_SEARCH": ("open_by_handle_at",),
    "CAP_PERFMON": ("perf_event_open",),
    "CAP_SYSLOG": ("syslog",),
    "CAP_SYS_ADMIN": _words(
        "bpf clone clone3 fanotify_init fsconfig fsmount fsopen fspick lookup_dcookie lsm_get_self_attr "
        "lsm_list_modules lsm_set_self_attr mount mount_setattr move_mount open_tree open_tree_attr perf_event_open "
        "quotactl quotactl_fd setdomainname sethostname setns syslog umount umount2 unshare"
    ),
    "CAP_SYS_BOOT": ("reboot",),
    "CAP_SYS_CHROOT": ("chroot",),
    "CAP_SYS_MODULE": _words("delete_module finit_module init_module"),
    "CAP_SYS_NICE": _words("get_mempolicy mbind set_mempolicy set_mempolicy_home_node"),
    "CAP_SYS_PACCT": ("acct",),
    "CAP_SYS_PTRACE": _words("kcmp pidfd_getfd process_madvise"),
    "CAP_SYS_RAWIO": _words("ioperm iopl"),
    "CAP_SYS_TIME": _words("clock_settime clock_settime64 settimeofday stime"),
    "CAP_SYS_TTY_CONFIG": ("vhangup",),
}
"""Calls that need one of these capabilities."""
_REFUSED = _words(
    "_sysctl add_key create_module get_kernel_syms io_uring_enter io_uring_register io_uring_setup kexec_file_load "
    "kexec_load keyctl migrate_pages move_pages nfsservctl pivot_root query_module request_key swapoff swapon sysfs "
    "uselib userfaultfd ustat vm86 vm86old"
)
"""Calls that no capability allows."""
_CONDITIONAL = ("clone", "clone3")
"""Calls with rules of their own where a container has no capability for them."""

_PERSONALITIES = (0, 0x8, 0x20000, 0x20008, 0xFFFFFFFF)
"""Linux, Linux of 32 bits, the same with the version of Linux 2.6, and the question for the current one."""
_ALG, _NFC, _VSOCK, _LAST_FAMILY = 38, 39, 40, 45
"""Address families: AF_ALG is the kernel's cryptography, a large attack surface. AF_VSOCK reaches the hypervisor."""
_CLONE_NEW = 0x7E020000
"""All flags of clone(2) for new namespaces."""
_EPERM, _ENOSYS = 1, 38
_ARCHITECTURES = {
    "x86_64": ["SCMP_ARCH_X86_64", "SCMP_ARCH_X86", "SCMP_ARCH_X32"],
    "aarch64": ["SCMP_ARCH_AARCH64", "SCMP_ARCH_ARM"],
    "s390x": ["SCMP_ARCH_S390X", "SCMP_ARCH_S390"],
}
"""With those of 32 bits, whose programs a container may run."""


def default_seccomp(granted: Iterable[str], machine: str = "") -> dict[str, Any]:
    """linux.seccomp for a container with these capabilities. `machine` is uname's, of this machine if empty."""
    machine, has = machine or os.uname().machine, set(granted)
    named = {call for calls in _ALLOWED_WITH.values() for call in calls}
    with_capabilities = {call for name, calls in _ALLOWED_WITH.items() if name in has for call in calls}
    allowed = {call for calls in _ALLOWED.values() for call in calls}
    allowed |= with_capabilities | set(_ALLOWED_ON.get(machine, ()))
    refused = {*_REFUSED, *named} - with_capabilities - set(_CONDITIONAL)
    rules = [_allow(*sorted(allowed)), _refuse(*sorted(refused)), *_personality(), *_socket()]
    if "CAP_SYS_ADMIN" not in has:
        rules += _clone(machine)
    return {
        "defaultAction": "SCMP_ACT_ERRNO",
        "defaultErrnoRet": _ENOSYS,
        "architectures": _ARCHITECTURES.get(machine, []),
        "syscalls": rules,
    }


def _personality() -> Iterator[dict[str, Any]]:
    """Others weaken memory protection: without address randomisation, or with executable data."""
    for value in _PERSONALITIES:
        yield _allow("personality", when=_compare("EQ", value))


def _socket() -> Iterator[dict[str, Any]]:
    """The kernel looks at 32 bits of the family, a filter at 64: each rule names what it allows, or all above."""
    yield _allow("socket", when=_compare("LT", _ALG))
    yield _refuse("socket", when=_compare("EQ", _ALG))
    yield _allow("socket", when=_compare("EQ", _NFC))
    yield _refuse("socket", when=_compare("EQ", _VSOCK))
    for family in range(_VSOCK + 1, _LAST_FAMILY + 1):
        yield _allow("socket", when=_compare("EQ", family))
    yield _refuse("socket", when=_compare("GT", _LAST_FAMILY))


def _clone(machine: str) -> Iterator[dict[str, Any]]:
    """No new namespaces. One rule refuses each flag: a filter cannot test whether any of several bits is set."""
    index = 1 if machine == "s390x" else 0  # there the stack comes first
    yield _allow("clone", when=_compare("MASKED_EQ", _CLONE_NEW, 0, index))
    for bit in range(32):
        if _CLONE_NEW >> bit & 1:
            yield _refuse("clone", when=_compare("MASKED_EQ", 1 << bit, 1 << bit, index))
    # clone3's flags are in memory, where a filter cannot look; C libraries fall back to clone on ENOSYS.
    yield _refuse("clone3", number=_ENOSYS)


def _compare(how: str, value: int, second: int = 0, index: int = 0) -> list[dict[str, Any]]:
    return [{"index": index, "value": value, "valueTwo": second, "op": f"SCMP_CMP_{how}"}]


def _allow(*names: str, when: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    return {"names": list(names), "action": "SCMP_ACT_ALLOW", **({"args": when} if when else {})}


def _refuse(*names: str, when: list[dict[str, Any]] | None = None, number: int = _EPERM) -> dict[str, Any]:
    return {"names": list(names), "action": "SCMP_ACT_ERRNO", "errnoRet": number, **({"args": when} if when else {})}
