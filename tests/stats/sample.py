"""A reading of a node with two pods: one with all figures, one in the host's network without limits."""

from actors._cgroup.figures import Detail, Figures
from actors._cgroup.transfers import Transfers
from actors._host.files.disk_use import DiskUse
from actors._host.interfaces import Interface
from actors.stats.inventory import Identity
from actors.stats.pages.summary import Disk, Machine
from actors.stats.policy import POD_FILES
from actors.stats.reading import ContainerReading, PodReading, Reading, SystemReading
from proto.node.stats import FsStats
from proto.pods.volume import PodVolumeUsage, VolumeUsage

NOW = 1_795_300_000.0
MIB = 1 << 20


def figures(base: int, limit: int = 0) -> Figures:
    return Figures(
        time=NOW,
        cpu_ns=base * 1_000_000_000,
        memory_bytes=base * MIB,
        working_set_bytes=base * MIB // 2,
        rss_bytes=base * 1000,
        page_faults=base * 10,
        major_page_faults=base,
        memory_limit_bytes=limit,
        swap_bytes=base,
        swap_max_bytes=limit or None,
        detail=Detail(
            cpu_user_ns=1,
            periods=4,
            quota_us=50_000,
            period_us=100_000,
            threads=base,
            threads_max=100,
            shares=2,
            burst_periods=1,
            transfers=(Transfers(8, 0, {"Read": base * 4096, "Write": base * 512}, {"Read": base, "Write": base}),),
        ),
    )


def container(pod: str, name: str, base: int, limit: int = 0, namespace: str = "default") -> ContainerReading:
    id_ = f"{pod}-{name or 'sandbox'}".encode().hex()
    identity = Identity(id_, name, f"uid-{pod}", pod, namespace, "busybox" if name else "", NOW - 60)
    return ContainerReading(identity, f"/kubepods/pod{pod}/{id_}", figures(base, limit), [base])


def pod(name: str, *containers: ContainerReading, interfaces: list[Interface]) -> PodReading:
    return PodReading(
        uid=f"uid-{name}",
        name=name,
        namespace="default",
        started=NOW - 61,
        cgroup=f"/kubepods/pod{name}",
        figures=figures(9, 64 * MIB if interfaces else 0),
        containers=list(containers),
        sandbox=container(name, "", 1),
        interfaces=interfaces,
    )


ETH0 = Interface("eth0", 1000, 10, 1, 2, 2000, 20, 3, 4)

READING = Reading(
    time=NOW,
    node=figures(100),
    interfaces=[Interface("ens5", 1, 1, 1, 1, 1, 1, 1, 1), ETH0],
    ancestors={"/kubepods": figures(50, 512 * MIB), "/kubepods/burstable": figures(40)},
    pods=[
        pod("full", container("full", "web", 3, 32 * MIB), container("full", "side", 2), interfaces=[ETH0]),
        pod("host", container("host", "agent", 4), interfaces=[]),
    ],
    system=[SystemReading("pods", "/kubepods", NOW - 1000, figures(50, 512 * MIB))],
)
MACHINE = Machine("vm", NOW - 5000, 1024 * MIB, 100, "eth0", 32_768, 282)
NODEFS = FsStats(
    path="/", device=2049, capacity_bytes=1000, available_bytes=400, inodes=100, inodes_free=60, used_bytes=500
)
DISK = Disk(
    time=NOW,
    nodefs=NODEFS,
    imagefs=NODEFS,
    containerfs=NODEFS,
    image_use=DiskUse(300, 30),
    layers={one.identity.id: DiskUse(50, 5) for reading in READING.pods for one in reading.containers},
    logs={"uid-full": {"web": DiskUse(7, 1), POD_FILES: DiskUse(4, 1)}},
    volumes={
        "uid-full": PodVolumeUsage(
            pod_uid="uid-full",
            time=NOW - 10,
            volumes=(
                VolumeUsage(name="disk", used_bytes=20, inodes_used=2, local=True),
                VolumeUsage(
                    name="memory",
                    used_bytes=30,
                    inodes_used=3,
                    local=False,
                    capacity_bytes=64,
                    available_bytes=34,
                    inodes=10,
                    inodes_free=7,
                    claim="default/claim",
                ),
            ),
        )
    },
)
