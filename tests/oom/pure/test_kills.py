"""OOM kills in the messages of several kernels, and what names of processes and cgroups can do to them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from actors.oom.kills import GROUP_US, Kill, KillFinder
from actors.oom.record import LogRecord, parse_record, unescaped

MIB = 1 << 20
POD = "/kubepods/burstable/pod0d2f6f4e-0000-4000-8000-000000000001"
CONTAINER = f"{POD}/{'ab' * 32}"
SLICE = "/kubepods.slice/kubepods-pod0d2f6f4e_0000.slice"


def kills(*lines: str, facility: int = 0, step_us: int = 10) -> list[Kill]:
    finder = KillFinder()
    records = (LogRecord(facility, number, 1000 + number * step_us, line) for number, line in enumerate(lines))
    return [kill for kill in map(finder.feed, records) if kill is not None]


V6_1_V2 = (
    "stress invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=984",
    "CPU: 1 PID: 4711 Comm: stress Not tainted 6.1.0-18-amd64 #1  Debian 6.1.76-1",
    "memory: usage 65536kB, limit 65536kB, failcnt 31",
    "swap: usage 0kB, limit 9007199254740988kB, failcnt 0",
    f"Memory cgroup stats for {CONTAINER}:",
    "[  pid  ]   uid  tgid total_vm      rss pgtables_bytes swapents oom_score_adj name",
    "[   4711]     0  4711    17000    16000   176128        0           984 stress",
    f"oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset={'ab' * 32},mems_allowed=0,"
    f"oom_memcg={CONTAINER},task_memcg={CONTAINER},task=stress,pid=4711,uid=0",
    "Memory cgroup out of memory: Killed process 4711 (stress) total-vm:68000kB, anon-rss:62464kB, "
    "file-rss:1024kB, shmem-rss:0kB, UID:0 pgtables:172kB oom_score_adj:984",
)
V4_19_V1 = (
    "python invoked oom-killer: gfp_mask=0x6000c0(GFP_KERNEL), nodemask=(null), order=0, oom_score_adj=999",
    "python cpuset=abcd mems_allowed=0",
    f"Task in {CONTAINER} killed as a result of limit of {POD}",
    "memory: usage 51200kB, limit 51200kB, failcnt 12",
    "memory+swap: usage 51200kB, limit 9007199254740988kB, failcnt 0",
    "Memory cgroup out of memory: Kill process 900 (python) score 1990 or sacrifice child",
    "Killed process 901 (python) total-vm:60000kB, anon-rss:51200kB, file-rss:0kB, shmem-rss:1024kB",
)


def test_kill_of_kernel_6_1_with_cgroup_v2() -> None:
    (kill,) = kills(*V6_1_V2)
    assert kill == Kill(
        sequence=8,
        stamp_us=1080,
        pid=4711,
        process="stress",
        resident_bytes=62 * MIB,
        of_node=False,
        cgroup=CONTAINER,
        limited=CONTAINER,
        limit_bytes=64 * MIB,
        usage_bytes=64 * MIB,
    )


def test_kill_of_kernel_4_19_with_cgroup_v1() -> None:
    (kill,) = kills(*V4_19_V1)
    assert (kill.pid, kill.cgroup, kill.limited, kill.of_node) == (901, CONTAINER, POD, False)
    assert (kill.resident_bytes, kill.limit_bytes) == (51 * MIB, 50 * MIB)


def test_kill_of_kernel_5_4_has_the_user_before_the_sizes() -> None:
    (kill,) = kills(
        "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=x,mems_allowed=0-1,"
        f"oom_memcg={POD},task_memcg={CONTAINER},task=java,pid=12,uid=1000",
        "Memory cgroup out of memory: Killed process 12 (java), UID 1000, total-vm:9kB, anon-rss:4kB, file-rss:0kB, "
        "shmem-rss:0kB",
    )
    assert (kill.cgroup, kill.limited, kill.limit_bytes) == (CONTAINER, POD, 0)


def test_node_out_of_memory_names_the_victims_cgroup() -> None:
    (kill,) = kills(
        "oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0,global_oom,"
        f"task_memcg={SLICE}/cri-containerd-{'ab' * 32}.scope,task=mysqld,pid=77,uid=999",
        "Out of memory: Killed process 77 (mysqld) total-vm:1kB, anon-rss:1kB, file-rss:0kB, shmem-rss:0kB, UID:999 "
        "pgtables:60kB oom_score_adj:0",
    )
    assert (kill.of_node, kill.cgroup, kill.limited) == (True, f"{SLICE}/cri-containerd-{'ab' * 32}.scope", "")


def test_node_out_of_memory_on_kernel_4_19() -> None:
    (kill,) = kills(
        "a invoked oom-killer: gfp_mask=0x6280ca(GFP_HIGHUSER_MOVABLE|__GFP_ZERO), nodemask=(null), order=0",
        "Out of memory: Kill process 5 (a) score 900 or sacrifice child",
        "Killed process 5 (a) total-vm:1kB, anon-rss:1kB, file-rss:0kB, shmem-rss:0kB",
    )
    assert (kill.of_node, kill.cgroup) == (True, "")


def test_other_processes_of_a_killed_group_have_its_cgroup() -> None:
    group = (
        *V6_1_V2,
        f"Tasks in {CONTAINER} are going to be killed due to memory.oom.group set",
        V6_1_V2[-1].replace("4711 (stress)", "4712 (child)"),
        V6_1_V2[-1].replace("4711 (stress)", "4713 (child)"),
    )
    assert [(one.pid, one.cgroup) for one in kills(*group)] == [(pid, CONTAINER) for pid in (4711, 4712, 4713)]
    late = kills(*group, step_us=GROUP_US + 1)
    assert [one.cgroup for one in late] == [CONTAINER, "", ""], "it may be a kill in another cgroup"


def test_kill_without_its_own_messages_has_no_cgroup() -> None:
    other = V6_1_V2[-1].replace("4711 (stress)", "99 (other)")
    first, second = kills(*V6_1_V2, other)
    assert (first.cgroup, second.cgroup, second.limit_bytes) == (CONTAINER, "", 0)
    (kill,) = kills(V4_19_V1[-1])
    assert (kill.cgroup, kill.of_node) == ("", False)


def test_messages_of_user_space_are_not_read() -> None:
    assert kills(*V6_1_V2, facility=1) == []


def test_records_are_split_and_others_refused() -> None:
    data = b"3,64985,13810938084,-;Killed a\\x0ab\n SUBSYSTEM=x\n"
    assert parse_record(data) == LogRecord(0, 64985, 13810938084, "Killed a\\x0ab")
    assert parse_record(b"14,1,2,c,caller=T1;x\n") == LogRecord(1, 1, 2, "x")
    for bad in (b"", b"3,1;x", b"-3,1,1,-;x", b"3,1,1,-", b"3," + b"9" * 100 + b",1,-;x", b"\xff" * 50):
        assert parse_record(bad) is None
    assert unescaped("a\\x0ab\\x5c\\xff\\xc3\\xa4") == "a\nb\\\\xffä"


NAMES = st.text("abc,=:()/ 0123456789;", min_size=1, max_size=15) | st.sampled_from(
    (
        ",pid=1,uid=0", "x) total-vm:1kB", "Out of memory: ", ",task_memcg=/", "oom-kill:constr", ",task=a,pid=1",
        " invoked oom-ki", ") (", "Killed process ",
    )
)  # fmt: skip
OTHER = "/kubepods/podVICTIM"
BELOW = st.lists(
    st.sampled_from(
        (
            "", "/a", ",task_memcg=", OTHER, ",task=", "x,pid=1,uid=0", " killed as a result of limit of ", "/",
            ",global_oom,", ",oom_memcg=", CONTAINER, ",mems_allowed=0",
        )
    ),
    max_size=6,
).map("".join)  # fmt: skip
LABEL = st.lists(
    st.sampled_from(("x", ",mems_allowed=0", ",oom_memcg=", ",task_memcg=", ",global_oom", "=")), max_size=5
).map("".join)


@given(NAMES, BELOW, BELOW, LABEL)
def test_names_do_not_move_a_kill_to_another_pod(name: str, limited: str, below: str, cpuset: str) -> None:
    limited = f"{CONTAINER}/{limited}" if limited else CONTAINER
    cgroup = f"{limited}/{below}" if below else limited
    new = (
        f"{name} invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0",
        f"[   4711]     0  4711    17000    16000   176128        0           984 {name}",
        f"oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset={cpuset},mems_allowed=0,oom_memcg={limited},"
        f"task_memcg={cgroup},task={name},pid=4711,uid=0",
        f"Memory cgroup out of memory: Killed process 4711 ({name}) total-vm:1kB, anon-rss:4kB, file-rss:0kB, "
        "shmem-rss:0kB, UID:0 pgtables:172kB oom_score_adj:984",
    )
    old = (
        new[0],
        f"Task in {cgroup} killed as a result of limit of {limited}",
        f"Memory cgroup out of memory: Kill process 4711 ({name}) score 1990 or sacrifice child",
        f"Killed process 4711 ({name}) total-vm:1kB, anon-rss:4kB, file-rss:0kB, shmem-rss:0kB",
    )
    for lines in (new, old):
        (kill,) = kills(*lines)
        assert (kill.pid, kill.process, kill.resident_bytes, kill.of_node) == (4711, name, 4096, False)
        for path in (kill.cgroup, kill.limited):
            assert path == CONTAINER or path.startswith(f"{CONTAINER}/")
    node = new[2].replace(f"oom_memcg={limited},", "global_oom,", 1)
    if f"oom_memcg={limited}," not in f",cpuset={cpuset}":
        (kill,) = kills(node, new[3].replace("Memory cgroup out", "Out"))
        assert kill.of_node
        assert kill.cgroup.startswith(CONTAINER)


@given(st.binary(max_size=300))
def test_any_bytes_are_read_without_an_error(data: bytes) -> None:
    record = parse_record(b"3,1,1,-;" + data)
    if record is not None:
        KillFinder().feed(record)
        unescaped(record.text)
