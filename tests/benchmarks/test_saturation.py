import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.saturation.fragmentation import Fragmentation
from benchmarks.saturation.online import ORDERS, fill, in_batches, interleaved, largest_first
from benchmarks.saturation.packing import Packing
from benchmarks.saturation.policies import (
    OWN,
    PUBLISHED,
    FragmentationGradientDescent,
    best_fit,
    dot_product,
    gpu_clustering,
    gpu_packing,
    policy_of,
)
from benchmarks.saturation.published import CEILING
from benchmarks.saturation.published import PUBLISHED as PUBLISHED_MEANS
from benchmarks.saturation.report import Online, online
from benchmarks.saturation.stranding import Stranding, pressures
from benchmarks.saturation.trace import Machine, Shape, shuffled, trace_of
from tests.support.seeds import EVERY_SEED

TRACE = os.environ.get("GPUPLAN_OPENB_DIR")
needs_trace = pytest.mark.skipif(not TRACE, reason="GPUPLAN_OPENB_DIR names no folder with the openb trace")


def share(milli, cpu=1000, models=()):
    return Shape(cpu, milli, 1, models, 1024)


def whole(gpus, cpu=1000, models=()):
    return Shape(cpu, 1000, gpus, models, 1024)


def cpu_only(cpu):
    return Shape(cpu, 0, 0, (), 1024)


def machines(*gpus, cpu=16_000, model="T4"):
    return [Machine(f"n{number}", cpu, 65_536, count, model) for number, count in enumerate(gpus)]


def everywhere(packing):
    return np.arange(len(packing.cpu))


def best(scores):
    return int(scores.argmax())


shapes = st.one_of(
    st.builds(share, st.integers(1, 999), st.integers(1, 8000)),
    st.builds(whole, st.integers(1, 4), st.integers(1, 8000), st.sampled_from([(), ("T4",), ("P100",)])),
    st.builds(cpu_only, st.integers(1, 8000)),
)
fleets = st.lists(
    st.builds(
        lambda gpus, cpu, model: Machine("n", cpu, 65_536, gpus, model),
        st.integers(1, 4),
        st.integers(2000, 16_000),
        st.sampled_from(["T4", "P100"]),
    ),
    min_size=1,
    max_size=5,
)


# --- fragmentation --------------------------------------------------------------------------------------


def test_expected_fragmentation_is_what_each_typical_pod_cannot_use():
    trace = trace_of("x", machines(2), [share(500), whole(2), cpu_only(1000)])
    found = Fragmentation(trace, popular=1.0)
    accepted = np.array([found.accepted("T4")])

    wasted = found.of(np.array([10_000]), np.array([[1000, 400]]), accepted)

    # The share cannot use the GPU with 400 left; two whole GPUs are not there; no GPU helps the third.
    assert wasted == pytest.approx([(400 + 1400 + 1400) / 3])


def test_all_is_fragmented_where_cpu_or_the_model_is_missing():
    trace = trace_of("x", machines(2), [share(500, cpu=2000), share(500, cpu=2000, models=("P100",))])
    found = Fragmentation(trace, popular=1.0)
    accepted = np.array([found.accepted("T4")] * 2)

    wasted = found.of(np.array([1000, 9000]), np.array([[1000, 0], [1000, 0]]), accepted)

    assert wasted == pytest.approx([1000, 500])


def test_typical_pods_are_the_most_frequent_whatever_their_memory():
    pods = [Shape(1000, 500, 1, (), memory) for memory in range(9)] + [whole(4)]

    found = Fragmentation(trace_of("x", machines(2), pods), popular=0.9)

    assert [shape.gpu_milli for shape in found.typical] == [500]
    assert found.weight == pytest.approx([1.0])


# --- policies -------------------------------------------------------------------------------------------


def test_best_fit_takes_the_fullest_node():
    packing = Packing(machines(4, 4))
    packing.place(whole(2), 1, None)

    assert best(best_fit(packing, whole(1), everywhere(packing))) == 1


def test_dot_product_takes_the_node_with_least_of_what_is_asked_for():
    packing = Packing([*machines(4, cpu=96_000), *machines(4, cpu=32_000)])

    assert best(dot_product(packing, whole(2, cpu=16_000), everywhere(packing))) == 1


def test_gpu_packing_prefers_shared_gpus_then_nodes_in_use_then_idle_ones():
    packing = Packing(machines(2, 2, 2))
    packing.place(whole(1), 1, None)
    packing.place(share(300), 2, 0)

    for_share = gpu_packing(packing, share(400), everywhere(packing))
    for_whole = gpu_packing(packing, whole(1), everywhere(packing))

    assert for_share.argsort().tolist() == [0, 1, 2]
    assert for_share.tolist() == [31, 49, 93]
    assert for_whole.tolist() == [31, 49, 49]


def test_gpu_clustering_prefers_nodes_with_pods_of_the_same_size_only():
    packing = Packing(machines(4, 4, 4, 4))
    packing.place(whole(1), 0, None)
    packing.place(whole(1), 1, None)
    packing.place(whole(2), 1, None)
    packing.place(whole(2), 3, None)

    scores = gpu_clustering(packing, whole(1), everywhere(packing))

    assert (-scores).argsort().tolist() == [0, 1, 2, 3]


def test_fgd_cuts_a_share_where_the_rest_is_of_use():
    trace = trace_of("x", machines(2, 2), [share(500)] * 3 + [whole(2)])
    packing = Packing(list(trace.machines))
    packing.place(share(500), 0, 0)
    policy = FragmentationGradientDescent(trace, packing)

    assert best(policy.scores(packing, share(500), everywhere(packing))) == 0
    assert policy.gpu(packing, share(500), 0) == 0


def test_stranding_keeps_heavy_pods_from_nodes_short_of_cpu():
    trace = trace_of("x", [*machines(2, cpu=8000), *machines(2, cpu=64_000)], [whole(1)])
    packing = Packing(list(trace.machines))

    assert best(Stranding(trace, packing).scores(packing, whole(1, cpu=7000), everywhere(packing))) == 1


def test_scarcity_spares_the_model_that_others_name():
    fleet = [*machines(2, model="P100"), *machines(2)]
    trace = trace_of("x", fleet, [whole(1), whole(1, models=("P100",))])
    packing = Packing(fleet)

    plain = Stranding(trace, packing).scores(packing, whole(1), everywhere(packing))
    sparing = Stranding(trace, packing, scarcity=0.01).scores(packing, whole(1), everywhere(packing))

    assert pressures(trace) == {"P100": 0.5, "T4": 0.0}
    assert best(plain) == 0
    assert best(sparing) == 1


def test_a_policy_without_a_name_is_refused():
    trace = trace_of("x", machines(1), [whole(1)])

    with pytest.raises(ValueError, match="FGD"):
        policy_of("FDG", trace, Packing(machines(1)), 0)


def test_a_place_without_room_is_refused():
    packing = Packing(machines(1))
    packing.place(share(700), 0, 0)

    with pytest.raises(ValueError, match="no room"):
        packing.place(share(400), 0, 0)


# --- filling --------------------------------------------------------------------------------------------


def one_by_one(trace, arrivals, pods, name, seed):
    """Allocation after each pod with every node scored anew each time."""
    packing = Packing([trace.machines[index] for index in arrivals.nodes])
    policy = policy_of(name, trace, packing, seed)
    allocated = []
    for pod in pods:
        shape = trace.shapes[pod]
        nodes = np.flatnonzero(packing.allowed(shape) & packing.room(shape, everywhere(packing)))
        if len(nodes):
            node = int(nodes[policy.scores(packing, shape, nodes).argmax()])
            packing.place(shape, node, policy.gpu(packing, shape, node) if shape.is_share else None)
        allocated.append(packing.allocated)
    return allocated


@pytest.mark.slow
@settings(max_examples=25)
@given(fleet=fleets, pods=st.lists(shapes, min_size=1, max_size=25), seed=st.integers(0, 9), data=st.data())
def test_scores_kept_up_to_date_are_those_of_scoring_anew(fleet, pods, seed, data):
    name = data.draw(st.sampled_from([*PUBLISHED[1:], *OWN]))
    trace = trace_of("x", fleet, pods)
    arrivals = shuffled(trace, seed, ratio=0)

    found = fill(trace, arrivals, arrivals.shapes, name, seed)

    assert found.tolist() == one_by_one(trace, arrivals, arrivals.shapes, name, seed)


@settings(max_examples=20)
@given(fleet=fleets, pods=st.lists(shapes, min_size=1, max_size=8), data=st.data())
def test_no_job_is_turned_away_while_all_fits(fleet, pods, data):
    name = data.draw(st.sampled_from([*PUBLISHED, *OWN]))
    fleet += [Machine("spare", 128_000, 65_536, 4, model) for model in ("T4", "P100") for _ in pods]
    trace = trace_of("x", fleet, pods)
    arrivals = shuffled(trace, 0, ratio=0)

    found = fill(trace, arrivals, arrivals.shapes, name, 0)

    assert found.tolist() == arrivals.arrived.tolist()


def test_all_pods_of_the_trace_arrive_once_before_any_is_drawn_again():
    trace = trace_of("x", machines(4, 4), [whole(1), whole(2), share(500)])

    arrivals = shuffled(trace, 7)

    assert sorted(arrivals.shapes[:3].tolist()) == sorted(trace.pods.tolist())
    assert sorted(arrivals.nodes.tolist()) == [0, 1]
    assert 1.3 * trace.gpu_milli - 2000 < arrivals.arrived[-1] <= 1.3 * trace.gpu_milli
    assert arrivals.until(1) == 1
    assert arrivals.arrived[arrivals.until(trace.gpu_milli) - 1] >= trace.gpu_milli


def test_a_seed_tells_the_order():
    trace = trace_of("x", machines(*[4] * 9), [share(milli) for milli in range(1, 60)])

    assert shuffled(trace, 1).shapes.tolist() == shuffled(trace, 1).shapes.tolist()
    assert shuffled(trace, 1).shapes.tolist() != shuffled(trace, 2).shapes.tolist()


@given(pods=st.lists(st.integers(0, 3), max_size=30), batch=st.integers(1, 12))
def test_an_order_mixes_no_batches(pods, batch):
    trace = trace_of("x", machines(1), [share(milli) for milli in (100, 200, 300, 400)])

    for order in ORDERS.values():
        found = in_batches(trace, np.array(pods, dtype=np.int64), batch, order)
        for first in range(0, len(pods), batch):
            assert sorted(found[first : first + batch]) == sorted(pods[first : first + batch])


def test_interleaving_spreads_each_shape_over_the_batch():
    trace = trace_of("x", machines(1), [whole(1), whole(2)])
    small, large = (trace.shapes.index(whole(gpus)) for gpus in (1, 2))

    assert interleaved(trace, [small] * 4 + [large] * 2) == [small, large, small, small, large, small]
    assert largest_first(trace, [small, large, small]) == [large, small, small]


# --- the trace ------------------------------------------------------------------------------------------


# The best two by default: others are compared with these.
@pytest.mark.slow
@needs_trace
@pytest.mark.parametrize("policy", PUBLISHED if EVERY_SEED else PUBLISHED[-1:])
def test_a_published_policy_comes_within_a_point_of_the_published_mean(policy):
    published = PUBLISHED_MEANS["default"][PUBLISHED.index(policy)]

    assert online(Path(TRACE), Online("default", 42, policy)) == pytest.approx(published, abs=1)


@pytest.mark.slow
@needs_trace
@pytest.mark.parametrize("variant", PUBLISHED_MEANS)
def test_stranding_and_scarcity_beat_published_fgd_and_keep_below_the_ceiling(variant):
    found = online(Path(TRACE), Online(variant, 42, "Stranding + scarcity"))

    assert PUBLISHED_MEANS[variant][-1] < found < CEILING[variant]
