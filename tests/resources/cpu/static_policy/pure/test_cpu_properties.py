"""Properties of any history of pods: no CPU twice, none of the reserved ones, and all free again at the end."""

from hypothesis import given
from hypothesis import strategies as st

from actors.resources.cpu.state import decode, encode
from actors.resources.model.hints import ANY, Hint
from actors.resources.model.provider import AllocationError
from tests.resources.cpu.machines import CACHES_HT, DUAL_HT, DUAL_NO_HT, MULTI_NUMA_HT, SINGLE_HT
from tests.resources.cpu.pods import container, make_pod
from tests.resources.cpu.static_policy.static_cases import policy

FULL, OVER_NODES, BY_CACHE = "full-pcpus-only", "distribute-cpus-across-numa", "prefer-align-cpus-by-uncorecache"
MACHINES = st.sampled_from([SINGLE_HT, DUAL_HT, DUAL_NO_HT, MULTI_NUMA_HT, CACHES_HT])
OPTIONS = st.sampled_from(
    [
        (),
        (FULL,),
        (OVER_NODES,),
        (FULL, OVER_NODES),
        (BY_CACHE,),
        (BY_CACHE, FULL),
        ("distribute-cpus-across-cores",),
        ("align-by-socket",),
        ("strict-cpu-reservation",),
    ]
)
CPUS = st.integers(0, 9).map(str)
POD = st.tuples(
    st.lists(st.tuples(CPUS, st.booleans()), max_size=2), st.lists(CPUS, min_size=1, max_size=3), st.just("") | CPUS
)
STEP = st.tuples(st.integers(0, 3), POD, st.sampled_from([None, {0}, {0, 1}]))


def built(uid, described):
    init, containers, own = described
    before = [container(f"i{at}", cpus, sidecar=side) for at, (cpus, side) in enumerate(init)]
    return make_pod(uid, *(container(f"c{at}", cpus) for at, cpus in enumerate(containers)), init=before, own=own)


def running_at_once(pod, state):
    """Sets of the containers that run beside each other."""
    names = [one.name for one in pod.spec.init_containers if one.restart_policy == "Always"]
    names += [one.name for one in pod.spec.containers]
    return [state.of(pod.metadata.uid, name) for name in names if state.of(pod.metadata.uid, name) is not None]


def check(static, state, pods):
    assert static.problem(state) == ""
    for pod in pods.values():
        alone = [one for one in running_at_once(pod, state) if pod.metadata.uid not in state.pods]
        assert sum(map(len, alone)) == len(frozenset().union(*alone))
        for each in (*pod.spec.init_containers, *pod.spec.containers):
            if static.is_exclusive(state, pod, each):
                cpus = state.of(pod.metadata.uid, each.name)
                assert len(cpus) == static.requests.of_container(pod, each)
                assert not cpus & (static.reserved | state.shared)


@given(MACHINES, OPTIONS, st.booleans(), st.integers(1, 3), st.lists(STEP, max_size=12))
def test_no_cpu_is_given_twice_and_all_return(topology, options, pod_scope, reserved, steps):
    static = policy(topology, *options, count=reserved, pod_scope=pod_scope)
    state, pods = static.initial(), {}
    for number, described, nodes in steps:
        uid = f"p{number}"
        if uid in pods:
            state.remove_pod(uid)
            del pods[uid]
        else:
            pod = pods[uid] = built(uid, described)
            affinity = ANY if nodes is None else Hint(frozenset(nodes), preferred=True)
            try:
                for each in (*pod.spec.init_containers, *pod.spec.containers):
                    static.allocate(state, pod, each, affinity)
                    assert not static.allocate(state, pod, each, affinity)
            except AllocationError:
                state.remove_pod(uid)
                del pods[uid]
        check(static, state, pods)
        assert decode(encode(state, "static", pod_level=pod_scope), "static") == state
    for uid in pods:
        state.remove_pod(uid)
    assert state == static.initial()


@given(MACHINES, OPTIONS, st.data())
def test_any_free_cpus_that_suffice_serve_the_request(topology, options, data):
    static = policy(topology, *options)
    free = frozenset(data.draw(st.sets(st.sampled_from(sorted(topology.ids)))))
    count = data.draw(st.integers(0, len(free)))
    taken = static.take(free, count)
    assert taken <= free
    assert len(taken) == count


@given(MACHINES, OPTIONS, st.data())
def test_hints_name_nodes_that_have_the_cpus(topology, options, data):
    static = policy(topology, *options)
    state = static.initial()
    state.shared = frozenset(data.draw(st.sets(st.sampled_from(sorted(topology.ids)))))
    pod = built("p", ([], [str(data.draw(st.integers(1, 20)))], ""))
    hints = static.pod_hints(state, pod)["cpu"]
    for hint in hints:
        assert len(topology.in_nodes(hint.nodes) & state.shared) >= static.requests.of_pod(pod)
    assert bool(hints) == (len(state.shared) >= static.requests.of_pod(pod))
