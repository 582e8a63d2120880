"""The image_gc actor as a process, against a runtime of lists; and on containerd where marked."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from actors._cri.client import Cri
from actors._host.files import checkpoint
from actors._host.files.own_pods import mark_pod
from actors.image_gc.mounts import AT_ONCE
from proto.agent.actor import Describe
from proto.cri import api_pb2 as pb
from proto.node.image_gc import CollectGarbage, DeleteUnusedImages, PlanCollection
from proto.node.stats import FsStats, GetNodeStats, NodeStats
from proto.pods.events import RecordEvent
from proto.wire.errors import Refused
from tests.containerd import BUSYBOX, PAUSE, ContainerdInstance
from tests.containerd.images import Image
from tests.containerd.pods import container_config, run_pod, sandbox_config
from tests.harness import ActorProcess, actor_process, wait_for
from tests.image_gc.runtime import ListRuntime, list_runtime
from tests.runtime.images.build import Made, entry, tar
from tests.runtime.instance import EmbeddedInstance


def node(available: int, capacity: int = 1000) -> NodeStats:
    fs = FsStats(path="/", device=1, capacity_bytes=capacity, available_bytes=available, inodes=1, inodes_free=1)
    return NodeStats(
        time=0.0,
        memory_capacity_bytes=1,
        memory_working_set_bytes=0,
        memory_available_bytes=1,
        nodefs=fs,
        imagefs=fs,
    )


def disk(runtime: ListRuntime, available: int, freed: int = 30) -> Callable[[GetNodeStats], NodeStats]:
    """A disk on which each image that is gone freed so many bytes."""
    before = len(runtime.images)
    return lambda _: node(available + freed * (before - len(runtime.images)))


@pytest.fixture
def runtime(tmp_path: Path) -> Iterator[ListRuntime]:
    with list_runtime(tmp_path) as runtime:
        for number in range(4):
            name = f"sha{number}"
            runtime.images[name] = pb.Image(id=name, repo_tags=[f"tag{number}"], repo_digests=[f"r@{name}"], size=30)
        yield runtime


def of_agent(name: str) -> str:
    """A prelude: the actor belongs to that start of the agent. The harness is no supervisor with a pidfd."""
    return f"from actors._host import system; system.agent_id = lambda _: {name!r}; "


def image_gc(runtime: ListRuntime, **settings: Any) -> ActorProcess:
    settings = {"image_minimum_gc_age_s": 0.0} | settings
    process = ActorProcess(
        "image_gc", None, ("stats", "pleg", "events"), container_runtime_endpoint=runtime.endpoint,
        prelude=of_agent("first"), **settings,
    )  # fmt: skip
    process.peers["stats"].answers[GetNodeStats] = lambda _: node(500)
    return process


def settled(actor: ActorProcess, images: int = 4) -> None:
    """Wait until the first look, after which all images count as old, is saved."""
    wait_for(lambda: actor.ask(Describe()).state["images"] == images, 10, "the first look")
    saved(actor)


def saved(actor: ActorProcess) -> None:
    """Wait for the checkpoint."""
    wait_for(Path(actor.settings.root_dir, "nodevisor/image_gc.json").exists, 10, "the checkpoint")


def test_it_frees_down_to_the_low_threshold_and_no_further(runtime: ListRuntime) -> None:
    with image_gc(runtime) as actor:
        settled(actor)
        actor.peers["stats"].answers[GetNodeStats] = disk(runtime, 150)
        collected = actor.ask(CollectGarbage())
        assert (collected.freed_bytes, len(collected.removed)) == (60, 2)  # 50 were wanted
        actor.peers["stats"].answers[GetNodeStats] = lambda _: node(500)
        assert actor.ask(CollectGarbage()).removed == ()


def test_images_in_use_pinned_or_for_sandboxes_stay(runtime: ListRuntime) -> None:
    runtime.containers["c"] = pb.Container(id="c", image_ref="sha0", state=pb.CONTAINER_EXITED)
    runtime.images["sha1"].pinned = True
    runtime.sandbox_image = "tag2"
    with image_gc(runtime) as actor:
        settled(actor)
        assert actor.ask(DeleteUnusedImages()).removed == ("sha3",)
        assert sorted(runtime.images) == ["sha0", "sha1", "sha2"]


def mounts(runtime: ListRuntime, container: str, *images: str) -> None:
    """Put a container there that mounts the images, in a pod with other volumes."""
    mounted = [pb.Mount(container_path=f"/{one}", image=pb.ImageSpec(image=one)) for one in images]
    runtime.mounts[container] = [pb.Mount(container_path="/tmp", host_path="/x"), *mounted]
    runtime.containers[container] = pb.Container(id=container, image_ref="sha0", state=pb.CONTAINER_EXITED)


def test_images_that_are_mounted_as_volumes_stay(runtime: ListRuntime) -> None:
    mounts(runtime, "c1", "sha1")
    runtime.mounts["c1"][1].image.image_ref = "sha2"
    mounts(runtime, "c2")
    with image_gc(runtime) as actor:
        settled(actor)
        assert actor.ask(DeleteUnusedImages()).removed == ("sha3",)
        runtime.containers["c2"] = pb.Container(id="c2", image_ref="sha0")
        del runtime.containers["c1"]
        assert sorted(actor.ask(DeleteUnusedImages()).removed) == ["sha1", "sha2"]


def test_mounts_of_a_container_are_read_once(runtime: ListRuntime) -> None:
    for number in range(20):
        mounts(runtime, f"c{number}", "sha1")
    with image_gc(runtime) as actor:
        settled(actor)
        assert sorted(actor.ask(DeleteUnusedImages()).removed) == ["sha2", "sha3"]
        mounts(runtime, "new", "sha1")
        runtime.images["more"] = pb.Image(id="more", repo_digests=["r@more"], size=30)
        assert actor.ask(DeleteUnusedImages()).removed == ()  # it is new
        assert actor.ask(DeleteUnusedImages()).removed == ("more",)
        assert sorted(runtime.removed("ContainerStatus")) == sorted(runtime.containers)


def test_mounts_are_not_read_where_no_image_could_go(runtime: ListRuntime) -> None:
    mounts(runtime, "c", "sha1")
    with image_gc(runtime, protected_images=("tag*",)) as actor:
        settled(actor)
        assert actor.ask(DeleteUnusedImages()).removed == ()
        assert runtime.removed("ContainerStatus") == []


def test_no_image_goes_while_mounts_are_unknown(runtime: ListRuntime) -> None:
    mounts(runtime, "c", "sha1")
    mounts(runtime, "gone", "sha2")
    runtime.unreadable = {"c": grpc.StatusCode.UNKNOWN, "gone": grpc.StatusCode.NOT_FOUND}
    with image_gc(runtime) as actor:
        with pytest.raises(Refused, match="cannot read the mounts of container c: c is broken") as caught:
            actor.ask(DeleteUnusedImages())
        assert caught.value.reason == "ImageGCFailed"
        assert len(runtime.images) == 4
        runtime.unreadable["c"] = grpc.StatusCode.NOT_FOUND
        settled(actor)
        assert sorted(actor.ask(DeleteUnusedImages()).removed) == ["sha1", "sha2", "sha3"]


def first_look_fails(runtime: ListRuntime, again_s: float) -> ActorProcess:
    mounts(runtime, "c")
    runtime.unreadable = {"c": grpc.StatusCode.UNKNOWN}
    process = image_gc(runtime, image_minimum_gc_age_s=3600.0)
    process.prelude += f"from actors.image_gc import actor; actor.FIRST_LOOK_S = {again_s}\n"
    return process


def test_collection_before_the_first_look_takes_no_new_image(runtime: ListRuntime) -> None:
    with first_look_fails(runtime, 3600.0) as actor:
        wait_for(lambda: "c is broken" in actor.ask(Describe()).state["last_error"], 10, "the first look fails")
        runtime.unreadable.clear()
        runtime.images["new"] = pb.Image(id="new", repo_digests=["r@new"], size=30)
        assert actor.ask(DeleteUnusedImages()).removed == ()
        assert "new" in runtime.images


def test_first_look_that_failed_is_soon_repeated(runtime: ListRuntime) -> None:
    with first_look_fails(runtime, 0.05) as actor:
        wait_for(lambda: "c is broken" in actor.ask(Describe()).state["last_error"], 10, "the first look fails")
        runtime.unreadable.clear()
        settled(actor)
        assert sorted(actor.ask(DeleteUnusedImages()).removed) == ["sha1", "sha2", "sha3"]


def test_late_mounts_leave_all_images_until_they_are_read(runtime: ListRuntime) -> None:
    for number in range(3 * AT_ONCE):
        mounts(runtime, f"c{number}", "sha1")
    process = image_gc(runtime)
    # AT_ONCE containers a look. A second first look would be one more before the test's own.
    process.prelude += "from actors.image_gc import actor, mounts; actor.FIRST_LOOK_S, mounts.READ_S = 3600.0, 0.0\n"
    with process as actor:
        with pytest.raises(Refused, match="containers are not known after 0 s") as caught:
            actor.ask(DeleteUnusedImages())
        assert caught.value.reason == "ImageGCFailed"
        assert len(runtime.images) == 4

        def removed() -> tuple[str, ...]:
            try:
                return actor.ask(DeleteUnusedImages()).removed
            except Refused:
                return ()

        assert sorted(wait_for(removed, 10, "all mounts are read")) == ["sha2", "sha3"]
        assert sorted(runtime.removed("ContainerStatus")) == sorted(runtime.containers)


def test_image_that_gets_mounted_during_a_collection_stays(runtime: ListRuntime) -> None:
    with image_gc(runtime) as actor:
        settled(actor)
        free = disk(runtime, 0)

        def mount_meanwhile(request: GetNodeStats) -> NodeStats:
            if len(runtime.images) == 3:
                mounts(runtime, "c", "sha1")
            return free(request)

        actor.peers["stats"].answers[GetNodeStats] = mount_meanwhile
        with pytest.raises(Refused, match="only found 90 bytes"):
            actor.ask(CollectGarbage())
        assert list(runtime.images) == ["sha1"]


def test_no_image_goes_while_the_runtime_has_a_foreign_pod(runtime: ListRuntime) -> None:
    labels = {"io.kubernetes.pod.uid": "theirs"}
    runtime.sandboxes["s"] = pb.PodSandbox(id="s", labels=labels, state=pb.SANDBOX_NOTREADY)
    with image_gc(runtime) as actor:
        settled(actor)
        actor.peers["stats"].answers[GetNodeStats] = lambda _: node(0)
        assert actor.ask(DeleteUnusedImages()).removed == ()
        with pytest.raises(Refused) as caught:
            actor.ask(CollectGarbage())
        assert caught.value.reason == "FreeDiskSpaceFailed"
        assert len(runtime.images) == 4
        assert "'theirs'" in actor.ask(Describe()).state["keeps_all"]
        mark_pod(actor.settings.root_dir, "theirs")  # it is ours after all
        assert len(actor.ask(DeleteUnusedImages()).removed) == 4


def test_with_keep_images_no_image_goes(runtime: ListRuntime) -> None:
    with image_gc(runtime, keep_images=True) as actor:
        settled(actor)
        assert actor.ask(DeleteUnusedImages()).removed == ()
        assert len(runtime.images) == 4


def test_plan_names_the_images_that_then_go(runtime: ListRuntime) -> None:
    with image_gc(runtime) as actor:
        settled(actor)
        actor.peers["stats"].answers[GetNodeStats] = disk(runtime, 150)
        supposed = actor.ask(PlanCollection(available_bytes=100))
        plan = actor.ask(PlanCollection())
        assert [(one.id, one.name, one.rule, one.bytes) for one in plan.victims] == [
            (f"sha{number}", f"r@sha{number}", "disk space", 30) for number in (0, 1)
        ]
        assert [one.id for one in supposed.victims] == ["sha0", "sha1", "sha2", "sha3"]
        assert not runtime.removed("RemoveImage"), "a plan removes nothing"
        assert actor.ask(CollectGarbage()).removed == tuple(one.id for one in plan.victims)


def test_shared_layers_are_counted_once(runtime: ListRuntime) -> None:
    with image_gc(runtime) as actor:
        settled(actor)
        actor.peers["stats"].answers[GetNodeStats] = disk(runtime, 150, freed=20)
        collected = actor.ask(CollectGarbage())
        assert (collected.freed_bytes, len(collected.removed)) == (60, 3)  # 50 were wanted, and each has 30


def test_protected_and_local_images_stay(runtime: ListRuntime) -> None:
    runtime.images["local"] = pb.Image(id="local", repo_tags=["imported:1"], size=30)
    with image_gc(runtime, protected_images=("tag[01]", "*g2")) as actor:
        settled(actor, 5)
        assert sorted(actor.ask(DeleteUnusedImages()).removed) == ["sha3"]
    with image_gc(runtime, collect_local_images=True) as actor:
        settled(actor, 4)
        assert "local" in actor.ask(DeleteUnusedImages()).removed


def test_each_removal_is_an_event_with_rule_age_and_bytes(runtime: ListRuntime) -> None:
    with image_gc(runtime) as actor:
        settled(actor)
        actor.peers["stats"].answers[GetNodeStats] = disk(runtime, 150)
        actor.ask(CollectGarbage())
        # The first message to a peer goes by a connection that is made then, and may come after the answer.
        wait_for(lambda: len(actor.peers["events"].of(RecordEvent)) >= 2, 10, "their events")
        events = actor.peers["events"].of(RecordEvent)
        assert [(one.involved.kind, one.type, one.reason) for one in events] == [
            ("Image", "Normal", "ImageRemoved")
        ] * 2
        assert [one.involved.name for one in events] == ["sha0", "sha1"]
        assert events[0].message == "Removed image r@sha0 of 30 bytes: to free disk space, never seen in use"


def test_a_collection_tells_how_it_differs_from_the_plan(runtime: ListRuntime) -> None:
    with image_gc(runtime) as actor:
        settled(actor)
        actor.peers["stats"].answers[GetNodeStats] = disk(runtime, 150)
        assert [one.id for one in actor.ask(PlanCollection()).victims] == ["sha0", "sha1"]
        runtime.containers["c"] = pb.Container(id="c", image_ref="sha0", state=pb.CONTAINER_RUNNING)
        assert actor.ask(CollectGarbage()).removed == ("sha1", "sha2")
        (told,) = wait_for(
            lambda: [one.message for one in actor.peers["events"].of(RecordEvent) if one.reason == "PlanChanged"],
            10,
            "its event",
        )
        assert "r@sha0: was never seen in use, is in use" in told


def test_image_that_gets_used_during_a_collection_stays(runtime: ListRuntime) -> None:
    with image_gc(runtime) as actor:
        settled(actor)
        free = disk(runtime, 0)

        def start_meanwhile(request: GetNodeStats) -> NodeStats:
            if len(runtime.images) == 3:
                runtime.containers["c"] = pb.Container(id="c", image_ref="sha1", state=pb.CONTAINER_RUNNING)
            return free(request)

        actor.peers["stats"].answers[GetNodeStats] = start_meanwhile
        with pytest.raises(Refused, match="only found 90 bytes"):
            actor.ask(CollectGarbage())
        assert list(runtime.images) == ["sha1"]


def test_burst_of_removals_is_an_event_for_each(runtime: ListRuntime) -> None:
    """The recorder takes 25 events of one object in a burst, and combines ten that are alike."""
    for number in range(40):
        runtime.images[f"more{number}"] = pb.Image(id=f"more{number}", repo_digests=[f"r@{number}"], size=1)
    with image_gc(runtime) as actor:
        settled(actor, 44)
        assert len(actor.ask(DeleteUnusedImages()).removed) == 44
        wait_for(lambda: len(actor.peers["events"].of(RecordEvent)) == 44, 10, "their events")
        assert len({one.involved.name for one in actor.peers["events"].of(RecordEvent)}) == 44


def test_too_few_freed_bytes_give_the_kubelets_message(runtime: ListRuntime) -> None:
    runtime.stuck.add("sha0")
    with image_gc(runtime) as actor:
        settled(actor)
        actor.peers["stats"].answers[GetNodeStats] = disk(runtime, 0)
        with pytest.raises(Refused, match="Attempted to free 200 bytes, but only found 90 bytes eligible") as caught:
            actor.ask(CollectGarbage())
        assert caught.value.reason == "FreeDiskSpaceFailed"
        assert list(runtime.images) == ["sha0"]
        assert "Attempted to free" in actor.ask(Describe()).state["last_error"]


def test_disk_without_capacity_removes_nothing(runtime: ListRuntime) -> None:
    with image_gc(runtime) as actor:
        settled(actor)
        actor.peers["stats"].answers[GetNodeStats] = lambda _: node(0, 0)
        with pytest.raises(Refused, match="invalid capacity 0 on image filesystem"):
            actor.ask(CollectGarbage())
        assert len(runtime.images) == 4


def test_failures_are_node_events_and_repeats_are_gc_failures(runtime: ListRuntime) -> None:
    actor = image_gc(runtime, image_gc_period_s=0.05)
    actor.peers["stats"].answers[GetNodeStats] = lambda _: node(0, 0)
    with actor:
        events = actor.peers["events"]
        wait_for(lambda: len(events.of(RecordEvent)) >= 3, 10, "three events")
        said = [(one.involved.kind, one.type, one.reason, one.message) for one in events.of(RecordEvent)[:3]]
        text = "invalid capacity 0 on image filesystem"
        assert said == [
            ("Node", "Warning", "InvalidDiskCapacity", text),
            ("Node", "Warning", "InvalidDiskCapacity", text),
            ("Node", "Warning", "ImageGCFailed", text),
        ]


def test_a_new_image_is_young_and_stays_so_over_a_kill(runtime: ListRuntime) -> None:
    with image_gc(runtime, image_minimum_gc_age_s=3600.0) as actor:
        settled(actor)
        actor.peers["stats"].answers[GetNodeStats] = lambda _: node(500)
        actor.kill()
        runtime.images["new"] = pb.Image(id="new", repo_digests=["r@new"], size=30)  # pulled while the actor was down
        actor.start()
        assert sorted(actor.ask(DeleteUnusedImages()).removed) == ["sha0", "sha1", "sha2", "sha3"]
        actor.restart()
        assert actor.ask(DeleteUnusedImages()).removed == ()
        assert list(runtime.images) == ["new"]


def test_image_that_came_before_the_agents_start_is_old(runtime: ListRuntime) -> None:
    with image_gc(runtime, image_minimum_gc_age_s=3600.0) as actor:
        settled(actor)
        runtime.images["known"] = pb.Image(id="known", repo_digests=["r@known"], size=30)
        assert len(actor.ask(DeleteUnusedImages()).removed) == 4
        wait_for(lambda: actor.ask(Describe()).state["images"] == 1, 10, "the checkpoint has it")
        actor.kill()
        runtime.images["new"] = pb.Image(id="new", repo_digests=["r@new"], size=30)  # pulled while the agent was down
        actor.prelude = of_agent("second")
        actor.start()
        settled(actor, 2)
        assert actor.ask(DeleteUnusedImages()).removed == ("new",)
        runtime.images["newer"] = pb.Image(id="newer", repo_digests=["r@newer"], size=30)
        actor.restart()
        assert actor.ask(DeleteUnusedImages()).removed == ()
        assert list(runtime.images) == ["known", "newer"]


@pytest.mark.parametrize("agent", ["first", "second", ""])
def test_images_go_by_age_only_once_the_agent_has_run_so_long(runtime: ListRuntime, agent: str) -> None:
    """In the checkpoint the agent `first` has observed images for a day, and has not seen them in use."""
    process = image_gc(runtime, image_maximum_gc_age_s=3600.0)
    process.prelude = of_agent(agent)
    images = dict.fromkeys(runtime.images, (0.0, 0.0))
    data = {"agent": "first", "began": time.time() - 86400.0, "images": images}
    checkpoint.save(Path(process.settings.root_dir, "nodevisor/image_gc.json"), 1, data)
    with process as actor:
        if agent == "first":
            wait_for(lambda: not runtime.images, 10, "all are over the maximum age")
        else:
            assert actor.ask(CollectGarbage()).removed == ()
            assert len(runtime.images) == 4


CLOCK = "import time, os; real = time.time; time.time = lambda: real() + 172800.0 * os.path.exists({!r}); "
"""The clock is two days ahead while there is a file of that name."""


@pytest.mark.parametrize("steps_in", ["a plan", "a collection", "a kill"])
def test_step_of_the_clock_makes_no_image_old(runtime: ListRuntime, tmp_path: Path, steps_in: str) -> None:
    step = tmp_path / "step"
    process = image_gc(runtime, image_maximum_gc_age_s=86400.0, image_minimum_gc_age_s=3600.0)
    process.prelude += CLOCK.format(str(step))
    with process as actor:
        settled(actor)
        runtime.images["new"] = pb.Image(id="new", repo_digests=["r@new"], size=30)
        assert actor.ask(CollectGarbage()).removed == ()
        if steps_in == "a kill":
            actor.kill()
        step.touch()
        if steps_in == "a kill":
            actor.start()
        if steps_in == "a plan":
            assert actor.ask(PlanCollection()).victims == ()
        assert actor.ask(CollectGarbage()).removed == ()
        step.unlink()
        assert "new" not in actor.ask(DeleteUnusedImages()).removed


@pytest.mark.parametrize("data", [["list"], {"agent": "first"}, {"agent": "first", "began": 1.0, "images": {"a": 1}}])
def test_checkpoint_of_another_shape_is_left_out(runtime: ListRuntime, data: Any) -> None:
    process = image_gc(runtime)
    checkpoint.save(Path(process.settings.root_dir, "nodevisor/image_gc.json"), 1, data)
    with process as actor:
        assert len(actor.ask(DeleteUnusedImages()).removed) in (0, 4)  # before or after the first look
        settled(actor, len(runtime.images))


def test_last_use_survives_a_kill_and_decides_the_order(runtime: ListRuntime) -> None:
    runtime.containers["c"] = pb.Container(id="c", image_ref="sha0")
    with image_gc(runtime) as actor:
        settled(actor)
        actor.kill()
        runtime.containers.clear()
        actor.peers["stats"].answers[GetNodeStats] = disk(runtime, 110)
        actor.start()  # and it collects at once
        wait_for(lambda: len(runtime.images) == 1, 10, "90 bytes are freed")
        assert list(runtime.images) == ["sha0"]


def test_a_runtime_that_is_down_is_a_refusal_and_no_crash(tmp_path: Path) -> None:
    endpoint = f"unix://{tmp_path}/none.sock"
    settings = {"container_runtime_endpoint": endpoint, "image_gc_period_s": 0.05}
    with actor_process("image_gc", ("stats", "pleg"), **settings) as actor:
        for request in (CollectGarbage(), DeleteUnusedImages()):
            with pytest.raises(Refused) as caught:
                actor.ask(request)
            assert caught.value.reason == "ImageGCFailed"
        wait_for(lambda: _runs(actor) >= 2, 10, "it goes on trying")


def _runs(actor: ActorProcess) -> int:
    return sum(counter.handled for counter in actor.ask(Describe()).messages if counter.type == "every:collect")


def test_on_containerd_only_unused_images_go(containerd: ContainerdInstance, cri: Cri) -> None:
    extra = Image("example.invalid/extra:1", files={"/data": b"x" * 1000})
    containerd.import_images([extra])
    run_pod(cri, "user")
    settings: dict[str, Any] = {"container_runtime_endpoint": containerd.endpoint, "image_minimum_gc_age_s": 0.0}
    settings["collect_local_images"] = True  # containerd has it from an archive
    with actor_process("image_gc", ("stats", "pleg"), **settings) as actor:
        actor.peers["stats"].answers[GetNodeStats] = lambda _: node(500)
        saved(actor)
        unused = cri.image_status(extra.name).result()
        assert unused is not None
        collected = actor.ask(DeleteUnusedImages(), 30)
        assert unused.id in collected.removed
        wait_for(lambda: cri.image_status(extra.name).result() is None, 10, "it is gone")
        for needed in (BUSYBOX, PAUSE):
            assert cri.image_status(needed).result() is not None


def test_on_the_embedded_runtime_a_mounted_image_stays(embedded: EmbeddedInstance, tmp_path: Path) -> None:
    mounted, loose = (f"registry.test/{name}:1" for name in ("mounted", "loose"))
    for name in (mounted, loose):
        archive = Made(tar(entry("file", name.encode())), name=name).write_archive(tmp_path / "image.tar")
        embedded.cri.pull_image(f"oci-archive:{archive}").result()
    sandbox, config = sandbox_config("mounts"), container_config(["sleep", "1000"])
    config.mounts.append(pb.Mount(container_path="/image", image=pb.ImageSpec(image=mounted), readonly=True))
    embedded.cri.create_container(embedded.cri.run_pod_sandbox(sandbox).result(), config, sandbox).result()
    settings: dict[str, Any] = {"container_runtime_endpoint": embedded.endpoint, "image_minimum_gc_age_s": 0.0}
    settings["collect_local_images"] = True
    try:
        with actor_process("image_gc", ("stats", "pleg"), **settings) as actor:
            actor.peers["stats"].answers[GetNodeStats] = lambda _: node(0, 1 << 40)
            saved(actor)
            names = [one.name for one in actor.ask(PlanCollection(available_bytes=0), 30).victims]
            assert loose in names
            assert mounted not in names
    finally:
        embedded.remove_pods()
        for name in (mounted, loose):
            embedded.cri.remove_image(name).result()
